"""A provider that plays a script: for tests, the demo and benchmarks. It keeps its own account of what it was asked and what it gave.

Speaks no wire language: its frames hold neutral events alone. A token here is a word with the white space after it. Knows no model.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import re
import time
import tomllib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from providers import errors
from providers.dialects import DIALECTS
from providers.errors import BadAnswer, Cut, ProviderError, TimedOut, Unreachable
from providers.figures import Figures, NoFigures
from providers.types import (
    Deadline,
    Event,
    Failed,
    Finished,
    Frame,
    Metered,
    ReasoningDelta,
    Request,
    Started,
    Target,
    Text,
    TextDelta,
    ToolCallDelta,
    Usage,
    Vector,
)

LOG_ENTRIES = 10_000  # kept in memory; a log file has all
DEFAULT_TEXT = "This answer was scripted. "
MAX_SCRIPT_BYTES = 1024 * 1024
DIMENSIONS = 8  # of a scripted embedding, where the request names none

# what `error` may name; those in ANSWERED come as an HTTP error answer, so that the attempt costs nothing
ANSWERED: dict[str, type[ProviderError]] = {
    "rate_limited": errors.RateLimited,
    "quota_exhausted": errors.QuotaExhausted,
    "server_failed": errors.ServerFailed,
    "unavailable": errors.Unavailable,
    "unauthorized": errors.Unauthorized,
    "rejected": errors.Rejected,
    "context_too_long": errors.ContextTooLong,
    "content_filtered": errors.ContentFiltered,
    "unsupported": errors.Unsupported,
}
UNANSWERED: dict[str, type[ProviderError]] = {"timed_out": TimedOut, "cut": Cut, "bad_answer": BadAnswer}


class Invocation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call to make; `arguments` is JSON text, sent in two pieces when streamed."""

    name: str
    arguments: str = "{}"


