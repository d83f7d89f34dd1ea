"""What does a hosted vendor's prompt cache hold of a prompt? Remembered from what was answered there, by the names of prefixes.py.

A vendor keeps a prompt for minutes after its last use and reads for less what a longer prompt has in common with it, or some of it: which
share it really read is learnt per route. Bounded, the longest unused is forgotten first. Knows no prompt and no price; the clock
(monotonic seconds) is passed in.

What one backend holds another would hold from its first such request on, and as many more are to be expected as there have been: one after
the first of a conversation, hundreds of a busy route's system prompt, which else would keep all traffic where it happens to be held.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gateway.catalog import Backend
from gateway.routing.features import Features
from gateway.routing.prefixes import Prefix

LEAST_TOKENS = 1024  # vendors keep no shorter prompt
REMEMBERED = 8192  # blocks per backend
PRIOR_SHARE = 0.8  # of what it holds a vendor reads for less, until it was seen; it weighs as one answer
MEMORY = 0.05  # least weight of the newest answer
ROUTES_MOST = 1000
ASKED_FOR = frozenset({"anthropic_messages", "bedrock_converse"})  # languages in which nothing is kept that is not marked for it


def keeps_prompts(backend: Backend) -> bool:
    """Whether what it has read before may matter: for the time on an engine of one's own, for the price elsewhere."""
    price = backend.price
    return backend.own or (price is not None and price.cache_read is not None)


def cached_tokens(held_tokens: int, soon_tokens: int, hit_ppm: int) -> int:
    """What is expected to be read for less; also used to check a stored decision."""
    return (held_tokens + soon_tokens) * hit_ppm // 1_000_000


Soon = Sequence[int]
Block = tuple[float, int]  # when last answered, and how many requests had it without a pause longer than the cache's life


class PromptCache:
    """Of one hosted backend."""

    __slots__ = ("_shares", "keep_s", "known")

    def __init__(self, keep_s: float) -> None:
        self.keep_s = keep_s  # from the last use
        self.known: OrderedDict[int, Block] = OrderedDict()
        self._shares: dict[str, tuple[float, int]] = {}  # by route: mean share, answers behind it

    def held(self, prefix: Prefix, now: float) -> int:
        """How many blocks from the start it holds."""
        known, since = self.known, now - self.keep_s
        first = known.get(prefix[0]) if prefix else None
        if first is None or first[0] < since:
            return 0
        low, high = 1, len(prefix)
        while low < high:
            middle = (low + high + 1) // 2
            block = known.get(prefix[middle - 1])
            if block is None or block[0] < since:
                high = middle - 1
            else:
                low = middle
        return low

    def held_tokens(self, features: Features, now: float) -> int:
        """Prompt tokens that it holds of this request."""
        tokens = min(self.held(features.prefix, now) * features.block_tokens, features.input_tokens)
        return tokens if tokens >= LEAST_TOKENS else 0

    def answered(self, prefix: Prefix, now: float) -> None:
        """A prompt was read there."""
        known = self.known
        for name in reversed(prefix):  # a block is never younger than those before it, so that `held` may search by halves
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


def soon(features: Features, caches: Sequence[PromptCache], now: float) -> Soon:
    """For a backend that holds so many blocks of this prompt: tokens of those that only others hold, each by the odds of a later request to
    find it there too, over this one and those. Empty where nobody holds any."""
    most, holder = 0, None
    for cache in caches:
        blocks = cache.held(features.prefix, now)
        if blocks > most:
            most, holder = blocks, cache
    if holder is None or min(most * features.block_tokens, features.input_tokens) < LEAST_TOKENS:
        return ()
    lent = [0] * (most + 1)
    for place in range(most - 1, -1, -1):
        requests = holder.known[features.prefix[place]][1]
        lent[place] = lent[place + 1] + 1000 * features.block_tokens * requests // (requests + 1)
    return [thousandths // 1000 for thousandths in lent]
