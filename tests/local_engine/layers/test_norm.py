"""RMS norm against its definition in f64."""

from __future__ import annotations

import torch

from local_engine.layers.norm import RmsNorm


def test_rms_norm_is_its_definition_for_rows_of_every_size() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(7, 96, generator=generator) * torch.logspace(-6, 4, 7)[:, None]
    weight = torch.randn(96, generator=generator)
    x[3] = 0
    wide = x.double()
    wanted = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    assert torch.allclose(RmsNorm(weight, 1e-5)(x).double(), wanted, rtol=1e-6, atol=1e-9)


def test_half_precision_is_normed_in_f32_and_given_back_as_it_came() -> None:
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(2)).bfloat16() * 100
    out = RmsNorm(torch.ones(64).bfloat16(), 1e-6)(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, RmsNorm(torch.ones(64), 1e-6)(x.float()).bfloat16())


def test_a_row_is_the_same_bits_whoever_shares_the_batch() -> None:
    x = torch.randn(40, 576, generator=torch.Generator().manual_seed(3))
    norm = RmsNorm(torch.ones(576), 1e-5)
    together = norm(x)
    assert all(torch.equal(norm(x[row : row + 1])[0], together[row]) for row in range(40))
