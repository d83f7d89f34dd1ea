"""The engine's process: requests in by the socket, the step loop on the main thread, text made on threads beside it.

Serves before there is a model: it answers hello with its state and refuses with a retry-after. Ends when its parent does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import stat
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from local_engine.config import EngineConfig
from local_engine.device import Device
from local_engine.errors import BadRequest, ConfigError, EngineError, Unavailable
from local_engine.metrics import Metrics
from local_engine.streams import Stream, TokenLog
from local_engine.transport import Connection, Transport
from local_engine.wire import (
    MAX_CHOICES,
    VERSION,
    Batch,
    Cancel,
    Embed,
    Hello,
    Params,
    Piece,
    Ping,
    Pong,
    Stats,
    StatsQuery,
    Submit,
    ToEngine,
    Welcome,
    refusal,
)

if TYPE_CHECKING:  # imported by `_load`: the socket answers before torch is there
    from local_engine.embeddings import EmbeddingQueue
    from local_engine.engine import Engine, Output
    from local_engine.grammar import Grammars
    from local_engine.tokenizer import Tokenizer

log = logging.getLogger("tollway.engine")
IDLE_WAIT_S = 0.5
QUEUED_STEPS = 256  # steps whose text is not made yet; beyond it the step loop waits
HEARTBEAT_S = 1.0
FLUSH_S = 1.0
PARENT_GONE_S = 5.0  # then the process ends whatever its threads do
CRASHED = 70


class Server:
    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.state = Welcome(state="loading", detail="the engine is starting")
        self._transport = Transport(
            config.socket_path, self, cap_bytes=config.outbound_bytes, max_connections=config.max_connections
        )  # fmt: skip
        self._tokenizer: Tokenizer | None = None
        self._grammars: Callable[[], Grammars] | None = None
        self._eos_ids: frozenset[int] = frozenset()
        self._stats = Stats(kv_bytes_cap=config.kv_bytes)
        self._device = Device(None)
        self._streams: dict[int, Stream] = {}
        self._next_id = 0
        self._max_open = config.max_sequences + config.max_waiting
        self._to_encode: queue.Queue[Stream] = queue.Queue(self._max_open)
        self._to_compile: queue.Queue[Stream] = queue.Queue(self._max_open)
        self._to_decode: queue.Queue[list[Output]] = queue.Queue(QUEUED_STEPS)
        self._embeddings: EmbeddingQueue | None = None  # in the engine's place, when the model makes embeddings
        self._inbox: deque[Callable[[Any], None]] = deque()  # bounded by the open requests: an add and two aborts each
        self._wake = threading.Event()
        self._stopping = False
        self._beat = time.monotonic()

    def run(self) -> int:
        """Serve until SIGTERM or the parent's end; the exit status. Must be called on the main thread."""
        threading.excepthook = _crash
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_term)
        _watch_parent()
        if self.config.heartbeat:
            threading.Thread(target=self._heartbeat, name="engine-heartbeat", daemon=True).start()
        self._transport.thread.start()
        engine = self._load()
        for name, loop in (
            ("engine-encode", lambda: self._encode_loop(self._to_encode)),
            ("engine-compile", lambda: self._encode_loop(self._to_compile)),  # a huge grammar takes a second
            ("engine-decode", self._decode_loop),
        ):
            threading.Thread(target=loop, name=name, daemon=True).start()
        self._set_state(Welcome(state="ready", model=Path(self.config.model_dir).name, context_tokens=engine.context_tokens))
        while not self._stopping:
            self._turn(engine)
        self._stop()
        return 0

    # ---- the step loop, main thread
    def _turn(self, engine: Engine | EmbeddingQueue) -> None:
        """Take in what was asked since the last step, make one step, hand its tokens on; wait when there is nothing to do."""
        self._wake.clear()
        while self._inbox:
            self._inbox.popleft()(engine)
        if engine.busy:
            self._to_decode.put(engine.step())
        self._stats = engine.stats
        self._beat = time.monotonic()
        if not engine.busy and not self._inbox:
            self._wake.wait(IDLE_WAIT_S)

    def _load(self) -> Engine | EmbeddingQueue:
        """The engine, once there is a model that loads. Looks again whenever the folder changes."""
        folder = Path(self.config.model_dir)
        tried = -1
        while True:
            changed = folder.stat().st_mtime_ns if folder.exists() else 0
            if changed != tried and not _present(folder):
                self._set_state(Welcome(state="no model", detail=f"no model in {folder}: run `tollway models get {folder.name}`"))
            elif changed != tried:
                tried = changed
                self._set_state(Welcome(state="loading", detail=f"loading {folder.name}"))
                try:
                    return self._load_once(folder)
                except ConfigError as error:
                    log.error("cannot load %s: %s", folder, error.message)
                    self._set_state(Welcome(state="failed", detail=error.message))
            time.sleep(self.config.model_poll_s)

    def _load_once(self, folder: Path) -> Engine | EmbeddingQueue:
        from local_engine.embeddings import EmbeddingQueue, makes_embeddings
        from local_engine.engine import Engine
        from local_engine.loader import load
        from local_engine.tokenizer import Tokenizer

        started = time.monotonic()
        if makes_embeddings(folder):
            self._embeddings = EmbeddingQueue(folder, self.config)
            return self._embeddings
        model = load(folder, self.config.precision, self.config.device)
        engine = Engine(model, self.config)
        self._tokenizer = tokenizer = Tokenizer(model.folder)
        self._eos_ids = engine.eos_ids
        self._grammars = cache(lambda: grammars(tokenizer, engine))
        warm(engine)
        engine.metrics = Metrics()
        self._device = Device(engine.device_index)
        log.info("%s is loaded in %.1f s, %d threads", model.name, time.monotonic() - started, self.config.thread_count)
        return engine

    def _stop(self) -> None:
        self._set_state(Welcome(state="stopping", detail="the engine is stopping"))
        for stream in self._streams.copy().values():
            if stream.id in self._streams:  # else it went with another choice of its request
                self._refuse(stream, Unavailable("the engine is stopping", retry_after_s=self.config.retry_after_s))
        self._transport.close(FLUSH_S)

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        if self.state.state != "ready":  # nothing runs, and a load cannot be interrupted
            Path(self.config.socket_path).unlink(missing_ok=True)
            os._exit(0)
        self._stopping = True
        self._wake.set()

    # ---- the heartbeat's thread
    def _heartbeat(self) -> None:
        told = 0.0
        while True:
            beat = self._beat
            with contextlib.suppress(OSError):  # nobody listens any more
                os.write(1, self.sign_of_life(told))
            told = beat
            time.sleep(HEARTBEAT_S)

    def sign_of_life(self, told: float) -> bytes:
        """One line, or nothing while a step hangs: the loop has not turned since `told`."""
        if self.state.state != "ready":
            return b"loading\n"
        return b"ready\n" if self._beat != told else b""

    # ---- the transport's thread
    def on_message(self, connection: Connection, message: ToEngine) -> None:
        match message:
            case Hello(version):
                if version != VERSION:
                    raise EngineError(f"its protocol version is {version}, ours {VERSION}")
                connection.greeted = True
                connection.send(self.state)
            case Submit():
                self._submit(connection, message)
            case Embed():
                self._embed(connection, message)
            case Cancel(id):
                self._forget(connection, id)
                for stream in [s for s in self._streams.copy().values() if s.connection is connection and s.submit.id == id]:
                    self._cancel(stream)
            case StatsQuery():
                connection.send(self.stats())
            case Ping(n):
                connection.send(Pong(n))

    def on_close(self, connection: Connection) -> None:
        self._forget(connection)
        for stream in [s for s in self._streams.copy().values() if s.connection is connection]:
            self._cancel(stream)

    def stats(self) -> Stats:
        ready = self.state.state == "ready"
        device = self._device.figures()
        return replace(
            self._stats,
            state=self.state.state,
            connections=len(self._transport.connections),
            dropped_connections=self._transport.dropped,
            heartbeat_age_s=time.monotonic() - self._beat if ready else 0.0,
            device_memory_used=device.memory_used,
            device_memory=device.memory,
            device_busy=device.busy,
        )

    def _submit(self, connection: Connection, submit: Submit) -> None:
        family: list[Stream] = []
        for _ in range(min(max(1, submit.params.n), MAX_CHOICES)):
            self._next_id += 1
            family.append(Stream(self._next_id, connection, submit, family))
        first = family[0]
        error = self._unfit(submit, len(family))
        if error is not None:
            self._refuse(first, error)
            return
        self._streams.update((stream.id, stream) for stream in family)
        (self._to_encode if submit.params.grammar is None else self._to_compile).put_nowait(first)  # never full: it holds open ones only

    def _unfit(self, submit: Submit, choices: int) -> EngineError | None:
        """Why a request is refused before it is looked into."""
        config, open_ = self.config, len(self._streams)
        unready = self._unready()
        if unready is not None:
            return unready
        if self._embeddings is not None:
            return BadRequest("this model makes embeddings and generates no text: use another route", param="model")
        if choices > self._max_open:
            return BadRequest(f"n may be up to {self._max_open} here, not {choices}", param="n")
        if open_ + choices > self._max_open:
            return Unavailable(f"{open_} requests are open already", retry_after_s=config.retry_after_s)
        if submit.text is not None and len(submit.text) > config.max_prompt_bytes:
            return BadRequest(f"the prompt is over {config.max_prompt_bytes} bytes", param="messages")
        return None

    def _unready(self) -> Unavailable | None:
        state = self.state
        return None if state.state == "ready" else Unavailable(state.detail or state.state, retry_after_s=self.config.loading_retry_after_s)

    def _embed(self, connection: Connection, embed: Embed) -> None:
        from local_engine.embeddings import Job

        work = self._embeddings
        no_model = BadRequest("this model generates text and makes no embeddings: use another route", param="model")
        unready = self._unready()
        if unready is not None or work is None:
            connection.send(refusal(embed.id, unready or no_model))
            return
        job = Job(connection, embed, connection.send)
        self._ask(lambda _engine: work.add(job))

    def _forget(self, connection: Connection, key: int | None = None) -> None:
        """Embeddings that nobody waits for any more."""
        work = self._embeddings
        if work is not None:
            self._ask(lambda _engine: work.cancel(connection, key))

    def _cancel(self, stream: Stream) -> None:
        stream.cancelled = True
        self._streams.pop(stream.id, None)
        self._ask(lambda engine: engine.abort(stream.id))

    # ---- the encoding threads
    def _encode_loop(self, given: queue.Queue[Stream]) -> None:
        while True:
            stream = given.get()
            if not stream.cancelled:
                try:
                    self._encode(stream)
                except EngineError as error:
                    self._refuse(stream, error)

    def _encode(self, first: Stream) -> None:
        """Ids, texts and grammars of a request's choices; the engine gets the first of them. Raises BadRequest."""
        from local_engine.detokenizer import TextStream

        if self._tokenizer is None or self._grammars is None:
            raise RuntimeError("a request was accepted before the tokenizer was there")
        submit, params = first.submit, first.submit.params
        prompt = self._tokenizer.encode(submit.text, submit.breaks) if submit.text is not None else submit.ids or []
        for stream in first.family:
            stream.prompt = prompt
            stream.text = TextStream(self._tokenizer.detokenizer(), params.stop, params.min_tokens)
            stream.matcher = None if params.grammar is None else self._grammars().matcher(params.grammar)
            stream.log = None if params.logprobs is None else TokenLog(self._tokenizer.bytes_of)
        self._join(first)

    def _join(self, stream: Stream) -> None:
        """Let the engine have it."""

        def add(engine: Engine) -> None:
            try:
                submit = stream.submit
                engine.add(stream.id, stream.prompt, stream.params, submit.salt, stream.matcher, submit.priority)
            except EngineError as error:
                self._refuse(stream, error)

        self._ask(add)
        if stream.cancelled:  # meanwhile: its abort may stand before its add
            self._ask(lambda engine: engine.abort(stream.id))

    # ---- the decoding thread
    def _decode_loop(self) -> None:
        while True:
            pieces: dict[Connection, list[Piece]] = defaultdict(list)
            for output in self._to_decode.get():
                stream = self._streams.get(output.id)
                if stream is not None:
                    piece = self._piece(stream, output)
                    if piece is not None:
                        pieces[stream.connection].append(piece)
            for connection, batch in pieces.items():
                connection.send(Batch(batch))

    def _piece(self, stream: Stream, output: Output) -> Piece | None:
        """What one token adds to what the client sees; None while its text is held back."""
        if stream.text is None:
            raise RuntimeError("a token came for a request that was never encoded")
        if output.reason == "failed":
            error = stream.matcher.error if stream.matcher is not None else ""
            self._refuse(stream, EngineError(f"the grammar became too hard to go on with: {error}"))
            return None
        if stream.choice == 0 and stream.output_tokens == 0:
            for other in stream.family[1:]:
                self._join(other)
        stream.output_tokens += 1
        stream.held.append(output.token)
        if output.reason == "stop" and output.token in self._eos_ids:
            text, stopped = stream.text.end(), False
        else:
            text, stopped = stream.text.push(output.token, last=output.reason is not None)
            if stream.log is not None:
                stream.log.add(output.pick)
        reason = "stop" if stopped else output.reason
        if not text and reason is None:
            return None
        ids, stream.held = stream.held, []
        if reason is not None:
            self._streams.pop(stream.id, None)
            if output.reason is None:
                self._ask(lambda engine: engine.abort(stream.id))
        logged = stream.log.take(text, stopped) if stream.log is not None else []
        return Piece(stream.submit.id, text, ids, len(stream.prompt), stream.output_tokens, reason, stream.choice, logged)

    # ---- any thread
    def _ask(self, action: Callable[[Any], None]) -> None:
        self._inbox.append(action)
        self._wake.set()

    def _refuse(self, stream: Stream, error: EngineError) -> None:
        """The whole request ends, all its choices."""
        for one in stream.family:
            if self._streams.pop(one.id, None) is not None and one is not stream:
                self._cancel(one)
        stream.connection.send(refusal(stream.submit.id, error))

    def _set_state(self, state: Welcome) -> None:
        if state != self.state:
            log.info("state: %s", state.detail or state.state)
            self.state = state
            self._transport.broadcast(state)


