"""Where the gateway listens: host names to addresses, the check that a port is free, a socket that workers share. Standard library only."""

from __future__ import annotations

import asyncio
import socket
import time

SHARED_BACKLOG = 2048


def address(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """Family and numeric address of a host. Raises OSError when the name is unknown."""
    family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return family, str(found[0])


def reachable(host: str, port: int) -> str:
    """The numeric address at which this machine reaches a server that listens on `host`, which may be any address of it."""
    _, numeric = address(host, port)
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(numeric, numeric)


def claim(host: str, port: int) -> socket.socket:
    """A socket bound to the port (0: one the kernel picks), not listening; the caller closes it. OSError when anybody listens there.

    Workers share the port by SO_REUSEPORT, with which a second gateway would silently share it too; this bind is without.
    """
    family, numeric = address(host, port)
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((numeric, port))
    except OSError:
        found.close()
        raise
    return found


def shared_socket(host: str, port: int) -> socket.socket:
    """A bound socket of a port that several workers listen on."""
    family, numeric = address(host, port)
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind((numeric, port))
    return found


async def answers(host: str, port: int, within_s: float) -> bool:
    """Whether somebody accepts connections there before the time is up: the server binds in a thread of its own."""
    reach = reachable(host, port)
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            _, writer = await asyncio.open_connection(reach, port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return True
    return False
