"""Where the gateway listens: a port that is taken is seen, one that is shared can be shared, and whether somebody answers."""

from __future__ import annotations

import asyncio
import errno
import socket
import time

import pytest

from gateway import listen


def test_a_claimed_port_is_free_and_port_0_finds_one() -> None:
    with listen.claim("127.0.0.1", 0) as claim:
        assert claim.getsockname()[1] > 0


def test_a_port_that_somebody_listens_on_cannot_be_claimed_even_if_they_would_share_it() -> None:
    with listen.shared_socket("127.0.0.1", 0) as theirs:
        theirs.listen()
        with pytest.raises(OSError) as caught:
            listen.claim("127.0.0.1", theirs.getsockname()[1])
    assert caught.value.errno == errno.EADDRINUSE


def test_workers_share_a_port() -> None:
    with listen.shared_socket("127.0.0.1", 0) as one:
        one.listen()
        with listen.shared_socket("127.0.0.1", one.getsockname()[1]) as other:
            other.listen()
            assert one.getsockname() == other.getsockname()


def test_a_port_is_free_again_right_after_a_server_with_clients_ended() -> None:
    with listen.shared_socket("127.0.0.1", 0) as server:
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            accepted.close()  # the server closes first: its side lingers in TIME_WAIT
    with listen.claim("127.0.0.1", port) as claim:
        assert claim.getsockname()[1] == port


@pytest.mark.parametrize(("host", "reached"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_how_this_machine_reaches_it(host: str, reached: str) -> None:
    assert listen.reachable(host, 4000) in (reached, "::1" if host == "localhost" else reached)


def test_an_unknown_host_is_an_error() -> None:
    with pytest.raises(OSError):
        listen.address("no such host", 4000)


async def test_answers_waits_for_the_listener() -> None:
    with listen.shared_socket("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
        asyncio.get_running_loop().call_later(0.1, server.listen)
        started = time.monotonic()
        assert await listen.answers("127.0.0.1", port, 5)
        assert time.monotonic() - started >= 0.09


async def test_answers_gives_up() -> None:
    with listen.claim("127.0.0.1", 0) as claim:  # bound, but nobody listens
        assert not await listen.answers("127.0.0.1", claim.getsockname()[1], 0.1)
