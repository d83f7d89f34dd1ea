"""The engine's end of its socket: one thread that accepts, reads, cuts into messages, and flushes what other threads left to send.

A connection's unsent bytes are capped: a peer that stops reading is dropped, it never stalls a step. Knows messages, not their meaning.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from local_engine.errors import ConfigError, EngineError
from local_engine.wire import FrameReader, ToClient, ToEngine, decode_to_engine, frame

log = logging.getLogger("tollway.engine")
READ_BYTES = 256 * 1024
MAX_PATH_BYTES = 107  # of a Unix socket's address


class Handler(Protocol):
    """Called on the transport's thread; must not block."""

    def on_message(self, connection: Connection, message: ToEngine) -> None: ...
    def on_close(self, connection: Connection) -> None: ...


class Connection:
    """`send` may be called from any thread. Everything else belongs to the transport's."""

    def __init__(self, sock: socket.socket, cap_bytes: int, wake: Callable[[Connection], None]) -> None:
        self.sock = sock
        self.reader = FrameReader()
        self.greeted = False
        self.overrun = False
        self._cap_bytes = cap_bytes
        self._wake = wake
        self._lock = threading.Lock()
        self._out = bytearray()

    def send(self, message: ToClient) -> None:
        """Queue one message; over the cap the connection is marked to be dropped instead."""
        data = frame(message)
        with self._lock:
            if len(self._out) + len(data) > self._cap_bytes:
                self.overrun = True
            else:
                self._out += data
        self._wake(self)

    def flush(self) -> bool:
        """Write what the socket takes; True when nothing is left."""
        with self._lock:
            if self._out:
                with contextlib.suppress(BlockingIOError):
                    del self._out[: self.sock.send(self._out)]
            return not self._out


class Transport:
    def __init__(self, path: str, handler: Handler, *, cap_bytes: int, max_connections: int) -> None:
        self._handler = handler
        self._cap_bytes = cap_bytes
        self._max_connections = max_connections
        self._listener = listen(path)
        self._path = path
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._pending: set[Connection] = set()
        self._pending_lock = threading.Lock()
        self._closing = False
        self.connections: set[Connection] = set()
        self.dropped = 0
        self.thread = threading.Thread(target=self._run, name="engine-io", daemon=True)

    def broadcast(self, message: ToClient) -> None:
        for connection in list(self.connections):
            if connection.greeted:
                connection.send(message)

    def close(self, timeout_s: float) -> None:
        """Stop listening, give what is queued `timeout_s` to leave, end the thread."""
        self._closing = True
        if self.thread.is_alive():
            self._ring()
        self.thread.join(timeout_s)
        Path(self._path).unlink(missing_ok=True)

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        while not (self._closing and all(connection.flush() for connection in self.connections)):
            for key, events in self._selector.select(0.02 if self._closing else None):
                self._turn(key, events)
            with self._pending_lock:
                pending, self._pending = self._pending, set()
            for connection in pending & self.connections:
                self._write(connection)
        for connection in list(self.connections):
            self._drop(connection)
        self._selector.close()
        for sock in (self._listener, self._wake_read, self._wake_write):
            sock.close()

    def _turn(self, key: selectors.SelectorKey, events: int) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._wake_read:
            self._wake_read.recv(4096)
        elif key.data in self.connections:
            if events & selectors.EVENT_WRITE:
                self._write(key.data)
            if events & selectors.EVENT_READ and key.data in self.connections:
                self._read(key.data)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        if len(self.connections) >= self._max_connections or self._closing:
            sock.close()
            return
        sock.setblocking(False)
        connection = Connection(sock, self._cap_bytes, self._remember)
        self.connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(READ_BYTES)
            if not data:
                self._drop(connection)
                return
            for body in connection.reader.feed(data):
                self._handler.on_message(connection, decode_to_engine(body))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(connection)
        except (msgspec.MsgspecError, EngineError) as error:
            log.warning("a peer sent what is not our protocol, dropped: %s", error)
            self.dropped += 1
            self._drop(connection)

    def _write(self, connection: Connection) -> None:
        if connection.overrun:
            log.warning("a peer does not read: over %d unsent bytes, dropped with its requests", self._cap_bytes)
            self.dropped += 1
            self._drop(connection)
            return
        try:
            done = connection.flush()
        except OSError:
            self._drop(connection)
            return
        wanted = selectors.EVENT_READ if done else selectors.EVENT_READ | selectors.EVENT_WRITE
        if self._selector.get_key(connection.sock).events != wanted:
            self._selector.modify(connection.sock, wanted, connection)

    def _drop(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._selector.unregister(connection.sock)
            connection.sock.close()
            self._handler.on_close(connection)

    def _remember(self, connection: Connection) -> None:
        with self._pending_lock:
            first = not self._pending
            self._pending.add(connection)
        if first:
            self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it is full of wake-ups already, or the thread has just ended
            self._wake_write.send(b"!")


def listen(path: str) -> socket.socket:
    """A listening socket of mode 0600 at `path`; a dead one is replaced. ConfigError when a living engine has it or it cannot be."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ConfigError(f"the socket path {path} is over {MAX_PATH_BYTES} bytes: choose a shorter state folder", param="socket_path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            pass
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
        else:
            raise ConfigError(f"another engine listens on {path}", param="socket_path")
    sock = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        sock.bind(path)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on {path}: {error.strerror}", param="socket_path") from None
    finally:
        os.umask(mask)
    sock.listen(128)
    return sock
