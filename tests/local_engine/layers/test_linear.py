"""Products in every precision against plain arithmetic in f64; int8 rows are the same bits whoever shares the batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.layers import linear as module
from local_engine.layers.linear import Int8Linear, Linear, Quantised, join, linear, quantise


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_quantised_weight_is_within_half_a_step_of_itself() -> None:
    weight = random(40, 30) * torch.logspace(-3, 2, 40)[:, None]
    weight[7] = 0
    values, scales = quantise(weight)
    assert (values.dtype, values.abs().max().item()) == (torch.int8, 127)
    error = (values * scales[:, None] - weight).abs() / scales[:, None]
    assert error.max() <= 0.5001
    assert (values[7] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
def test_plain_products(dtype: torch.dtype, biased: bool) -> None:
    weight, bias, x = (random(*shape, seed=len(shape)).to(dtype) for shape in ((48, 32), (48,), (5, 32)))
    out = linear(weight, bias if biased else None)(x)
    wanted = x.double() @ weight.double().T + (bias.double() if biased else 0)
    assert out.dtype == dtype
    torch.testing.assert_close(
        out.double(), wanted, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=5e-2 if dtype == torch.bfloat16 else 1e-4
    )


@pytest.mark.parametrize("kind", ["the processor's", "_OneDnn"])
@pytest.mark.parametrize("biased", [False, True])
def test_int8_products_are_those_of_the_quantised_numbers(kind: str, biased: bool) -> None:
    weight, bias, x = quantise(random(51, 37)), random(51), random(9, 37, seed=2) * torch.logspace(-4, 3, 9)[:, None]
    product = Int8Linear(weight, bias if biased else None)
    if kind == "_OneDnn":
        product._product = module._OneDnn(weight)
    steps = x.double().abs().amax(1, keepdim=True) / product._levels
    wanted = (x / steps).round() * steps @ (weight.values.double() * weight.scales.double()[:, None]).T + (bias.double() if biased else 0)
    assert torch.allclose(product(x).double(), wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max().item())


def test_the_largest_numbers_do_not_overflow() -> None:
    weight = Quantised(torch.full((8, 1024), 127, dtype=torch.int8), torch.ones(8))
    assert Int8Linear(weight)(torch.ones(2, 1024)).tolist() == [[127.0 * 1024] * 8] * 2
    assert Int8Linear(weight)(-torch.ones(1, 1024)).tolist() == [[-127.0 * 1024] * 8]


def test_a_row_of_zeros_gives_the_bias() -> None:
    assert Int8Linear(quantise(random(4, 8)), torch.arange(4.0))(torch.zeros(1, 8)).tolist() == [[0.0, 1.0, 2.0, 3.0]]


@settings(deadline=None, max_examples=8)
@given(st.integers(1, 20), st.integers(1, 70), st.integers(0, 2**20))
def test_an_int8_row_is_the_same_bits_whoever_shares_the_batch(rows: int, outputs: int, seed: int) -> None:
    product = Int8Linear(quantise(random(outputs, 33, seed=seed)))
    x = random(rows, 33, seed=seed + 1)
    together = product(x)
    assert all(torch.equal(product(x[row : row + 1])[0], together[row]) for row in range(rows))
    assert torch.equal(product(x[rows // 2 :]), together[rows // 2 :])


def test_joined_weights_are_the_products_one_after_the_other() -> None:
    first, second, x = random(8, 16), random(4, 16, seed=1), random(3, 16, seed=2)
    for kind in (lambda weight: weight, quantise):
        both = linear(join([kind(first), kind(second)]))(x)
        torch.testing.assert_close(both, torch.cat((linear(kind(first))(x), linear(kind(second))(x)), 1))
    assert isinstance(linear(first), Linear)
