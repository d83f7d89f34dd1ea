"""A Llama-shaped model of a few thousand random weights with a byte-level tokenizer: real code, real files, no download."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from local_engine.client import EngineClient
from local_engine.errors import Unreachable

SPECIAL = ["<|end|>", "<|start|>"]
TEXT = ["the quick brown fox jumps over the lazy dog", "DEFGHIJ END stop", "日本語 中文 😀 é", "one two three the the quick quick"]
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
CONTEXT = 512


def make_model(folder: Path, **changes: Any) -> Path:
    """Write the model's folder; `changes` replace members of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    } | changes
    save_file(make_weights(config), str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))
    (folder / "config.json").write_text(json.dumps(config))  # last: it makes the folder a model
    return folder


def make_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    return tokenizer


def make_weights(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Random, and large enough that the likeliest token is clear and changes from step to step."""
    generator = torch.Generator().manual_seed(7)

    def random(*shape: int, scale: float = 0.5) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    weights = {
        "model.embed_tokens.weight": random(config["vocab_size"], hidden, scale=0.3),
        "model.norm.weight": 1 + random(hidden, scale=0.2),
    }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = random(config["vocab_size"], hidden, scale=0.3)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        weights[f"{prefix}input_layernorm.weight"] = 1 + random(hidden, scale=0.2)
        weights[f"{prefix}post_attention_layernorm.weight"] = 1 + random(hidden, scale=0.2)
        for name, rows in (("q", query), ("k", kv), ("v", kv)):
            weights[f"{prefix}self_attn.{name}_proj.weight"] = random(rows, hidden)
            if config["architectures"] == ["Qwen2ForCausalLM"] or config["attention_bias"]:
                weights[f"{prefix}self_attn.{name}_proj.bias"] = random(rows)
            if config["architectures"] == ["Qwen3ForCausalLM"] and name != "v":
                weights[f"{prefix}self_attn.{name}_norm.weight"] = 1 + random(head)
        weights[f"{prefix}self_attn.o_proj.weight"] = random(hidden, query)
        if config["attention_bias"]:
            weights[f"{prefix}self_attn.o_proj.bias"] = random(hidden)
        weights[f"{prefix}mlp.gate_proj.weight"] = random(inner, hidden)
        weights[f"{prefix}mlp.up_proj.weight"] = random(inner, hidden)
        if config.get("mlp_bias"):
            weights |= {f"{prefix}mlp.{name}_proj.bias": random(rows) for name, rows in (("gate", inner), ("up", inner), ("down", hidden))}
        weights[f"{prefix}mlp.down_proj.weight"] = random(hidden, inner)
    return weights


@contextmanager
def engine_process(socket: Path, model_dir: Path, *options: str, stdout: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m local_engine serve`, listening but perhaps still loading. Ended with the block, by its stdin if by nothing else."""
    command = [sys.executable, "-m", "local_engine", "serve", "--socket", str(socket), "--model-dir", str(model_dir), *options]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE, env=environ) as process:
        try:
            ends = time.monotonic() + 20
            while not socket.exists() and process.poll() is None and time.monotonic() < ends:
                time.sleep(0.01)
            yield process
        finally:
            process.kill()
            process.wait()


def real_model() -> Path | None:
    """SmolLM2's folder where it has been fetched."""
    folder = Path(os.environ.get("TOLLWAY_MODELS") or Path.home() / ".cache/tollway/models") / "smollm2-135m"
    return folder if (folder / "config.json").exists() else None


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float) -> None:
    """Ask again and again; TimeoutError when it does not come true in time."""
    ends = time.monotonic() + timeout_s
    for pause_s in itertools.chain([0.0], itertools.repeat(0.01)):
        await asyncio.sleep(pause_s)
        if await condition():
            return
        if time.monotonic() > ends:
            raise TimeoutError("it did not come true in time")


async def says(client: EngineClient, state: str) -> bool:
    try:
        return (await client.state()).state == state
    except Unreachable:  # not yet
        return False


def wait_ready(socket: Path, state: str = "ready", timeout_s: float = 180.0) -> None:
    """Until the engine says that it is in `state`."""

    async def wait() -> None:
        client = EngineClient(str(socket))
        try:
            await until(lambda: says(client, state), timeout_s)
        finally:
            await client.close()

    asyncio.run(wait())
