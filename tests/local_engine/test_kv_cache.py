from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.kv_cache import BLOCK_TOKENS, KvPool, Table, blocks_of

B = BLOCK_TOKENS


def computed(pool: KvPool, tokens: list[int], salt: str = "") -> Table:
    """A table whose tokens are all computed."""
    table = Table(salt)
    pool.match(table, tokens)
    assert pool.grow(table, len(tokens))
    pool.commit(table, tokens, len(tokens))
    return table


def test_the_cap_holds_and_a_refusal_changes_nothing() -> None:
    pool = KvPool(4, 100)
    assert (pool.capacity_tokens, pool.cap_bytes) == (4 * B, 400)
    first, second = Table(""), Table("")
    assert pool.grow(first, 2 * B + 1)
    assert not pool.grow(second, B + 1)
    assert (len(first.blocks), second.blocks, pool.used_bytes) == (3, [], 300)
    assert pool.grow(second, B)
    assert not pool.grow(first, 3 * B + 1)
    pool.release(second, "")
    assert pool.grow(first, 3 * B + 1)
    pool.check([first, second])
    pool.release(first, "")
    assert pool.used_blocks == 0
    pool.check()


@pytest.mark.parametrize(("shared", "hit"), [(0, 0), (B - 1, 0), (B, B), (B + 1, B), (2 * B, 2 * B), (2 * B + 1, 2 * B)])
def test_full_leading_blocks_are_shared_while_they_live_and_afterwards(shared: int, hit: int) -> None:
    pool = KvPool(20, 1)
    tokens = list(range(3 * B))
    other = tokens[:shared] + [1000 + i for i in range(3 * B - shared)]
    first = computed(pool, tokens)
    second = Table("")
    assert pool.match(second, other) == hit
    assert second.blocks == first.blocks[: hit // B]
    assert pool.shared_blocks == hit // B, "each block once, however many hold it"
    third = Table("")
    pool.match(third, other)
    assert pool.shared_blocks == hit // B
    pool.check([first, second, third])
    pool.release(third, "")
    pool.release(second, "")
    assert pool.shared_blocks == 0
    pool.release(first, "")
    assert pool.match(second, other) == hit  # known, though nobody holds them
    pool.release(second, "")
    pool.check()


def test_the_last_token_is_always_left_to_compute() -> None:
    pool = KvPool(20, 1)
    tokens = list(range(2 * B))
    computed(pool, tokens)
    assert pool.match(Table(""), tokens) == B
    assert pool.match(Table(""), tokens[:1]) == 0


def test_tenants_share_nothing_and_a_block_counts_with_all_before_it() -> None:
    pool = KvPool(20, 1)
    tokens = list(range(2 * B))
    computed(pool, [*tokens, 0], "a")
    assert pool.match(Table("b"), [*tokens, 0]) == 0
    assert pool.match(Table("a"), [*tokens, 0]) == 2 * B
    assert pool.match(Table("a"), [*tokens[B:], *tokens[B:], 0]) == 0  # the second block's tokens, but first
    assert pool.match(Table("a"), [*tokens[:B], *tokens[:B], 0]) == B


def test_the_longest_unused_goes_first_and_ends_before_beginnings() -> None:
    pool = KvPool(4, 1)
    old, new = [1] * 2 * B, [2] * 2 * B
    for tokens in (old, new):
        pool.release(computed(pool, tokens), "")
    wanted = Table("")
    assert pool.grow(wanted, B)  # takes the end of the old one
    for tokens, hit in ((old, B), (new, 2 * B)):
        probe = Table("")
        assert pool.match(probe, [*tokens, 0]) == hit
        pool.release(probe, "")
    pool.check([wanted])


def test_a_reused_block_is_not_found_by_what_it_held() -> None:
    pool = KvPool(2, 1)
    pool.release(computed(pool, [1] * 2 * B), "")
    pool.release(computed(pool, [2] * 2 * B), "")
    assert pool.match(Table(""), [1] * 3 * B) == 0
    assert pool.match(Table(""), [*[2] * 2 * B, 0]) == 2 * B


def test_two_that_compute_the_same_at_once_keep_their_own_blocks() -> None:
    pool = KvPool(10, 1)
    tokens = [7] * (2 * B)
    first, second = Table(""), Table("")
    for table in (first, second):
        assert pool.grow(table, 2 * B)
    pool.commit(first, tokens, B)
    pool.commit(second, tokens, 2 * B)  # its second block is the first of its kind
    pool.commit(first, tokens, 2 * B)
    assert not set(first.blocks) & set(second.blocks)
    third = Table("")
    assert pool.match(third, [*tokens, 0]) == 2 * B
    assert third.blocks == [first.blocks[0], second.blocks[1]]
    pool.check([first, second, third])
    for table in (first, second, third):
        pool.release(table, "")
    pool.check()


def test_the_check_sees_a_leak_and_a_foreign_block() -> None:
    pool = KvPool(4, 1)
    table = computed(pool, [1] * B)
    with pytest.raises(AssertionError, match="references"):
        pool.check()
    stranger = Table("")
    stranger.blocks.append(3)
    with pytest.raises(AssertionError, match="block 3"):
        pool.check([table, stranger])


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["begin", "extend", "end"]), st.integers(0, 4), st.integers(0, 3), st.integers(1, 3 * B)), max_size=60
)


