"""Who holds which block of keys and values: reference counts, full blocks found again by their tokens, the oldest free one reused first.

A block is found by (the block before it, its own tokens), compared token by token; the first one by its tenant's salt, so that nothing
is shared across tenants. Counts blocks; the tensor they number belongs to the model runner.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

BLOCK_TOKENS = 16

Parent = str | int  # a tenant's salt, or the serial of the block before


class Table:
    """The blocks of one sequence in order, and how far they are known by their tokens."""

    __slots__ = ("blocks", "known", "parent")

    def __init__(self, salt: str) -> None:
        self.blocks: list[int] = []
        self.known = 0  # leading blocks that `commit` has seen
        self.parent: Parent = salt  # of the next block to become known


class KvPool:
    """`blocks` blocks of `block_bytes` each: the hard cap. Every block is in use, free with known tokens, or free and blank."""

    def __init__(self, blocks: int, block_bytes: int) -> None:
        self.blocks = blocks
        self.block_bytes = block_bytes
        self.shared_blocks = 0  # held by more than one sequence
        self._references = [0] * blocks
        self._blank = list(range(blocks - 1, -1, -1))  # a stack, so that low numbers are used first and memory is touched late
        self._known: dict[tuple[Parent, tuple[int, ...]], int] = {}
        self._keys: dict[int, tuple[Parent, tuple[int, ...]]] = {}  # block -> its key in `_known`
        self._serials: dict[int, int] = {}  # of known blocks; never used twice, so that a reused block finds no stale children
        self._next_serial = 0
        self._idle: OrderedDict[int, None] = OrderedDict()  # known and free, the longest unused first

    @property
    def capacity_tokens(self) -> int:
        """The longest sequence that fits when it is alone."""
        return self.blocks * BLOCK_TOKENS

    @property
    def free_blocks(self) -> int:
        return len(self._blank) + len(self._idle)

    @property
    def used_blocks(self) -> int:
        return self.blocks - self.free_blocks

    @property
    def used_bytes(self) -> int:
        return self.used_blocks * self.block_bytes

    @property
    def cap_bytes(self) -> int:
        return self.blocks * self.block_bytes

    def match(self, table: Table, tokens: Sequence[int]) -> int:
        """Take the known leading blocks of `tokens` into an empty table; how many tokens they hold. At least one token is left out."""
        for start in range(0, len(tokens) - BLOCK_TOKENS, BLOCK_TOKENS):
            block = self._known.get((table.parent, tuple(tokens[start : start + BLOCK_TOKENS])))
            if block is None:
                break
            if self._references[block] == 0:
                del self._idle[block]
            self._references[block] += 1
            self.shared_blocks += self._references[block] == 2
            table.blocks.append(block)
            table.parent = self._serials[block]
        table.known = len(table.blocks)
        return table.known * BLOCK_TOKENS

    def grow(self, table: Table, tokens: int) -> bool:
        """Room for `tokens` in all; False when too few blocks are free, and nothing has changed then."""
        more = blocks_of(tokens) - len(table.blocks)
        if more > self.free_blocks:
            return False
        for _ in range(more):
            table.blocks.append(self._take())
        return True

    def commit(self, table: Table, tokens: Sequence[int], computed: int) -> None:
        """The first `computed` of `tokens` have their keys and values: full blocks can be found from now on."""
        while (table.known + 1) * BLOCK_TOKENS <= computed:
            start = table.known * BLOCK_TOKENS
            key = (table.parent, tuple(tokens[start : start + BLOCK_TOKENS]))
            known = self._known.get(key)
            if known is None:  # else another sequence computed the same tokens at the same time: ours stays blank, its children are shared
                known = table.blocks[table.known]
                self._known[key] = known
                self._keys[known] = key
                self._serials[known] = self._next_serial
                self._next_serial += 1
            table.parent = self._serials[known]
            table.known += 1

    def release(self, table: Table, salt: str) -> None:
        """Give back all blocks; the table is a new one of `salt` then. Ends go first, so that they are reused before beginnings."""
        for block in reversed(table.blocks):
            self._references[block] -= 1
            if self._references[block] == 1:
                self.shared_blocks -= 1
            elif self._references[block] == 0:
                if block in self._keys:
                    self._idle[block] = None
                else:
                    self._blank.append(block)
        table.blocks = []
        table.known = 0
        table.parent = salt

    def check(self, tables: Iterable[Table] = ()) -> None:
        """Every block is held as often as the tables say and is in one place; an AssertionError otherwise. For idle moments and tests."""
        held = Counter(block for table in tables for block in table.blocks)
        if self.shared_blocks != sum(times > 1 for times in held.values()):
            raise AssertionError(f"{self.shared_blocks} blocks count as shared")
        places = Counter(self._blank)
        places.update(self._idle.keys())
        for block, references in enumerate(self._references):
            if references != held[block] or places[block] != (references == 0):
                raise AssertionError(f"block {block}: {references} references, held {held[block]} times, free {places[block]} times")
        if any(self._known[key] != block for block, key in self._keys.items()) or len(self._keys) != len(self._known):
            raise AssertionError("a known block cannot be found by its tokens")
        if not self._idle.keys() <= self._keys.keys() == self._serials.keys() or not self._keys.keys().isdisjoint(self._blank):
            raise AssertionError("a block is free in the wrong place")

    def _take(self) -> int:
        if self._blank:
            block = self._blank.pop()
        else:
            block, _ = self._idle.popitem(last=False)
            del self._known[self._keys.pop(block)], self._serials[block]
        self._references[block] = 1
        return block


def blocks_of(tokens: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)
