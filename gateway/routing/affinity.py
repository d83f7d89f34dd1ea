"""What does a hosted vendor's prompt cache hold of a prompt? Remembered from what was answered there, by the names of prefixes.py.

A vendor keeps a prompt for minutes after its last use and reads for less what a longer prompt has in common with it, or some of it: which
share it really read is learnt per route. Bounded, the longest unused is forgotten first. Knows no prompt and no price; the clock
(monotonic seconds) is passed in.
"""

from __future__ import annotations

from collections import OrderedDict

from gateway.catalog import Backend
from gateway.routing.features import Features
from gateway.routing.prefixes import Prefix

LEAST_TOKENS = 1024  # vendors keep no shorter prompt
REMEMBERED = 8192  # blocks per backend
COMMON = 16  # of a block that so many requests had in common: a system prompt rather than a conversation
PRIOR_SHARE = 0.8  # of what it holds a vendor reads for less, until it was seen; it weighs as one answer
MEMORY = 0.05  # least weight of the newest answer
ROUTES_MOST = 1000
ASKED_FOR = frozenset({"anthropic_messages", "bedrock_converse"})  # languages in which nothing is kept that is not marked for it


def keeps_prompts(backend: Backend) -> bool:
    """Whether what it has read before may matter: for the time on an engine of one's own, for the price elsewhere."""
    price = backend.price
    return backend.own or (price is not None and price.cache_read is not None)


def cached_tokens(held_tokens: int, hit_ppm: int) -> int:
    """What is expected to be read for less; also used to check a stored decision."""
    return held_tokens * hit_ppm // 1_000_000


Block = tuple[float, int]  # when last answered, and how many requests had it without a pause longer than the cache's life


class PromptCache:
    """Of one hosted backend."""

    __slots__ = ("_shares", "keep_s", "known")

    def __init__(self, keep_s: float) -> None:
        self.keep_s = keep_s  # from the last use
        self.known: OrderedDict[int, Block] = OrderedDict()
        self._shares: dict[str, tuple[float, int]] = {}  # by route: mean share, answers behind it

    def held_tokens(self, features: Features, common: int, now: float) -> int:
        """Prompt tokens that it holds of this request. common: blocks that count as held wherever they were answered, see `common`."""
        blocks = self._leading(features.prefix, now, 1)
        blocks = max(blocks, common)
        tokens = min(blocks * features.block_tokens, features.input_tokens)
        return tokens if tokens >= LEAST_TOKENS else 0

    def common(self, prefix: Prefix, now: float) -> int:
        """Leading blocks that so many requests share that any backend holds them after its first: no reason to stay with this one."""
        return self._leading(prefix, now, COMMON)

    def answered(self, prefix: Prefix, now: float) -> None:
        """A prompt was read there."""
        known = self.known
        for name in reversed(prefix):  # a block is never younger than those before it, so that `_leading` may search by halves
            before = known.get(name)
            known[name] = (now, 1 if before is None or before[0] < now - self.keep_s else before[1] + 1)
            known.move_to_end(name)
        while len(known) > REMEMBERED:
            known.popitem(last=False)

    def share_ppm(self, route: str) -> int:
        """Of what it holds, the share that is read for less, in millionths."""
        found = self._shares.get(route)
        return int(1_000_000 * (PRIOR_SHARE if found is None else found[0]))

    def learn(self, route: str, held_tokens: int, read_tokens: int) -> None:
        """An answer tells how much was read for less, of what was expected to be held."""
        if held_tokens <= 0 or (route not in self._shares and len(self._shares) >= ROUTES_MOST):
            return
        mean, count = self._shares.get(route, (PRIOR_SHARE, 1))
        mean += max(MEMORY, 1.0 / (count + 1)) * (min(1.0, read_tokens / held_tokens) - mean)
        self._shares[route] = mean, count + 1

    def _leading(self, prefix: Prefix, now: float, requests: int) -> int:
        """How many blocks from the start are held and have been answered to so many requests."""
        known, since = self.known, now - self.keep_s
        first = known.get(prefix[0]) if prefix else None
        if first is None or first[0] < since or first[1] < requests:
            return 0
        low, high = 1, len(prefix)
        while low < high:
            middle = (low + high + 1) // 2
            block = known.get(prefix[middle - 1])
            if block is None or block[0] < since or block[1] < requests:
                high = middle - 1
            else:
                low = middle
        return low