def serve(config: EngineConfig) -> int:
    """Run the process; its exit status."""
    if config.nice:
        os.nice(config.nice)
    return Server(config.checked()).run()


def grammars(tokenizer: Tokenizer, engine: Engine) -> Grammars:
    from local_engine.grammar import Grammars  # a second for a vocabulary of 50,000: whoever asks for none waits for none

    return Grammars(tokenizer.to_json(), engine.vocab, engine.eos_ids)


def warm(engine: Engine) -> None:
    """A request of nobody's, so that whatever is compiled at first use is there before the first client."""
    engine.add(0, [0], Params(temperature=0, max_tokens=2, ignore_eos=True))
    while engine.busy:
        engine.step()


def _present(folder: Path) -> bool:
    """As loader.present, without importing torch."""
    return folder.is_file() or (folder / "config.json").exists() or any(folder.glob("*.gguf"))


def _watch_parent() -> None:
    """When stdin is a pipe its end means that the parent is gone, also after a kill -9."""
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PARENT_GONE_S)
        os._exit(CRASHED)

    threading.Thread(target=watch, name="engine-parent", daemon=True).start()


def _crash(args: threading.ExceptHookArgs) -> None:
    """A thread of ours failed: an engine with a part missing must not live on. The supervisor starts a new one."""
    log.critical("%s failed: %s", args.thread.name if args.thread else "a thread", "".join(traceback.format_exception(args.exc_value)))
    os._exit(CRASHED)
