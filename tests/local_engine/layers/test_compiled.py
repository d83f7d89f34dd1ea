"""The compiled step against torch's layers, which are held to transformers; and what it promises beside: the same bits however cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from local_engine.bench.quality import logits
from local_engine.layers.compiled import Tiled, works
from local_engine.layers.linear import Quantised, quantise
from local_engine.loader import load
from local_engine.machine import LEVELS, TILE
from local_engine.model_runner import Span, lay_out, new_caches
from local_engine.models.llama import Llama
from tests.local_engine.tiny import make_model

Tensor = torch.Tensor
SHAPES: dict[str, dict[str, Any]] = {
    "tiles left over": {"hidden_size": 72, "intermediate_size": 100},
    "heads of more than a tile": {"head_dim": 80, "num_attention_heads": 8, "num_key_value_heads": 2},
    "a large group": {"num_attention_heads": 32, "num_key_value_heads": 1},
    "every bias": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    "norms of heads": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
}


def ids(count: int, seed: int = 1) -> list[int]:
    return torch.randint(2, 250, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def model(folder: Path, precision: str = "f32", threads: int = 2) -> Llama:
    loaded = load(folder, precision)
    made = Llama(loaded.shape, loaded.weights, threads)
    assert (made.compiled is not None) is (threads > 0)
    return made


@pytest.mark.parametrize("name", SHAPES)
def test_it_computes_what_torch_does(tmp_path: Path, name: str) -> None:
    folder = make_model(tmp_path / "m", **SHAPES[name])
    ours, wanted = logits(model(folder), ids(90), 90), logits(model(folder, threads=0), ids(90), 90)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=5e-5 * wanted.abs().max().item())


@pytest.mark.parametrize("precision", ["f32", "int8"])
def test_a_row_is_the_same_bits_however_its_text_is_cut_and_whoever_computes(tiny: Path, precision: str) -> None:
    whole = logits(model(tiny, precision, 1), ids(150), 150)
    for piece, threads in ((64, 3), (7, 2), (2, 1), (1, 2)):
        assert torch.equal(logits(model(tiny, precision, threads), ids(150), piece), whole)


@torch.inference_mode()
@pytest.mark.parametrize("precision", ["f32", "int8"])
def test_a_row_is_the_same_bits_whoever_shares_the_step(tiny: Path, precision: str) -> None:
    ours = model(tiny, precision)
    caches = new_caches(ours, 40)
    texts = [ids(length, length) for length in (3, 60, 17, 1, 90)]
    blocks = [list(range(8 * i, 8 * i + 8)) for i in range(5)]
    for text, own in zip(texts[:2], blocks[:2], strict=True):  # two go on, three begin
        step(ours, caches, [(text, Span(own, 0, len(text) - 1))])
    work = [(text, Span(own, len(text) - 1, 1)) for text, own in zip(texts[:2], blocks[:2], strict=True)]
    work += [(texts[3], Span(blocks[3], 0, 1)), (texts[2], Span(blocks[2], 0, 17)), (texts[4], Span(blocks[4], 0, 90))]
    together = step(ours, caches, work)
    for found, (text, _) in zip(together, work, strict=True):
        assert torch.equal(found, logits(ours, text, len(text))[-1])


def step(ours: Llama, caches: Tensor, work: list[tuple[list[int], Span]]) -> Tensor:
    """Logits of the last row of each text."""
    flat = [token for text, span in work for token in text[span.past : span.past + span.tokens]]
    places = [place for _, span in work for place in range(span.past, span.past + span.tokens)]
    ends = torch.tensor([span.tokens for _, span in work]).cumsum(0) - 1
    return ours.forward(torch.tensor(flat), torch.tensor(places), caches, lay_out([span for _, span in work], torch.device("cpu")), ends)


def test_scores_far_apart_neither_overflow_nor_vanish(tiny: Path) -> None:
    loaded = load(tiny)
    weights = {name: weight * 300 if "q_proj" in name else weight for name, weight in loaded.weights.items()}  # type: ignore[operator]
    ours, torchs = (logits(Llama(loaded.shape, weights, threads), ids(60), 60) for threads in (1, 0))
    torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-4 * torchs.abs().max().item())


def test_int8_is_the_product_of_the_rounded_numbers(tiny: Path) -> None:
    """Seen at the head: the same model with a head of f32 that shows its input."""
    loaded = load(tiny, "int8")
    head = loaded.weights["lm_head.weight"]
    assert isinstance(head, Quantised)
    told = logits(Llama(loaded.shape, loaded.weights, 1), ids(20), 20)
    showing = dict(loaded.weights) | {"lm_head.weight": torch.eye(loaded.shape.vocab, loaded.shape.hidden)}
    shown = logits(Llama(replace(loaded.shape, tied=False), showing, 1), ids(20), 20)[:, : loaded.shape.hidden]
    steps = shown.double().abs().amax(1, keepdim=True) / LEVELS
    wanted = (shown / steps + 0.5).floor() * steps @ (head.values.double() * head.scales.double()[:, None]).T
    torch.testing.assert_close(told.double(), wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max().item())


def test_rows_of_zeros_in_int8(tiny: Path) -> None:
    loaded = load(tiny, "int8")
    silent = {name: torch.zeros_like(weight) if isinstance(weight, Tensor) else weight for name, weight in loaded.weights.items()}
    assert (logits(Llama(loaded.shape, silent, 1), ids(5), 5) == 0).all()


def test_weights_lie_in_tiles() -> None:
    weight = torch.randn(TILE + 3, 10)
    tiled = Tiled(weight, torch.arange(TILE + 3.0))
    assert torch.equal(tiled.data[0, :, :, 0], weight[:TILE].T)
    assert torch.equal(tiled.data[1, :, :3, 0], weight[TILE:].T)
    assert tiled.extras[TILE : TILE + 4].tolist() == [TILE, TILE + 1, TILE + 2, 0]
    whole = Tiled(quantise(weight))
    assert torch.equal(whole.data[0].transpose(1, 2).reshape(12, TILE)[:10].T, quantise(weight).values[:TILE])
    assert whole.extras[:TILE].view(torch.int32).tolist() == (quantise(weight).values[:TILE].int().sum(1) * -(LEVELS + 1)).tolist()


def test_what_it_serves() -> None:
    like = torch.zeros(1)
    assert works(64, like)
    assert not works(64, like.bfloat16())
    assert not works(24, like)