class Turn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How calls are answered. Seconds; counts are of visible tokens.

    echo: say the last message's text. tokens: say so many, cycling through `text`. usage: what is metered, counted where None;
    metered False: nothing is. error: a name of ANSWERED or UNANSWERED, or `unreachable`, after `error_after` tokens. cut_after,
    hang_after: end without an end, or fall silent, after so many. obey_limit False: go on past max_tokens. malformed: answer nonsense.
    times: serve so many calls, then the next turn; None = all further ones.
    """

    text: str | None = None  # None: DEFAULT_TEXT, or nothing beside tool calls
    echo: bool = False
    tokens: int | None = None
    reasoning: str = ""
    tool_calls: tuple[Invocation, ...] = ()
    finish: str = ""  # empty: stop, length or tool_calls, as it was
    usage: Usage | None = None
    metered: bool = True
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    error: str = ""
    error_after: int = 0
    status: int | None = None
    retry_after_s: float | None = None
    message: str = "scripted failure"
    cut_after: int | None = None
    hang_after: int | None = None
    obey_limit: bool = True
    malformed: bool = False
    times: int | None = None

    def __post_init__(self) -> None:
        if self.error and self.error not in (*ANSWERED, *UNANSWERED, "unreachable"):
            raise ValueError(f"unknown error {self.error!r}; known: {', '.join((*ANSWERED, *UNANSWERED, 'unreachable'))}")


class Script(Struct, frozen=True, kw_only=True):
    """Turns in order; the last one has no end. log: a file that gets one JSON line per event, empty = none."""

    turns: tuple[Turn, ...] = (Turn(),)
    log: str = ""


class Entry(Struct, omit_defaults=True):
    """One line of the log. event: asked | ended. outcome of an end: completed | failed | closed (the caller went away).

    input, output, reasoning: tokens, as they would be billed for what was really sent.
    """

    event: str
    id: str
    at: float  # Unix seconds
    model: str = ""
    stream: bool = False
    max_tokens: int | None = None
    last: str = ""  # text of the last message
    outcome: str = ""
    input: int = 0
    output: int = 0
    reasoning: int = 0
    error: str = ""


def parse(text: str) -> Script:
    """A script from TOML, from JSON (it begins with a brace), or from the file that `file:PATH` names; empty = the default turn.

    The top level is one turn; with `[[sequence]]` it holds what its turns have in common. Raises ValueError saying what is wrong.
    """
    if text.startswith("file:"):
        path = Path(text.removeprefix("file:"))
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise ValueError(f"the script {path} cannot be read: {error.strerror}") from error
        if len(raw) > MAX_SCRIPT_BYTES:
            raise ValueError(f"the script {path} is larger than {MAX_SCRIPT_BYTES} bytes")
        text = raw.decode()
    try:
        table: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any]) if text.lstrip().startswith("{") else tomllib.loads(text)
        log = table.pop("log", "")
        sequence = table.pop("sequence", None) or [{}]
        turns = tuple(msgspec.convert({**table, **turn}, Turn) for turn in sequence)
        return msgspec.convert({"turns": turns, "log": log}, Script)
    except (msgspec.MsgspecError, tomllib.TOMLDecodeError, TypeError) as error:
        raise ValueError(f"the script is not valid: {error}") from error


class ScriptedProvider:
    """Plays a script to all its callers; turns are counted per provider, so per worker process."""

    dialect = ""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.log: deque[Entry] = deque(maxlen=LOG_ENTRIES)
        self.calls = 0
        self._file = os.open(self.script.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if self.script.log else -1

    async def call(self, request: Request, target: Target, deadline: Deadline) -> AsyncGenerator[Frame, None]:
        """As Provider.call. The end is logged whatever it is, also when the caller closes this iterator."""
        turn = self._turn()
        self.calls += 1
        play = _Play(turn, request, target, deadline, f"scripted-{os.getpid():x}-{self.calls}")
        self._note(play.asked())
        outcome, failure = "closed", ""
        try:
            async with aclosing(play.vectors() if request.inputs else play.streamed() if request.stream else play.whole()) as frames:
                async for frame in frames:
                    last = frame.events[-1]
                    if type(last) is Failed:
                        failure = last.error.code
                    yield frame
            outcome = "failed" if failure else "completed"
        except ProviderError as error:
            outcome, failure = "failed", error.code
            raise
        finally:
            self._note(play.ended(outcome, failure))

    def _turn(self) -> Turn:
        left = self.calls
        for turn in self.script.turns:
            if turn.times is None or left < turn.times:
                return turn
            left -= turn.times
        return self.script.turns[-1]

    def _note(self, entry: Entry) -> None:
        self.log.append(entry)
        if self._file >= 0:  # one write() per line: whole lines from several processes, and nothing lost with a killed one
            os.write(self._file, msgspec.json.encode(entry) + b"\n")

    async def check(self) -> str | None:
        return None

    async def figures(self, within_s: float, most_bytes: int) -> Figures:
        raise NoFigures("a script has no queue")

    async def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _Play:
    """One call: what is to be said, and how much of it was."""

    def __init__(self, turn: Turn, request: Request, target: Target, deadline: Deadline, call_id: str) -> None:
        texts = _texts(request)
        self.turn = turn
        self.request = request
        self.target = target
        self.deadline = deadline
        self.id = call_id
        self.last = texts[-1] if texts else ""
        self.input = max(1, sum(len(text.split()) for text in texts))
        self.limit = target.max_tokens if target.max_tokens is not None else request.max_tokens
        self.pieces, self.full = self._pieces()
        self.thought = _tokens(turn.reasoning)
        self.sent = 0
        self.reasoned = 0
        self.began = asyncio.get_running_loop().time()

    def _pieces(self) -> tuple[list[str], bool]:
        """What will be said, and whether all of it fits the limit."""
        turn = self.turn
        text = turn.text if turn.text is not None else "" if turn.tool_calls else DEFAULT_TEXT
        pieces = _tokens(self.last if turn.echo else text)
        if turn.tokens is not None:
            pieces = [pieces[n % len(pieces)] for n in range(turn.tokens)] if pieces else []
        if turn.obey_limit and self.limit is not None and len(pieces) > self.limit:
            return pieces[: self.limit], False
        return pieces, True

    async def streamed(self) -> AsyncGenerator[Frame, None]:
        turn, choices = self.turn, range(self.request.n)
        await self._pause(turn.ttft_s, self.deadline.first_byte_s)
        self._refuse()
        yield Frame(events=[self._started()])
        for piece in self.thought:
            self.reasoned += 1
            yield Frame(events=[ReasoningDelta(piece, n) for n in choices])
            await self._pause(turn.tpot_s, self.deadline.idle_s)
        try:
            for n, piece in enumerate(self.pieces):
                if n:
                    await self._pause(turn.tpot_s, self.deadline.idle_s)
                await self._break(n)
                self.sent += 1
                yield Frame(events=[TextDelta(piece, n) for n in choices])
            await self._break(len(self.pieces))
        except ProviderError as error:
            yield Frame(events=[Failed(error)])
            return
        yield Frame(events=[*self._calls(pieces=2), *(Finished(self._reason(), n) for n in choices), *self._metered()])

    async def whole(self) -> AsyncGenerator[Frame, None]:
        turn, choices = self.turn, range(self.request.n)
        first_s = self.deadline.first_byte_s
        await self._pause(turn.ttft_s + turn.tpot_s * max(0, len(self.pieces) + len(self.thought) - 1), first_s)
        self._refuse()
        for n in range(len(self.pieces) + 1):
            await self._break(n)
        self.sent, self.reasoned = len(self.pieces), len(self.thought)
        said: list[Event] = [self._started()]
        for n in choices:
            said += [ReasoningDelta(turn.reasoning, n)] if turn.reasoning else []
            said += [TextDelta("".join(self.pieces), n)] if self.pieces else []
        yield Frame(events=[*said, *self._calls(pieces=1), *(Finished(self._reason(), n) for n in choices), *self._metered()], whole=True)

    async def vectors(self) -> AsyncGenerator[Frame, None]:
        """One unit vector per input, always the same for the same text. No tokens are said, so none is counted."""
        await self._pause(self.turn.ttft_s, self.deadline.first_byte_s)
        self._refuse()
        size = self.request.fields.get("dimensions")
        numbers = DIMENSIONS if size is None or bytes(size) == b"null" else msgspec.json.decode(size, type=int)
        found: list[Event] = [Vector(index, _vector(bytes(raw), numbers)) for index, raw in enumerate(self.request.inputs)]
        self.pieces = []
        yield Frame(events=[self._started(), *found, *self._metered(), Finished("stop")], whole=True)

    def _started(self) -> Started:
        return Started(id=self.id, model=self.target.model, created=int(time.time()))

    def _calls(self, pieces: int) -> list[Event]:
        events: list[Event] = []
        for choice in range(self.request.n):
            for index, call in enumerate(self.turn.tool_calls):
                half = len(call.arguments) // 2 if pieces > 1 else len(call.arguments)
                events.append(ToolCallDelta(index, call.arguments[:half], f"{self.id}-{choice}-{index}", call.name, choice))
                if call.arguments[half:]:
                    events.append(ToolCallDelta(index, call.arguments[half:], choice=choice))
        return events

    def _reason(self) -> str:
        return self.turn.finish or ("length" if not self.full else "tool_calls" if self.turn.tool_calls else "stop")

    def _metered(self) -> list[Event]:
        return [Metered(self.turn.usage or self._usage())] if self.turn.metered else []

    def _usage(self) -> Usage:
        calls = sum(1 + len(call.arguments.split()) for call in self.turn.tool_calls)
        return Usage(input=self.input, output=(self.sent + calls) * self.request.n, reasoning=self.reasoned * self.request.n)

    async def _pause(self, seconds: float, limit_s: float) -> None:
        """Wait, or fail at the limit that comes first, as a client of a real backend would."""
        left_s = self.began + self.deadline.total_s - asyncio.get_running_loop().time()
        most_s = min(limit_s, left_s)
        if seconds > most_s:
            await asyncio.sleep(max(0.0, most_s))
            raise TimedOut(f"the scripted backend said nothing for {most_s:.3g} s")
        await asyncio.sleep(seconds)

    def _refuse(self) -> None:
        """Fail before anything is said."""
        turn = self.turn
        if turn.malformed:
            raise BadAnswer("the scripted backend answered nonsense")
        if turn.error and turn.error_after == 0:
            raise self._error()

    async def _break(self, n: int) -> None:
        """Fail, end or fall silent when n tokens were said and the script says so."""
        turn = self.turn
        if turn.error and turn.error_after and n == turn.error_after:
            raise self._error()
        if n == turn.cut_after:
            raise Cut("the scripted backend ended its stream early")
        if n == turn.hang_after:
            await self._pause(float("inf"), self.deadline.idle_s if n else self.deadline.first_byte_s)

    def _error(self) -> ProviderError:
        turn = self.turn
        if turn.error == "unreachable":
            return Unreachable(turn.message, retry_after_s=turn.retry_after_s)
        kinds: Callable[..., ProviderError] = ANSWERED.get(turn.error) or UNANSWERED[turn.error]
        answered = turn.error in ANSWERED and not self.sent
        return kinds(turn.message, status=turn.status, answered=answered, retry_after_s=turn.retry_after_s)

    def asked(self) -> Entry:
        return Entry(
            event="asked",
            id=self.id,
            at=time.time(),
            model=self.target.model,
            stream=self.request.stream,
            max_tokens=self.limit,
            last=self.last,
        )

    def ended(self, outcome: str, error: str) -> Entry:
        usage = self._usage() if outcome == "completed" else Usage(input=self.input, output=self.sent * self.request.n)
        reasoning = self.reasoned * self.request.n
        return Entry(
            "ended", self.id, time.time(), outcome=outcome, input=usage.input, output=usage.output, reasoning=reasoning, error=error
        )


def _vector(text: bytes, numbers: int) -> str:
    """JSON of `numbers` floats of length one together, drawn from a hash of the text."""
    drawn = hashlib.shake_128(text).digest(2 * numbers)
    values = [int.from_bytes(drawn[2 * n : 2 * n + 2], "big") / 32768 - 1 for n in range(numbers)]
    length = math.sqrt(sum(value * value for value in values)) or 1.0
    return msgspec.json.encode([round(value / length, 9) for value in values]).decode()


def _tokens(text: str) -> list[str]:
    return re.findall(r"\S+\s*|^\s+", text)


def _texts(request: Request) -> Sequence[str]:
    """The text of each message."""
    texts = []
    for message in DIALECTS[request.dialect].messages(request):
        content = message.content
        if isinstance(content, str):
            texts.append(content)
        elif content is not None:
            texts.append(" ".join(part.text for part in content if isinstance(part, Text)))
    return texts
