"""The recorded exchanges in the languages that are spoken here, from the folder that TOLLWAY_RECORDINGS names, and playing them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from providers.dialects import DIALECTS, PLAIN, Dialect
from providers.types import Frame, Request, Target
from tests.conformance import reading

FOLDER = os.environ.get("TOLLWAY_RECORDINGS", "")
needed = pytest.mark.skipif(not FOLDER, reason="TOLLWAY_RECORDINGS names no folder of recordings")

Record = dict[str, Any]
# the recordings' word for an API -> the reader's word for its language, the dialect, where a client asks for it
APIS = {
    "chat.completions": ("chat", "openai_chat", "/v1/chat/completions"),
    "messages": ("messages", "anthropic_messages", "/v1/messages"),
    "responses": ("responses", "openai_responses", "/v1/responses"),
}
SPOKEN = {api: row for api, row in APIS.items() if row[1] in DIALECTS}
LANGUAGES = {language: DIALECTS[dialect] for language, dialect, _ in SPOKEN.values()}
API_OF = {language: api for api, (language, _, _) in APIS.items()}
STATEFUL = ("previous_response_id", "conversation", "prompt", "background")  # fields of a request that nothing stateless can serve
BROKEN = {"error", "mid_stream_error", "error_in_200"}  # tags of exchanges that end in an error
CHUNKINGS = ("whole", "event", 1, 2, 3)


@cache
def records() -> list[Record]:
    found: list[Record] = []
    for path in sorted(Path(FOLDER).glob("*.jsonl")) if FOLDER else ():
        found += [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [record for record in found if record["api"] in SPOKEN]


def answers() -> list[Record]:
    return [record for record in records() if record["response"]["status"] == 200 and not BROKEN & set(record["tags"])]


def language(record: Record) -> str:
    return SPOKEN[record["api"]][0]


def dialect(record: Record) -> Dialect:
    return DIALECTS[SPOKEN[record["api"]][1]]


def streamed(record: Record) -> bool:
    return bool(record["response"]["kind"] == "sse")


def body(record: Record) -> str:
    """What its server sent."""
    response = record["response"]
    if response["kind"] == "json":
        return json.dumps(response["json"], ensure_ascii=False, separators=(",", ":"))
    return str(response["sse"] if streamed(record) else response.get("text", ""))


def stated(record: Record) -> reading.Said:
    return reading.said(language(record), body(record), streamed(record))


def reads(data: bytes, chunking: str | int) -> Iterator[bytes]:
    """The body as a socket may bring it."""
    if chunking == "whole":
        yield data
    elif chunking == "event":
        at = 0
        while at < len(data):
            ends = [end + len(blank) for blank in (b"\n\n", b"\r\n\r\n") if (end := data.find(blank, at)) >= 0]
            end = min(ends, default=len(data))
            yield data[at:end]
            at = end
    else:
        assert isinstance(chunking, int)
        for at in range(0, len(data), chunking):
            yield data[at : at + chunking]


def play(record: Record, chunking: str | int = "whole") -> list[Frame]:
    """What our side of the wire makes of the answer. Raises ProviderError as a call would."""
    data = body(record).encode()
    if not streamed(record):
        return [dialect(record).decode_answer(data)]
    decoder, frames = dialect(record).stream_decoder(), []
    for piece in reads(data, chunking):
        frame = decoder.feed(piece)
        if frame.events or frame.wire or frame.usage_wire:
            frames.append(frame)
        if decoder.done:
            break
    last = decoder.close()
    return [*frames, last] if last.events or last.wire or last.usage_wire else frames


def asked(surface: str, stream: bool) -> Request:
    """A client's request of the least there can be, with usage wanted."""
    hello = [{"role": "user", "content": "hi"}]
    if surface == "responses":
        told: dict[str, Any] = {"model": "route", "input": "hi", "store": False}
    elif surface == "messages":
        told = {"model": "route", "messages": hello, "max_tokens": 1000}
    else:
        told = {"model": "route", "messages": hello, **({"stream_options": {"include_usage": True}} if stream else {})}
    return LANGUAGES[surface].decode_request(json.dumps({**told, "stream": stream}).encode())


def recorded_request(record: Record) -> Request:
    """The client's own, with usage wanted; the least there can be where it asks for stored state."""
    told = dict(record["request"]["json"])
    if any(told.get(name) for name in STATEFUL):
        return asked(language(record), streamed(record))
    if language(record) == "chat" and told.get("stream"):
        told["stream_options"] = {"include_usage": True}
    request = dialect(record).decode_request(json.dumps(told, ensure_ascii=False).encode())
    dialect(record).encode_request(request, Target(backend="b", model="m"), PLAIN)
    return request


def told(frames: list[Frame], surface: str, request: Request) -> str:
    """What a client of that surface is sent."""
    if not request.stream:
        return LANGUAGES[surface].encode_answer(frames, request).decode()
    encoder = LANGUAGES[surface].stream_encoder(request, "id1")
    return (b"".join([encoder.encode(frame) for frame in frames]) + encoder.end("0.000123000")).decode()
