"""A model folder -> its shape and one state dict. Reads Hugging Face folders (safetensors, shards too) and GGUF files, converted once.

Refuses what it cannot run rightly (other rope scalings, sliding windows, other families). Knows nothing of requests.
"""

from __future__ import annotations

import fcntl
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct

from local_engine.errors import ConfigError
from local_engine.layers.linear import Weight
from local_engine.layers.rotary import RopeScaling
from local_engine.weights import read_weights

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


class Shape(Struct, frozen=True, kw_only=True):
    """What the arithmetic needs to know of a model; sizes in elements."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_tokens: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tied: bool
    eos_ids: frozenset[int]


class Model(Struct, frozen=True, kw_only=True):
    name: str
    folder: Path  # holds tokenizer.json
    shape: Shape
    weights: Mapping[str, Weight]  # in the asked precision, by their Hugging Face names


def load(model_dir: Path, precision: str = "f32", device: str = "cpu") -> Model:
    """The model in `model_dir` (a folder, or a GGUF file). Raises ConfigError naming what is missing or not supported."""
    folder = _folder(model_dir)
    shape = read_shape(folder)
    if not (folder / "tokenizer.json").exists():
        raise ConfigError(f"{folder} has no tokenizer.json")
    name = model_dir.stem if model_dir.is_file() else model_dir.name
    chosen = chosen_device(device, precision)
    weights = read_weights(folder, chosen_precision(precision, chosen), lambda given: _evened(folder, shape, given))
    if chosen != "cpu":
        weights = {name: weight.to(chosen) for name, weight in weights.items() if isinstance(weight, torch.Tensor)}
    return Model(name=name, folder=folder, shape=shape, weights=weights)


def _evened(folder: Path, shape: Shape, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from local_engine.calibrate import evened, sample_text
    from local_engine.tokenizer import Tokenizer

    ids = Tokenizer(folder).encode(sample_text())
    return evened(shape, weights, ids)


def chosen_device(wanted: str, precision: str) -> str:
    """cpu or cuda; `auto` is the faster one that there is. ConfigError for one that there is not."""
    found = torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise ConfigError("there is no CUDA device, or this torch is built without CUDA", param="device")
    return "cuda" if wanted == "cuda" or (wanted == "auto" and found and precision != "int8") else "cpu"


def chosen_precision(wanted: str, device: str) -> str:
    """`auto` is exact on a CPU, and on other devices what they are fast in."""
    if wanted != "auto":
        return wanted
    return "f32" if device == "cpu" else "bf16"


def present(model_dir: Path) -> bool:
    """Something that `load` may be tried on is there."""
    return model_dir.is_file() or (model_dir / "config.json").exists() or any(model_dir.glob("*.gguf"))


def read_shape(folder: Path) -> Shape:
    """Read config.json and generation_config.json; ConfigError for what this engine would compute wrongly."""
    config = _json(folder / "config.json")
    family = (config.get("architectures") or ["none"])[0]
    if family not in FAMILIES:
        raise ConfigError(f"{folder}: architecture {family} is not supported, only {', '.join(FAMILIES)}")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    windows = config.get("use_sliding_window", family == "MistralForCausalLM")
    if windows and (config.get("sliding_window") or math.inf) < config.get("max_position_embeddings", 0):
        raise ConfigError(f"{folder}: sliding_window = {config['sliding_window']} is not supported")
    for name, allowed in (("hidden_act", "silu"), ("partial_rotary_factor", 1.0)):
        found = rope.get(name, config.get(name, allowed))
        if found != allowed:
            raise ConfigError(f"{folder}: {name} = {found!r} is not supported")
    try:
        return _shape(folder, config, rope)
    except KeyError as error:
        raise ConfigError(f"{folder}/config.json lacks {error.args[0]}") from None


def _shape(folder: Path, config: Mapping[str, Any], rope: Mapping[str, Any]) -> Shape:
    heads = config["num_attention_heads"]
    return Shape(
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocab=config["vocab_size"],
        context_tokens=config["max_position_embeddings"],
        norm_eps=config["rms_norm_eps"],
        rope_theta=rope.get("rope_theta") or config.get("rope_theta") or 10000.0,
        rope_scaling=_rope_scaling(folder, rope),
        tied=bool(config.get("tie_word_embeddings", False)),
        eos_ids=_eos_ids(folder, config),
    )


def _eos_ids(folder: Path, config: Mapping[str, Any]) -> frozenset[int]:
    path = folder / "generation_config.json"
    eos = (_json(path) if path.exists() else {}).get("eos_token_id", config.get("eos_token_id"))
    if eos is None:
        return frozenset()
    return frozenset(eos if isinstance(eos, list) else [eos])


def _rope_scaling(folder: Path, rope: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind=kind, factor=rope["factor"])
    if kind == "llama3":
        return RopeScaling(
            kind=kind,
            factor=rope["factor"],
            low_factor=rope["low_freq_factor"],
            high_factor=rope["high_freq_factor"],
            trained_tokens=rope["original_max_position_embeddings"],
        )
    raise ConfigError(f"{folder}: rope scaling {kind!r} is not supported, only linear and llama3")


def _folder(model_dir: Path) -> Path:
    if (model_dir / "config.json").exists():
        return model_dir
    files = [model_dir] if model_dir.is_file() else sorted(model_dir.glob("*.gguf"))
    if len(files) != 1:
        raise ConfigError(f"{model_dir} has neither a config.json nor exactly one .gguf file")
    return converted(files[0])


def converted(source: Path) -> Path:
    """The folder made from a GGUF file, beside it. Concurrent callers wait for the first; the folder appears whole by one rename."""
    from local_engine.gguf_convert import convert

    folder = source.with_name(f"{source.stem}.converted")
    with source.with_name(f".{source.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(prefix=f".{source.stem}-", dir=source.parent) as work:
                made = Path(work) / "made"
                made.mkdir()
                convert(source, made)
                made.rename(folder)
    return folder


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return value
