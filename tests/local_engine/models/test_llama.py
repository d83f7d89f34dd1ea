"""Every shape that the engine takes, with random weights, greedy and in a batch, against transformers' generate()."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import ConfigError
from local_engine.loader import load
from local_engine.models.llama import Llama
from local_engine.wire import Params
from tests.local_engine.tiny import make_model

TOKENS = 12
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def given() -> list[list[int]]:
    numbers = random.Random(4)
    return [[numbers.randrange(2, 250) for _ in range(length)] for length in (5, 60)]


def ours(folder: Path, precision: str = "f32", together: bool = True, compiled: bool = True) -> list[list[int]]:
    engine = Engine(load(folder, precision), EngineConfig(model_dir=str(folder), threads=1, precision=precision, compiled=compiled))
    params = Params(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    answers: list[list[int]] = [[] for _ in given()]
    for key, prompt in enumerate(given()):
        engine.add(key, prompt, params)
        while engine.busy and not (together and key + 1 < len(answers)):
            for output in engine.step():
                answers[output.id].append(output.token)
    return answers


def theirs(folder: Path) -> list[list[int]]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    answers = []
    for prompt in given():
        ids = torch.tensor([prompt])
        answer = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)
        answers.append(answer[0, len(prompt) :].tolist())
    return answers


SHAPES: dict[str, dict[str, Any]] = {
    "untied": {"tie_word_embeddings": False},
    "no groups": {"num_key_value_heads": 4},
    "one key head": {"num_key_value_heads": 1, "rope_theta": 100000.0},
    "wide heads": {"num_hidden_layers": 1, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 1},
    "every bias": {"attention_bias": True, "mlp_bias": True},
    "llama3 rope": {"rope_scaling": LLAMA3},
    "linear rope": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None},
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_equals_transformers(tmp_path: Path, name: str) -> None:
    folder = make_model(tmp_path / "m", **SHAPES[name])
    wanted = theirs(folder)
    assert ours(folder) == wanted
    assert ours(folder, compiled=False) == wanted


@pytest.mark.parametrize("name", ["untied", "qwen3"])
def test_int8_alone_equals_int8_in_a_batch(tmp_path: Path, name: str) -> None:
    folder = make_model(tmp_path / "m", **SHAPES[name])
    assert ours(folder, "int8", together=False) == ours(folder, "int8")


@pytest.mark.parametrize(
    ("gone", "more", "says"),
    [
        ("model.layers.1.mlp.up_proj.weight", {}, "lack model.layers.1.mlp.up_proj.weight"),
        ("model.norm.weight", {}, "lack model.norm.weight"),
        (None, {"model.layers.0.self_attn.sinks": 4}, "no place for: model.layers.0.self_attn.sinks"),
        (None, {"model.layers.0.self_attn.k_proj.bias": 32}, "a bias for some of q, k and v"),
        (None, {"model.layers.0.mlp.gate_proj.bias": 96}, "a bias for some of"),
    ],
)
def test_weights_that_do_not_fit_the_shape_are_named(tiny: Path, gone: str | None, more: dict[str, int], says: str) -> None:
    model = load(tiny)
    weights = {name: weight for name, weight in model.weights.items() if name != gone}
    with pytest.raises(ConfigError, match=says):
        Llama(model.shape, weights | {name: torch.zeros(size) for name, size in more.items()})