class Contents:
    """A pool whose blocks remember what was written into them last: whose it is, and all the tokens up to the block's end."""

    def __init__(self) -> None:
        self.pool = KvPool(9, 1)
        self.tables: dict[int, tuple[Table, str, list[int]]] = {}
        self.written: dict[int, tuple[str, tuple[int, ...]]] = {}

    def begin(self, key: int, flavour: int, count: int) -> None:
        salt, tokens, table = str(flavour % 2), [flavour // 2] * count, Table(str(flavour % 2))
        past = self.pool.match(table, tokens)
        assert past < len(tokens)
        if self.pool.grow(table, len(tokens)):
            self.tables[key] = (table, salt, tokens)
            self._write(key, past)
        else:
            self.pool.release(table, salt)

    def extend(self, key: int, flavour: int, count: int) -> None:
        table, _, tokens = self.tables[key]
        if self.pool.grow(table, len(tokens) + count):
            past = len(tokens)
            tokens += [flavour // 2] * count
            self._write(key, past)

    def end(self, key: int) -> None:
        table, salt, _ = self.tables.pop(key)
        self.pool.release(table, salt)

    def check(self) -> None:
        self.pool.check(table for table, _, _ in self.tables.values())
        for table, salt, tokens in self.tables.values():
            wanted = [(salt, tuple(tokens[: (i + 1) * B])) for i in range(len(table.blocks))]
            assert [self.written[block] for block in table.blocks] == wanted

    def _write(self, key: int, past: int) -> None:
        table, salt, tokens = self.tables[key]
        for index in range(past // B, blocks_of(len(tokens))):
            self.written[table.blocks[index]] = (salt, tuple(tokens[: (index + 1) * B]))
        self.pool.commit(table, tokens, len(tokens))


@given(ACTIONS)
@settings(max_examples=60, deadline=None)
def test_whatever_happens_blocks_hold_the_tokens_of_those_who_hold_them(actions: list[tuple[str, int, int, int]]) -> None:
    contents = Contents()
    for action, key, flavour, count in actions:
        open_ = key in contents.tables
        if action == "begin" and not open_:
            contents.begin(key, flavour, count)
        elif action == "extend" and open_:
            contents.extend(key, flavour, count)
        elif action == "end" and open_:
            contents.end(key)
        contents.check()
    for key in list(contents.tables):
        contents.end(key)
    contents.check()
    assert contents.pool.free_blocks == 9
