"""A peer that does not read is dropped at the cap; nobody else notices."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_engine.errors import ConfigError
from local_engine.transport import Connection, Transport, listen
from local_engine.wire import Batch, FrameReader, Piece, Ping, ToEngine, decode_to_client, frame

CAP = 64 * 1024


class Recorder:
    def __init__(self) -> None:
        self.connections: dict[int, Connection] = {}
        self.closed: list[Connection] = []
        self.seen = threading.Event()

    def on_message(self, connection: Connection, message: ToEngine) -> None:
        assert isinstance(message, Ping)
        self.connections[message.n] = connection
        self.seen.set()

    def on_close(self, connection: Connection) -> None:
        self.closed.append(connection)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[Transport, Recorder, Path]]:
    recorder = Recorder()
    path = tmp_path / "t.sock"
    transport = Transport(str(path), recorder, cap_bytes=CAP, max_connections=2)
    transport.thread.start()
    yield transport, recorder, path
    transport.close(1.0)


def connect(recorder: Recorder, path: Path, number: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(5)
    sock.connect(str(path))
    recorder.seen.clear()
    sock.sendall(frame(Ping(number)))
    assert recorder.seen.wait(5)
    return sock


def batch(number: int) -> Batch:
    return Batch([Piece(1, "x" * 1000, [number], 1, number)])


def test_a_peer_that_does_not_read_is_dropped_and_others_get_everything(parts: tuple[Transport, Recorder, Path]) -> None:
    transport, recorder, path = parts
    deaf, good = connect(recorder, path, 1), connect(recorder, path, 2)
    numbers: list[int] = []

    def read() -> None:
        reader = FrameReader()
        while len(numbers) < 2000 and (data := good.recv(65536)):
            for body in reader.feed(data):
                message = decode_to_client(body)
                assert isinstance(message, Batch)
                numbers.append(message.pieces[0].output_tokens)

    thread = threading.Thread(target=read)
    thread.start()
    slowest = 0.0
    for number in range(2000):
        started = time.monotonic()
        recorder.connections[1].send(batch(number))
        slowest = max(slowest, time.monotonic() - started)
        recorder.connections[2].send(batch(number))
        while number - len(numbers) > 20 and thread.is_alive():  # the good peer reads as fast as steps come
            time.sleep(0.0005)
    thread.join(10)
    assert numbers == list(range(2000))
    assert recorder.closed == [recorder.connections[1]]
    assert transport.dropped == 1
    assert slowest < 0.5  # a send never waits for the peer
    deaf.close()
    good.close()


def test_beyond_its_connections_it_refuses(parts: tuple[Transport, Recorder, Path]) -> None:
    _, recorder, path = parts
    open_ = [connect(recorder, path, 1), connect(recorder, path, 2)]
    extra = socket.socket(socket.AF_UNIX)
    extra.settimeout(5)
    extra.connect(str(path))
    assert extra.recv(1) == b""
    for sock in (*open_, extra):
        sock.close()


def test_what_is_queued_leaves_before_it_closes(parts: tuple[Transport, Recorder, Path]) -> None:
    transport, recorder, path = parts
    sock = connect(recorder, path, 1)
    for number in range(30):
        recorder.connections[1].send(batch(number))
    transport.close(1.0)
    data = b""
    while piece := sock.recv(65536):
        data += piece
    assert len(list(FrameReader().feed(data))) == 30
    assert not path.exists()
    sock.close()


def test_the_socket_file(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    mask = os.umask(0)
    os.umask(mask)
    with listen(str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(ConfigError, match="another engine"):
            listen(str(path))
    with listen(str(path)):  # a dead one's file is replaced
        pass
    now = os.umask(mask)
    assert now == mask  # the process's mask is as it was
    with pytest.raises(ConfigError, match="over 107 bytes"):
        listen(str(tmp_path / ("x" * 120)))
    with pytest.raises(ConfigError, match="cannot listen"):
        listen(str(tmp_path / "no folder" / "s.sock"))
