from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine.errors import ConfigError
from local_engine.loader import chosen_precision, load, present, read_shape
from tests.local_engine.tiny import make_model
from tests.local_engine.tiny_gguf import write_gguf


def change(folder: Path, name: str = "config.json", **members: Any) -> None:
    path = folder / name
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(old | members))


def test_a_folder_is_read(tiny: Path) -> None:
    model = load(tiny)
    shape = model.shape
    assert (model.name, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.layers) == ("tiny", 64, 4, 2, 16, 2)
    assert (shape.context_tokens, shape.rope_theta, shape.tied, shape.eos_ids) == (512, 10000.0, True, frozenset({0}))


def test_generation_config_says_where_answers_end(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    change(folder, "generation_config.json", eos_token_id=[0, 5])
    assert read_shape(folder).eos_ids == frozenset({0, 5})


def test_newer_files_keep_theta_in_rope_parameters(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", rope_theta=None)
    change(folder, rope_parameters={"rope_theta": 5000.0, "rope_type": "default"})
    assert read_shape(folder).rope_theta == 5000.0


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architecture GPT2LMHeadModel"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 8}}, "rope scaling 'yarn'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "rope scaling 'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "lacks low_freq_factor"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}, "partial_rotary_factor = 0.25"),
        ({"use_sliding_window": True, "sliding_window": 64}, "sliding_window = 64"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 64}, "sliding_window = 64"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(tmp_path: Path, members: dict[str, Any], says: str) -> None:
    folder = make_model(tmp_path / "m")
    change(folder, **members)
    with pytest.raises(ConfigError, match=says):
        load(folder)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="no safetensors"):
        load(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        load(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["hidden_size"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="hidden_size"):
        load(folder)
    (folder / "config.json").unlink()
    assert not present(folder)
    with pytest.raises(ConfigError, match="neither"):
        load(folder)


def test_half_precision_files_are_widened(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    weights = {name: weight.bfloat16() for name, weight in load_file(folder / "model.safetensors").items()}
    save_file(weights, str(folder / "model.safetensors"))
    assert {weight.dtype for weight in load(folder).weights.values() if isinstance(weight, torch.Tensor)} == {torch.float32}


def test_a_gguf_file_is_converted_once_however_many_start(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tiny, tmp_path / "m.gguf")
    assert present(tmp_path)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(load(tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert {model.folder for model in found} == {tmp_path / "m.converted"}
    made = (tmp_path / "m.converted/model.safetensors").stat().st_mtime_ns
    assert load(tmp_path / "m.gguf").shape == load(tiny).shape
    assert (tmp_path / "m.converted/model.safetensors").stat().st_mtime_ns == made
    assert sorted(path.name for path in tmp_path.iterdir()) == [".m.gguf.lock", "m.converted", "m.gguf"]


def test_precision_follows_the_device_if_none_is_asked_for(tiny: Path) -> None:
    assert (chosen_precision("auto", "cpu"), chosen_precision("auto", "cuda")) == ("f32", "bf16")
    assert (chosen_precision("f32", "cuda"), chosen_precision("int8", "cpu")) == ("f32", "int8")
    assert load(tiny, "auto").weights["model.norm.weight"].dtype == torch.float32  # type: ignore[union-attr]
