"""Open requests as the engine's server keeps them: a stream for each choice, with what is held back. Knows no thread and no step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from local_engine.transport import Connection
from local_engine.wire import Logged, Params, Submit

if TYPE_CHECKING:  # the server answers before torch is there
    from local_engine.detokenizer import TextStream
    from local_engine.grammar import Matcher
    from local_engine.sampling import Pick

MAX_SEED = 2**64
SEED_STEP = 0xD1342543DE82EF95  # between the seeds of a request's choices: odd, so that they differ


class Stream:
    """One choice of an open request. `prompt`, `text` and `matcher` are set by an encoding thread before the engine knows it.

    family: all choices of the request. Those after the first join the engine when the first has its first token, so that they find its
    prompt computed.
    """

    __slots__ = ("cancelled", "choice", "connection", "family", "held", "id", "log", "matcher", "output_tokens", "prompt", "submit", "text")

    def __init__(self, key: int, connection: Connection, submit: Submit, family: list[Stream]) -> None:
        self.id = key  # the engine's; the client's is submit.id
        self.connection = connection
        self.submit = submit
        self.family = family
        self.choice = len(family)
        self.prompt: list[int] = []
        self.text: TextStream | None = None
        self.matcher: Matcher | None = None
        self.log: TokenLog | None = None
        self.held: list[int] = []  # ids whose text is not out yet
        self.output_tokens = 0
        self.cancelled = False

    @property
    def params(self) -> Params:
        """Its own: every choice draws by a seed of its own."""
        params = self.submit.params
        if self.choice == 0 or params.seed is None:
            return params
        return replace(params, seed=(params.seed + self.choice * SEED_STEP) % MAX_SEED)


class TokenLog:
    """Log probabilities on their way out with the text of their tokens; behind a stop string they stay inside as it does."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._waiting: list[Logged] = []
        self._told_bytes = 0
        self._shown_bytes = 0

    def add(self, pick: Pick) -> None:
        top = [(self._bytes_of(token), logprob) for token, logprob in pick.top]
        self._waiting.append(Logged(self._bytes_of(pick.token), pick.logprob or 0.0, top))

    def take(self, text: str, stopped: bool) -> list[Logged]:
        """Of the tokens so far, now that this text goes out."""
        self._shown_bytes += len(text.encode())
        taken, self._waiting = self._waiting, []
        if not stopped:
            self._told_bytes += sum(len(one.token) for one in taken)
            return taken
        found = []
        for one in taken:
            if self._told_bytes < self._shown_bytes:
                found.append(one)
            self._told_bytes += len(one.token)
        return found
