"""The tiny model as a GGUF file, written as llama.cpp's converter does: q and k interleaved, names and metadata of the format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from safetensors.numpy import load_file

from local_engine.gguf_convert import LAYER_NAMES, TOP_NAMES
from tests.local_engine.tiny import SPECIAL, TEMPLATE


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """As in llama.cpp's convert_hf_to_gguf.py."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(source: Path, target: Path, *, architecture: str = "llama", pre: str = "gpt-2") -> None:
    config = json.loads((source / "config.json").read_text())
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    writer = GGUFWriter(str(target), architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    vocab = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types([3 if token in SPECIAL else 1 for token, _ in vocab])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    names = {ours: theirs for theirs, ours in LAYER_NAMES.items()}
    tops = {ours: theirs for theirs, ours in TOP_NAMES.items()}
    for name, weight in load_file(source / "model.safetensors").items():
        if name in tops:
            writer.add_tensor(tops[name], weight)
            continue
        _, _, layer, *middle, suffix = name.split(".")
        kind = names[".".join(middle)]
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(kind)
        writer.add_tensor(f"blk.{layer}.{kind}.{suffix}", weight if heads is None else permute(weight, heads))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
