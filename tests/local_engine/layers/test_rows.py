"""The compiled attention of single rows: that it is right is test_attention's; here, what it promises beside."""

from __future__ import annotations

import torch

from local_engine.layers.attention import Layout, attend, rows_kernel
from tests.local_engine.layers.test_attention import Case, make


def alone(case: Case, row: int) -> Case:
    block, offset = case.layout.places
    one = slice(row, row + 1)
    layout = Layout((block[one], offset[one]), case.layout.tables[one].contiguous(), case.layout.lengths[one], [])
    return case._replace(turned=case.turned[one], mixed=case.mixed[one], layout=layout)


def test_a_row_is_the_same_bits_whoever_shares_the_batch() -> None:
    case = make([5, 100, 33, 1, 64], [1] * 5, 4, 2)
    rows = rows_kernel(2, 16, case.cache)
    assert rows is not None
    together = attend(case.turned, case.mixed, case.cache, case.layout, rows)
    for row in range(5):
        single = alone(case, row)
        assert torch.equal(attend(single.turned, single.mixed, case.cache, single.layout, rows)[0], together[row])


def test_scores_far_apart_neither_overflow_nor_vanish() -> None:
    case = make([40], [1], 4, 2)
    rows = rows_kernel(2, 16, case.cache)
    strong = case._replace(turned=torch.cat((case.turned[:, :4] * 1e4, case.turned[:, 4:]), 1))
    torch.testing.assert_close(
        attend(strong.turned, strong.mixed, strong.cache, strong.layout, rows),
        attend(strong.turned, strong.mixed, strong.cache, strong.layout),
    )


def test_it_serves_only_what_it_was_made_for() -> None:
    like = torch.zeros(1)
    assert rows_kernel(2, 16, like.bfloat16()) is None
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(64)
        assert rows_kernel(2, 16, like) is None
    finally:
        torch.set_num_threads(threads)
