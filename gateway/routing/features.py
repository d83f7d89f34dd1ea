"""What the choice may know of a request: plain numbers and names, no message, no team and no wire format."""

from __future__ import annotations

from msgspec import Struct

from gateway.labels import Labels
from gateway.routing.decision import Quality

PRIORITIES = {"low": -1, "normal": 0, "high": 1}  # by the words of x-tollway-priority
RELAXED_DEADLINE_MS = 30_000.0  # without token objectives, a deadline this far away leaves room to explore


class Features(Struct, frozen=True, kw_only=True):
    """One request as routing sees it.

    input_tokens: expected; input_tokens_upper: a true bound. expected_output_tokens: of all choices together.
    allowed: the key's allow-list of route and upstream model names, None = everything. labels: the backend must carry each of them.
    budgeted: the key has a budget, so a backend without a price is out. ttft_ms, tpot_ms, deadline_ms: the route's objectives or the
    request's own, None = no such objective.
    """

    route: str
    dialect: str
    input_tokens: int
    input_tokens_upper: int
    expected_output_tokens: int
    output_high_tokens: int | None = None  # nine of ten answers are no longer, None = the expected; a deadline is judged by it
    max_tokens: int | None = None
    prefix: tuple[int, ...] = ()  # names of the blocks of its prompt, see prefixes.py; empty where it is short or no cache could matter
    block_tokens: int = 0  # expected of each of them
    marked: bool = False  # it says which parts of its prompt are to be kept
    stream: bool = False
    needs: frozenset[str] = frozenset()
    asks: frozenset[str] = frozenset()  # parameters that not every model takes, set to something
    unknown: tuple[str, ...] = ()
    allowed: frozenset[str] | None = None
    labels: Labels = ()
    budgeted: bool = False
    team: int = 0
    priority: int = 0  # -1 low: yields where a backend is contended, and is refused where nobody would be in time; 1 high: keeps its place
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    deadline_ms: float | None = None
    quality: Quality | None = None  # where the route has weak backends: whether this prompt needs another
