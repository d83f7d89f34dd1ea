"""GGUF file -> Hugging Face folder (config.json, model.safetensors, tokenizer.json, tokenizer_config.json), once.

Dequantises with the gguf package alone. Knows the llama architecture with a byte-level BPE vocabulary; anything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from local_engine.errors import ConfigError

Array = NDArray[np.float32]

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # token types of the file format


def convert(source: Path, folder: Path, generation: Mapping[str, Any] | None = None) -> None:
    """Write the files of `source` into the existing `folder`; `generation` is what generation_config.json should say besides the ids."""
    from gguf import GGUFReader

    reader = GGUFReader(str(source))
    meta = {name: field.contents() for name, field in reader.fields.items()}
    if meta.get("general.architecture") != "llama":
        raise ConfigError(f"{source}: architecture {meta.get('general.architecture')!r} is not supported, only llama")
    config = _config(meta, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    _write_tensors(reader.tensors, config, folder / "model.safetensors")
    _dump(folder / "config.json", config)
    ids = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id") if config[name] is not None}
    _dump(folder / "generation_config.json", {**ids, **(generation or {})})
    _write_tokenizer(meta, folder)


def hf_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    block, layer, kind, suffix = [*name.split("."), "", ""][:4]
    if block != "blk" or kind not in LAYER_NAMES or suffix not in ("weight", "bias"):
        raise ConfigError(f"tensor {name!r} has no place in a llama model")
    return f"model.layers.{layer}.{LAYER_NAMES[kind]}.{suffix}"


def unpermute(weight: Array, heads: int) -> Array:
    """Undo the interleaving of rotary pairs that llama.cpp applies to the rows of q and k."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def _config(meta: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    for name in meta:
        if name.startswith("llama.rope.scaling.") and meta.get("llama.rope.scaling.type", "none") != "none":
            raise ConfigError(f"{name}: rope scaling is not supported")
    hidden, heads = int(meta["llama.embedding_length"]), int(meta["llama.attention.head_count"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": int(meta["llama.feed_forward_length"]),
        "num_hidden_layers": int(meta["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(meta.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(meta.get("llama.rope.dimension_count", hidden // heads)),
        "max_position_embeddings": int(meta["llama.context_length"]),
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.6g}"),  # stored as f32: 9.99999974e-06 means 1e-05
        "rope_theta": float(meta.get("llama.rope.freq_base", 10000.0)),
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id"),
        "torch_dtype": "float32",
    }


def _write_tensors(tensors: Any, config: Mapping[str, Any], path: Path) -> None:
    from gguf import dequantize
    from safetensors.numpy import save_file

    weights: dict[str, Array] = {}
    for tensor in tensors:
        name = hf_name(tensor.name)
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        if name.endswith("q_proj.weight"):
            weight = unpermute(weight, config["num_attention_heads"])
        elif name.endswith("k_proj.weight"):
            weight = unpermute(weight, config["num_key_value_heads"])
        weights[name] = np.ascontiguousarray(weight)
    save_file(weights, str(path), metadata={"format": "pt"})


def _write_tokenizer(meta: Mapping[str, Any], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind, pre = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or pre not in ("smollm", "gpt-2", "default"):
        raise ConfigError(f"tokenizer {kind!r} / {pre!r} cannot be converted: use the Hugging Face folder of this model")
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    types: list[int] = meta["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges, fuse_unk=False))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level]) if pre == "smollm" else byte_level
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types, strict=True) if k == CONTROL]
    )
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types, strict=True) if k == USER_DEFINED])
    tokenizer.save(str(folder / "tokenizer.json"))

    def token(name: str) -> str | None:
        index = meta.get(f"tokenizer.ggml.{name}_token_id")
        return None if index is None else tokens[index]

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": int(meta["llama.context_length"]),
        "bos_token": token("bos"),
        "eos_token": token("eos"),
        "pad_token": token("padding"),
        "unk_token": token("unknown"),
        "chat_template": meta.get("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
    }
    _dump(folder / "tokenizer_config.json", {name: value for name, value in config.items() if value is not None})


def _dump(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
