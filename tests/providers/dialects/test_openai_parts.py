"""Images, files and clips that both languages of OpenAI write with the same members."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from providers.dialects.openai_parts import read_audio, read_file, read_image, texts, write_audio, write_file, write_image
from providers.types import Audio, Document, Image

CACHE = Raw(b'{"type":"ephemeral"}')


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"url": "https://x/y.png"}, Image(url="https://x/y.png", cache_control=CACHE)),
        ({"url": "data:image/png;base64,AA", "detail": "low"}, Image(data="AA", media_type="image/png", detail="low", cache_control=CACHE)),
        ({"url": "data:image/png,AA"}, Image(url="data:image/png,AA", cache_control=CACHE)),
        ({"detail": "low"}, None),
        ({"url": 7}, None),
        ({"url": "u", "more": "x"}, None),
        ("u", None),
    ],
)
def test_images(said: Any, expected: Image | None) -> None:
    assert read_image(said, CACHE, "url") == expected
    if expected is not None:
        assert write_image(expected, "url") == said


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"},
            Document(data="AA", media_type="application/pdf", name="a.pdf"),
        ),
        ({"file_data": "AA"}, Document(data="AA")),
        ({"file_id": "f"}, Document(file_id="f")),
        ({"file_url": "https://x/a.pdf"}, Document(url="https://x/a.pdf")),
        ({"file_id": None}, None),
        ({}, None),
    ],
)
def test_files(said: Any, expected: Document | None) -> None:
    assert read_file(said, None, "file_url") == expected
    if expected is not None:
        assert write_file(expected) == said
        if expected.url is not None:
            assert read_file(said, None) is None  # where a language has no addresses of files


def test_clips() -> None:
    assert read_audio({"data": "AA", "format": "wav"}, None) == Audio("AA", "wav")
    assert write_audio(Audio("AA", "wav")) == {"data": "AA", "format": "wav"}
    for said in ({"data": "AA"}, {"data": "AA", "format": 1}, None):
        assert read_audio(said, None) is None
    assert read_audio({"data": "AA", "format": "wav"}, CACHE) is None


def test_texts_under_allowed_names() -> None:
    assert texts({"a": "x"}, "a", "b")
    assert not texts({}, "a") and not texts({"c": "x"}, "a") and not texts({"a": 1}, "a") and not texts(["a"], "a")
