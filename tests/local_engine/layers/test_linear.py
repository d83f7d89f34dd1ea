"""Torch's products against plain arithmetic in f64, and weights in int8."""

from __future__ import annotations

import pytest
import torch

from local_engine.errors import ConfigError
from local_engine.layers.linear import Linear, Quantised, Weight, join, quantise


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
    out = Linear(weight, bias if biased else None)(x)
    wanted = x.double() @ weight.double().T + (bias.double() if biased else 0)
    assert out.dtype == dtype
    torch.testing.assert_close(
        out.double(), wanted, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=5e-2 if dtype == torch.bfloat16 else 1e-4
    )


def test_int8_is_refused() -> None:
    with pytest.raises(ConfigError, match="compiled step"):
        Linear(quantise(random(4, 8)))


def test_joined_weights_are_one_after_the_other() -> None:
    first, second = random(8, 16), random(4, 16, seed=1)
    assert torch.equal(as_tensor(join([first, second])), torch.cat((first, second)))
    both = join([quantise(first), quantise(second)])
    assert isinstance(both, Quantised)
    assert torch.equal(both.values[8:], quantise(second).values)
    assert torch.equal(both.scales[:8], quantise(first).scales)


def as_tensor(weight: Weight) -> torch.Tensor:
    assert isinstance(weight, torch.Tensor)
    return weight
