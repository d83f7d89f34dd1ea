"""Every recorded answer, played in any pieces, as each of our surfaces gives it: it says what the recording says.

What is expected is read off the recording by tests/conformance/reading.py, and so is what the surface gave; the code under test has no
part in either. A table per vendor is printed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any

import pytest

from providers.errors import ProviderError
from providers.types import Frame
from tests.conformance import reading
from tests.conformance.reading import Said
from tests.conformance.recordings import (
    CHUNKINGS,
    LANGUAGES,
    Record,
    answers,
    asked,
    language,
    needed,
    play,
    recorded_request,
    stated,
    streamed,
    told,
)

pytestmark = needed
MOST_WRONG = 0.03
WRONG: dict[str, str] = {}  # recording -> why its answer cannot be given as it says


def test_the_pieces_of_the_wire_change_nothing() -> None:
    """Whole, by event, and one, two and three bytes at a time: the same events, and the same bytes for a client of the language."""
    count = 0
    for record in answers():
        if not streamed(record):
            continue
        whole = play(record)
        for chunking in CHUNKINGS[1:]:
            frames = play(record, chunking)
            assert [e for frame in frames for e in frame.events] == [e for frame in whole for e in frame.events], (record["id"], chunking)
            for name in ("wire", "usage_wire"):
                assert wire(frames, name) == wire(whole, name), (record["id"], chunking, name)
        count += 1
    assert count > 100


def wire(frames: list[Frame], name: str) -> bytes:
    return b"".join([getattr(frame, name) for frame in frames])


# ---- what is compared ---------------------------------------------------------------------------------------------------------------
def gist(said: Said, expected: Said, *, every: bool) -> dict[str, Any]:
    """every: all choices, refusals apart from text, signatures and ids; else the first choice of several, as most languages have it."""
    numbers = sorted(number for number in said.choices if every or number == 0)
    choices = {}
    for number in numbers:
        found, wanted = asdict(said.choices[number]), expected.choices.get(number) or reading.Choice()
        if not every:
            found["text"] += found.pop("refusal")
            del found["signatures"], found["hidden"]
        ids = [call_id for call_id, _, _ in wanted.calls]
        known = [(call_id if ids[n : n + 1] != [""] else "", name, args) for n, (call_id, name, args) in enumerate(found["calls"])]
        choices[number] = {**found, "calls": known}
    return {"choices": choices, "usage": said.usage}


def differences(record: Record, surface: str, frames: list[Frame]) -> str:
    own = language(record) == surface
    request = recorded_request(record) if own else asked(surface, streamed(record))
    expected = stated(record)
    found = reading.said(surface, told(frames, surface, request), request.stream)
    wanted, given = gist(expected, expected, every=own), gist(found, expected, every=own)
    if expected.usage is None:
        wanted["usage"] = given["usage"] = None  # the gateway counts for itself
    if not own:
        across(record, surface, wanted, given)
    lines = [f"{name}: {wanted[name]!r:.300} became {given[name]!r:.300}" for name in wanted if wanted[name] != given[name]]
    return "; ".join(lines)


def across(record: Record, surface: str, wanted: dict[str, Any], given: dict[str, Any]) -> None:
    """What a language cannot say at all, as docs/languages.md has it."""
    first = wanted["choices"].get(0)
    if first is None:
        return
    if surface == "messages":
        for call, other in zip(first["calls"], given["choices"].get(0, first)["calls"], strict=False):
            if isinstance(call[2], str) and not streamed(record):
                first["calls"] = [c if c is not call else (*c[:2], other[2]) for c in first["calls"]]  # an object, so nothing cut
                assert other[2] == {}
    if first["finish"] not in ("stop", "length", "tool_calls", "content_filter"):
        first["finish"] = given["choices"].get(0, first)["finish"]  # a vendor's own word, or none


@pytest.mark.parametrize("surface", LANGUAGES)
def test_recorded_answers_say_on_our_surface_what_the_recording_says(surface: str, capsys: pytest.CaptureFixture[str]) -> None:
    table: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: dict[str, str] = {}
    for record in answers():
        count = table[record["provider"]]
        count[language(record)] += 1
        try:
            why = differences(record, surface, play(record))
        except ProviderError as error:
            why = f"raised {error!r}"
        if why:
            wrong[record["id"]] = why
            count["wrong"] += 1
    with capsys.disabled():
        sys.stdout.write(f"\nRecorded answers on the surface {surface}\n{'vendor':18}" + "".join(f"{n:>12}" for n in (*LANGUAGES, "wrong")))
        for vendor, count in sorted(table.items()):
            sys.stdout.write(f"\n{vendor:18}" + "".join(f"{count[name]:>12}" for name in (*LANGUAGES, "wrong")))
        sys.stdout.write("\n" + "".join(f"{name} {why}\n" for name, why in wrong.items()))
    unexplained = {name: why for name, why in wrong.items() if name not in WRONG}
    assert unexplained == {}, json.dumps(unexplained, indent=1)[:4000]
    assert len(wrong) <= MOST_WRONG * len(answers())
