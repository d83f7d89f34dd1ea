"""The engine's process: before there is a model, when it is killed, when its parent goes, when peers misbehave."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from local_engine.client import EngineClient
from local_engine.config import EngineConfig
from local_engine.errors import Lost, Unavailable
from local_engine.server import Server
from local_engine.wire import FrameReader, Hello, Params, Ping, Pong, Stats, StatsQuery, Submit, Welcome, decode_to_client, frame
from tests.local_engine.tiny import engine_process, make_model, says, until, wait_ready


def test_the_socket_is_the_owner_s_alone(engine_socket: Path) -> None:
    assert stat.S_IMODE(engine_socket.stat().st_mode) == 0o600


class Raw:
    """A peer without our client."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(5)
        self.socket.connect(str(path))
        self.reader = FrameReader()
        self.got: list[object] = []

    def next(self) -> object:
        while not self.got:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self.got += [decode_to_client(body) for body in self.reader.feed(data)]
        return self.got.pop(0)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n" * 20, frame(Hello(version=99)), b"\x00\x00\x00\x02{}"])
def test_who_speaks_something_else_is_dropped(engine_socket: Path, sent: bytes) -> None:
    peer, good = Raw(engine_socket), Raw(engine_socket)
    peer.socket.sendall(sent)
    with pytest.raises((EOFError, ConnectionResetError)):
        peer.next()
    good.socket.sendall(frame(Ping(7)))
    assert good.next() == Pong(7)
    peer.socket.close()
    good.socket.close()


def test_a_vanished_peer_leaves_nothing_running(engine_socket: Path) -> None:
    peer, watcher = Raw(engine_socket), Raw(engine_socket)
    for key in range(6):  # four run, two wait
        peer.socket.sendall(frame(Submit(id=key, text="the quick", params=Params(ignore_eos=True))))
    peer.next()
    peer.socket.close()
    ends = time.monotonic() + 30
    while True:
        watcher.socket.sendall(frame(StatsQuery()))
        stats = watcher.next()
        assert isinstance(stats, Stats)
        if stats.running + stats.waiting + stats.kv_bytes_used == 0:
            break
        assert time.monotonic() < ends
        time.sleep(0.01)
    watcher.socket.close()


def test_a_second_engine_on_the_same_socket_is_refused(engine_socket: Path, tiny: Path) -> None:
    command = [sys.executable, "-m", "local_engine", "serve", "--socket", str(engine_socket), "--model-dir", str(tiny)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 78
    assert "another engine listens" in done.stderr


def test_a_sign_of_life_comes_while_it_loads_and_then_only_when_the_step_loop_turns(tmp_path: Path) -> None:
    server = Server(EngineConfig(model_dir=str(tmp_path), socket_path=str(tmp_path / "e.sock")))
    assert server.sign_of_life(server._beat) == b"loading\n"
    server.state = Welcome(state="ready")
    before = server._beat
    assert server.sign_of_life(before) == b""  # it has not turned since
    server._beat += 1.0
    assert server.sign_of_life(before) == b"ready\n"
    server._transport.thread.start()
    server._transport.close(30.0)


async def test_it_serves_before_its_model_is_there_and_ends_with_its_parent(tmp_path: Path) -> None:
    path, folder = tmp_path / "e.sock", tmp_path / "models" / "tiny"
    with engine_process(path, folder, "--heartbeat", stdout=subprocess.PIPE) as process:
        client = EngineClient(str(path))
        await until(lambda: says(client, "no model"), 30)
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"loading\n"
        assert "tollway models get tiny" in (await client.state()).detail
        with pytest.raises(Unavailable, match="tollway models get tiny") as refused:
            await anext(client.submit("x", Params()))
        assert refused.value.retry_after_s == 2.0
        make_model(tmp_path / "making")
        folder.parent.mkdir()
        (tmp_path / "making").rename(folder)
        await until(lambda: says(client, "ready"), 30)
        assert (await anext(client.submit("x", Params(max_tokens=1)))).reason is not None
        lines = await asyncio.to_thread(lambda: [process.stdout.readline() for _ in range(2)])  # type: ignore[union-attr]
        while lines[-2:] != [b"ready\n"] * 2:  # alive while it has nothing to do
            lines.append(await asyncio.to_thread(process.stdout.readline))
            assert lines[-1] in (b"loading\n", b"ready\n")
        await client.close()
        assert process.stdin is not None
        process.stdin.close()  # as when the parent is killed
        assert await asyncio.to_thread(process.wait, 60) == 0
        assert not path.exists()


async def test_a_bad_model_is_named_and_tried_again_when_it_changes_and_sigterm_ends_all(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    folder = make_model(tmp_path / "tiny", max_position_embeddings=16384)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "gelu"}))
    with engine_process(path, folder) as process:
        client = EngineClient(str(path))
        await until(lambda: says(client, "failed"), 30)
        with pytest.raises(Unavailable, match="hidden_act = 'gelu'"):
            await anext(client.submit("x", Params()))
        (folder / "new.json").write_text(json.dumps(config))
        (folder / "new.json").rename(folder / "config.json")
        await until(lambda: says(client, "ready"), 30)
        streams = [client.submit("the", Params(ignore_eos=True)) for _ in range(3)]
        for stream in streams:
            await anext(stream)
        process.send_signal(signal.SIGINT)  # Ctrl-C is the supervisor's business
        process.send_signal(signal.SIGTERM)
        for stream in streams:
            with pytest.raises(Unavailable, match="stopping"):
                async for _ in stream:
                    pass
        assert await asyncio.to_thread(process.wait, 60) == 0
        await client.close()


async def test_killed_it_fails_what_is_open_at_once_a_new_one_is_found_and_a_hung_step_shows(long_tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    client = EngineClient(str(path))
    with engine_process(path, long_tiny) as process:
        await asyncio.to_thread(wait_ready, path)
        streams = [client.submit("the", Params(ignore_eos=True)) for _ in range(3)]
        for stream in streams:
            await anext(stream)
        process.kill()
        killed = time.monotonic()
        for stream in streams:
            with pytest.raises(Lost):
                async for _ in stream:
                    pass
        assert time.monotonic() - killed < 30
    with engine_process(path, long_tiny, "--max-step-tokens", "16000"):  # its socket file was left behind
        await until(lambda: says(client, "ready"), 60)
        assert (await anext(client.submit("the", Params(max_tokens=1)))).output_tokens == 1

        # A step that does not end: one of 15,000 prompt tokens stands for it. The socket answers beside it and tells its age.
        async def hangs() -> bool:
            return (await client.stats()).heartbeat_age_s > 0.3

        hung = asyncio.ensure_future(anext(client.submit([3] * 15_000, Params(max_tokens=1))))
        await until(hangs, 20)
        hung.cancel()
        await asyncio.gather(hung, return_exceptions=True)
        await client.close()
