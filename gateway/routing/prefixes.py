"""Which beginnings of prompts does an engine's prefix cache hold? Remembered from what was sent there, by chained names of blocks.

A name stands for all that comes before it too, so that the first unknown block ends what is cached. Names are those of one worker and
of one tenant: engines salt their caches per tenant. Bounded, the longest unused are forgotten first. Knows no prompt.
"""

from __future__ import annotations

from collections import OrderedDict

BLOCK_BYTES = 2048  # of a request's prompt as it was written
BLOCK_TOKENS = 512
BLOCKS_MOST = 256  # of one prompt; what comes after is not looked at
REMEMBERED = 8192  # blocks per backend

Prefix = tuple[int, ...]


def names(tenant: int, prompt: bytes) -> Prefix:
    """The chained names of the whole blocks of a request's prompt."""
    found = []
    name = hash(tenant)
    for begin in range(0, min(len(prompt) - BLOCK_BYTES, BLOCKS_MOST * BLOCK_BYTES) + 1, BLOCK_BYTES):
        name = hash((name, prompt[begin : begin + BLOCK_BYTES]))
        found.append(name)
    return tuple(found)


class Prefixes:
    """Of one backend."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, prefix: Prefix, input_tokens: int) -> int:
        """Prompt tokens that are expected to be there; the last block is always computed anew."""
        blocks = 0
        for name in prefix:
            if name not in self._known:
                break
            blocks += 1
        return max(0, min(blocks * BLOCK_TOKENS, input_tokens - BLOCK_TOKENS))

    def sent(self, prefix: Prefix) -> None:
        """A prompt went there."""
        known = self._known
        for name in reversed(prefix):  # the first blocks are shared by most: they are forgotten last
            known[name] = None
            known.move_to_end(name)
        while len(known) > REMEMBERED:
            known.popitem(last=False)
