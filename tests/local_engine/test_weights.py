"""Weights in every precision, from whole and split files; int8 is made once by the first who asks, and anew for a changed model."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine import weights as module
from local_engine.errors import ConfigError
from local_engine.layers.linear import Quantised, Weight, quantise
from local_engine.weights import read_weights
from tests.local_engine.tiny import make_model

UP = "model.layers.0.mlp.up_proj.weight"


def cache(folder: Path) -> Path:
    return folder / ".tollway" / "int8.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_model(tmp_path / "m")


def quantised(weights: dict[str, Weight]) -> dict[str, Quantised]:
    return {name: weight for name, weight in weights.items() if isinstance(weight, Quantised)}


def test_precisions(folder: Path) -> None:
    f32, bf16, int8 = (read_weights(folder, precision) for precision in ("f32", "bf16", "int8"))
    assert {weight.dtype for weight in f32.values() if isinstance(weight, torch.Tensor)} == {torch.float32}
    assert {weight.dtype for weight in bf16.values() if isinstance(weight, torch.Tensor)} == {torch.bfloat16}
    products = quantised(int8)
    assert len(products) == 2 * 7 + 1  # those of two layers, and the head, which is tied
    for name, weight in products.items():
        source = f32["model.embed_tokens.weight" if name == "lm_head.weight" else name]
        assert isinstance(source, torch.Tensor)
        assert torch.equal(weight.values, quantise(source).values)
        assert torch.equal(weight.scales, quantise(source).scales)
    rest = {name: weight.dtype for name, weight in int8.items() if isinstance(weight, torch.Tensor)}
    assert set(rest.values()) == {torch.float32}
    assert sorted(set(f32) - set(rest)) == sorted(set(products) - {"lm_head.weight"})


def test_the_kept_int8_file_is_used_and_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = quantised(read_weights(folder, "int8"))
    monkeypatch.delattr(module, "quantise")
    again = quantised(read_weights(folder, "int8"))
    assert all(
        torch.equal(again[name].values, first[name].values) and torch.equal(again[name].scales, first[name].scales) for name in first
    )
    assert sorted(path.name for path in cache(folder).parent.iterdir()) == ["int8.lock", "int8.safetensors"]


def test_a_changed_model_and_a_broken_file_are_made_anew(folder: Path) -> None:
    old = quantised(read_weights(folder, "int8"))[UP]
    path = folder / "model.safetensors"
    save_file({name: weight * 2 for name, weight in load_file(str(path)).items()}, str(path))
    os.utime(path, ns=(1, 1))
    new = quantised(read_weights(folder, "int8"))[UP]
    torch.testing.assert_close(new.scales, old.scales * 2)
    cache(folder).write_bytes(b"not safetensors")
    assert torch.equal(quantised(read_weights(folder, "int8"))[UP].scales, new.scales)
    assert quantised(read_weights(folder, "int8")).keys() == quantised(read_weights(folder, "int8")).keys()


def test_of_many_who_start_at_once_one_makes_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(module, "_quantised", lambda *given, real=module._quantised: (made.append(1), real(*given))[1])
    found: list[dict[str, Quantised]] = []
    threads = [threading.Thread(target=lambda: found.append(quantised(read_weights(folder, "int8")))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(made)) == (6, 1)
    assert all(torch.equal(one[UP].values, found[0][UP].values) for one in found)


def test_a_folder_that_cannot_be_written_still_loads(folder: Path) -> None:
    (folder / ".tollway").write_text("in the way")
    assert len(quantised(read_weights(folder, "int8"))) == 15


def test_shards_are_joined_by_their_index(folder: Path) -> None:
    whole = load_file(str(folder / "model.safetensors"))
    names = sorted(whole)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: whole[name] for name in part}, str(folder / file))
    save_file({"stray": torch.zeros(1)}, str(folder / "other.safetensors"))
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for file, part in shards.items() for name in part}}))
    read = read_weights(folder, "f32")
    assert read.keys() == whole.keys()
    assert all(torch.equal(read[name], whole[name]) for name in names)  # type: ignore[arg-type]
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"names model-2\.safetensors, which is missing"):
        read_weights(folder, "f32")
    index.write_text("{}")
    with pytest.raises(ConfigError, match="not an index of weights"):
        read_weights(folder, "f32")


def test_files_that_are_none_are_named(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"xx")
    with pytest.raises(ConfigError, match=r"model\.safetensors cannot be read"):
        read_weights(folder, "f32")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="no safetensors file"):
        read_weights(folder, "f32")
