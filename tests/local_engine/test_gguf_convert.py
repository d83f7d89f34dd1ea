from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from local_engine.errors import ConfigError
from local_engine.gguf_convert import convert
from local_engine.loader import load
from local_engine.tokenizer import Tokenizer
from tests.local_engine.tiny import TEMPLATE, make_model
from tests.local_engine.tiny_gguf import write_gguf


@pytest.mark.parametrize("tied", [True, False])
def test_a_converted_model_is_the_original(tmp_path: Path, tied: bool) -> None:
    original = make_model(tmp_path / "original", tie_word_embeddings=tied)
    write_gguf(original, tmp_path / "m.gguf")
    made = tmp_path / "made"
    made.mkdir()
    convert(tmp_path / "m.gguf", made, {"do_sample": True, "temperature": 0.2})
    wanted, found = load_file(original / "model.safetensors"), load_file(made / "model.safetensors")
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert load(made).shape == load(original).shape
    text = "the quick 12 日本語 😀<|end|>\n<|start|>x"
    assert Tokenizer(made).encode(text) == Tokenizer(original).encode(text)
    assert Tokenizer(made).decode(Tokenizer(made).encode(text)) == "the quick 12 日本語 😀\nx"
    config = json.loads((made / "tokenizer_config.json").read_text())
    assert (config["chat_template"], config["eos_token"], config["bos_token"]) == (TEMPLATE, "<|end|>", "<|start|>")
    assert json.loads((made / "generation_config.json").read_text()) == {
        "bos_token_id": 1,
        "eos_token_id": 0,
        "do_sample": True,
        "temperature": 0.2,
    }


def test_what_cannot_be_converted_rightly_is_refused(tiny: Path, tmp_path: Path) -> None:
    write_gguf(tiny, tmp_path / "a.gguf", architecture="gemma")
    with pytest.raises(ConfigError, match="architecture 'gemma' is not supported"):
        convert(tmp_path / "a.gguf", tmp_path)
    write_gguf(tiny, tmp_path / "b.gguf", pre="llama-bpe")
    with pytest.raises(ConfigError, match="llama-bpe"):
        convert(tmp_path / "b.gguf", tmp_path)
