"""Images, files and clips as both languages of OpenAI write them: with the same members, here in the part itself, there in an object.

A value with any other member, or of another type, is None: the part stays as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from providers.dialects.rawjson import data_of, data_url, written
from providers.types import Audio, Document, Image


def texts(said: Any, *allowed: str) -> bool:
    """Whether it is an object with texts under some of the allowed names and nothing else."""
    return isinstance(said, Mapping) and bool(said) and said.keys() <= set(allowed) and all(isinstance(one, str) for one in said.values())


def read_image(said: Any, cache: Raw | None, url: str) -> Image | None:
    """url: the name of the member with its address."""
    if not texts(said, url, "detail") or url not in said:
        return None
    media_type, data = data_of(said[url]) or (None, None)
    return Image(None if data is not None else said[url], data, media_type, said.get("detail"), cache)


def write_image(image: Image, url: str) -> dict[str, Any]:
    return written({url: image.url if image.data is None else data_url(image.media_type, image.data), "detail": image.detail})


def read_file(said: Any, cache: Raw | None, *allowed: str) -> Document | None:
    if not texts(said, "file_data", "file_id", "filename", *allowed):
        return None
    media_type, data = data_of(said.get("file_data", "")) or (None, said.get("file_data"))
    return Document(data, said.get("file_id"), media_type, said.get("filename"), cache, said.get("file_url"))


def write_file(document: Document) -> dict[str, Any]:
    data = document.data
    if data is not None and document.media_type is not None:
        data = data_url(document.media_type, data)
    return written({"filename": document.name, "file_data": data, "file_id": document.file_id, "file_url": document.url})


def read_audio(said: Any, cache: Raw | None) -> Audio | None:
    return Audio(said["data"], said["format"]) if cache is None and texts(said, "data", "format") and len(said) == 2 else None


def write_audio(clip: Audio) -> dict[str, Any]:
    return {"data": clip.data, "format": clip.format}
