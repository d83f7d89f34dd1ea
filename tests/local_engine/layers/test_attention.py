"""Paged attention against its definition: sequences that lie scattered in the cache, single rows and chunks in one step."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch

from local_engine.layers.attention import Chunk, Layout, attend

BLOCKS, BLOCK_TOKENS, HEAD = 40, 16, 16


class Case(NamedTuple):
    """Sequences of `lengths` tokens, of which the newest `fresh` are rows of the step; keys and values are all known here."""

    cache: torch.Tensor
    keys: list[torch.Tensor]  # [length, kv_heads, head_dim]
    values: list[torch.Tensor]
    turned: torch.Tensor
    mixed: torch.Tensor
    layout: Layout


def make(lengths: list[int], fresh: list[int], heads: int, kv_heads: int) -> Case:
    generator = torch.Generator().manual_seed(5)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    cache = random(BLOCKS, kv_heads, 2, BLOCK_TOKENS, HEAD) * 100  # what lies where nothing was written must not count
    free = torch.randperm(BLOCKS, generator=generator).tolist()
    keys, values, tables, rows, places, chunks = [], [], [], [], [], []
    for length, new in zip(lengths, fresh, strict=True):
        k, v = random(length, kv_heads, HEAD), random(length, kv_heads, HEAD)
        table = [free.pop() for _ in range(-(-length // BLOCK_TOKENS))]
        for place in range(length):
            block, offset = table[place // BLOCK_TOKENS], place % BLOCK_TOKENS
            if place < length - new:
                cache[block, :, 0, offset], cache[block, :, 1, offset] = k[place], v[place]
            else:
                places.append((block, offset))
        if new > 1:
            start = sum(map(len, rows))
            chunks.append(Chunk(start, start + new, torch.tensor(table), length))
        keys.append(k)
        values.append(v)
        tables.append(table)
        rows.append([(k[place], v[place]) for place in range(length - new, length)])
    flat = [pair for some in rows for pair in some]
    turned = torch.cat((random(len(flat), heads, HEAD), torch.stack([k for k, _ in flat])), 1)
    mixed = torch.cat((random(len(flat), heads + kv_heads, HEAD), torch.stack([v for _, v in flat])), 1)
    singles = fresh.count(1)
    longest = max(map(len, tables[:singles]), default=0)
    padded = torch.tensor([table + [0] * (longest - len(table)) for table in tables[:singles]], dtype=torch.int32).view(singles, longest)
    both = (torch.tensor([block for block, _ in places]), torch.tensor([offset for _, offset in places]))
    layout = Layout(both, padded, torch.tensor(lengths[:singles], dtype=torch.int32), chunks)
    return Case(cache, keys, values, turned, mixed, layout)


def definition(case: Case, lengths: list[int], fresh: list[int], heads: int) -> torch.Tensor:
    """softmax(q k / sqrt(d)) v in f64, one query and head after the other."""
    out, row = [], 0
    for length, new, keys, values in zip(lengths, fresh, case.keys, case.values, strict=True):
        for place in range(length - new, length):
            for head in range(heads):
                own = head * keys.shape[1] // heads
                q, k, v = (t.double() for t in (case.turned[row, head], keys[: place + 1, own], values[: place + 1, own]))
                out.append(torch.softmax(k @ q / math.sqrt(HEAD), 0) @ v)
            row += 1
    return torch.stack(out).view(row, heads * HEAD)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 2), (2, 2)])
@pytest.mark.parametrize(
    ("lengths", "fresh"),
    [([1], [1]), ([16, 17, 3], [1, 1, 1]), ([70, 5, 40, 40, 33], [1, 1, 40, 7, 33]), ([30], [2])],
    ids=["the first token", "single rows", "single rows and chunks", "a chunk alone"],
)
def test_it_is_the_definition_wherever_tokens_lie(lengths: list[int], fresh: list[int], heads: int, kv_heads: int) -> None:
    case = make(lengths, fresh, heads, kv_heads)
    wanted = definition(case, lengths, fresh, heads)
    for _ in range(2):  # what it wrote itself is the same as what it found
        torch.testing.assert_close(attend(case.turned, case.mixed, case.cache, case.layout).double(), wanted, rtol=1e-5, atol=1e-5)
