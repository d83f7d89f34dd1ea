"""Sentence embeddings by a BERT-shaped model (MiniLM): texts in, vectors of length 1 out. Turns among callers, a bounded batch a step.

Takes the place of the engine in the server's step loop. A text that is too long is refused with both numbers, never cut.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from local_engine.config import EngineConfig
from local_engine.errors import BadRequest, ConfigError, ContextExceeded, EngineError, Unavailable
from local_engine.layers.linear import Linear, Tensor
from local_engine.weights import read_weights
from local_engine.wire import MAX_MESSAGE_BYTES, Embed, Refused, Stats, Vectors, refusal

FAMILY = "BertModel"
STEP_TOKENS = 4096  # padded; bounds how long one step takes
MAX_INPUTS = 2048  # of one request


class Layer(NamedTuple):
    qkv: Linear
    out: Linear
    out_norm: tuple[Tensor, Tensor]
    up: Linear
    down: Linear
    down_norm: tuple[Tensor, Tensor]


class Embedder:
    """The model: token ids to vectors. Raises ConfigError for a folder that it would compute wrongly."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        config = _read(folder / "config.json")
        _check(folder, config)
        self._weights = read_weights(folder, "f32")
        self._heads: int = config["num_attention_heads"]
        self._eps: float = config["layer_norm_eps"]
        self.size: int = config["hidden_size"]
        self.context_tokens = min(config["max_position_embeddings"], _trained_tokens(folder) or config["max_position_embeddings"])
        self._first = _read(folder / "1_Pooling/config.json").get("pooling_mode_cls_token", False)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        empty = self._tokenizer.encode("").ids  # what stands around every text
        self._around = ([], []) if len(empty) < 2 else (empty[:1], empty[1:])
        self._vocab: int = config["vocab_size"]
        words = self._tensor("embeddings.word_embeddings.weight")
        places = self._tensor("embeddings.position_embeddings.weight")
        self._words, self._places = words, places + self._tensor("embeddings.token_type_embeddings.weight")[0]
        self._norm = self._norm_of("embeddings.LayerNorm")
        self._layers = [self._layer(f"encoder.layer.{i}.") for i in range(config["num_hidden_layers"])]
        del self._weights

    def encode(self, given: str | Sequence[int]) -> list[int]:
        """Its ids with the model's own around them; ids in place of a text get those too. BadRequest for ids that are none, and
        ContextExceeded with both numbers."""
        if isinstance(given, str):
            ids = self._tokenizer.encode(given).ids
        else:
            if not all(0 <= token < self._vocab for token in given):
                raise BadRequest(f"token ids must be in [0, {self._vocab})", param="input")
            ids = [*self._around[0], *given, *self._around[1]]
        if len(ids) > self.context_tokens:
            raise ContextExceeded(f"an input has {len(ids)} tokens, over this model's {self.context_tokens}", param="input")
        return ids

    @torch.inference_mode()
    def vectors(self, inputs: Sequence[Sequence[int]]) -> Tensor:
        """f32 [inputs, size] of length 1, by what `encode` gave."""
        lengths = torch.tensor([len(ids) for ids in inputs])
        longest = int(lengths.max())
        mask = torch.arange(longest) < lengths[:, None]
        padded = torch.zeros(len(inputs), longest, dtype=torch.int64)
        padded[mask] = torch.tensor([token for ids in inputs for token in ids])
        x = self._normed(self._words[padded] + self._places[:longest], self._norm)
        for layer in self._layers:
            x = self._normed(x + layer.out(self._attended(layer, x, mask)), layer.out_norm)
            x = self._normed(x + layer.down(functional.gelu(layer.up(x))), layer.down_norm)
        pooled = x[:, 0] if self._first else (x * mask[:, :, None]).sum(1) / lengths[:, None]
        return functional.normalize(pooled, dim=-1)

    def _attended(self, layer: Layer, x: Tensor, mask: Tensor) -> Tensor:
        texts, tokens, _ = x.shape
        q, k, v = layer.qkv(x).view(texts, tokens, 3, self._heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None])
        return out.transpose(1, 2).reshape(texts, tokens, self.size)

    def _normed(self, x: Tensor, norm: tuple[Tensor, Tensor]) -> Tensor:
        return functional.layer_norm(x, (self.size,), *norm, self._eps)

    def _layer(self, prefix: str) -> Layer:
        names = [f"{prefix}attention.self.{name}" for name in ("query", "key", "value")]
        weight = torch.cat([self._tensor(f"{name}.weight") for name in names])
        return Layer(
            qkv=Linear(weight, torch.cat([self._tensor(f"{name}.bias") for name in names])),
            out=self._product(f"{prefix}attention.output.dense"),
            out_norm=self._norm_of(f"{prefix}attention.output.LayerNorm"),
            up=self._product(f"{prefix}intermediate.dense"),
            down=self._product(f"{prefix}output.dense"),
            down_norm=self._norm_of(f"{prefix}output.LayerNorm"),
        )

    def _product(self, name: str) -> Linear:
        return Linear(self._tensor(f"{name}.weight"), self._tensor(f"{name}.bias"))

    def _norm_of(self, name: str) -> tuple[Tensor, Tensor]:
        return self._tensor(f"{name}.weight"), self._tensor(f"{name}.bias")

    def _tensor(self, name: str) -> Tensor:
        found = self._weights.get(name, self._weights.get(f"bert.{name}"))
        if not isinstance(found, Tensor):
            raise ConfigError(f"the model's weights lack {name}")
        return found


class Job:
    """One request: its inputs by length, the vectors so far, and whom to tell."""

    def __init__(self, owner: object, embed: Embed, reply: Callable[[Vectors | Refused], None]) -> None:
        self.owner = owner
        self.id = embed.id
        self.inputs = embed.inputs
        self.reply = reply
        self.ids: list[list[int]] | None = None
        self.order: list[int] = []  # of inputs not computed yet, the longest last
        self.vectors: Tensor | None = None


class EmbeddingQueue:
    """The work of a model that makes embeddings: every step computes one batch of the request whose turn it is. One thread owns it."""

    def __init__(self, folder: Path, config: EngineConfig) -> None:
        torch.set_num_threads(config.thread_count)
        embedder = Embedder(folder)
        self._embedder = embedder
        self._max_open = config.max_sequences + config.max_waiting
        self._most = min(MAX_INPUTS, MAX_MESSAGE_BYTES // (8 * embedder.size))  # so that an answer is one message
        self._retry_after_s = config.retry_after_s
        self._jobs: deque[Job] = deque()
        self._stats = Stats(state="ready")
        self.context_tokens = embedder.context_tokens

    def add(self, job: Job) -> None:
        """Queue it, or refuse it through its own `reply`."""
        if len(self._jobs) >= self._max_open:
            job.reply(refusal(job.id, Unavailable(f"{len(self._jobs)} requests are open already", retry_after_s=self._retry_after_s)))
        elif not 1 <= len(job.inputs) <= self._most:
            job.reply(refusal(job.id, BadRequest(f"one call takes 1 to {self._most} inputs, not {len(job.inputs)}", param="input")))
        else:
            self._jobs.append(job)

    def cancel(self, owner: object, key: int | None = None) -> None:
        """Forget the request `key` of its owner, or all of them."""
        self._jobs = deque(job for job in self._jobs if job.owner is not owner or key not in (None, job.id))

    def step(self) -> list[Any]:
        """One batch of one request; its answer when that was the last. No tokens come of it."""
        if not self._jobs:
            return []
        job = self._jobs.popleft()
        try:
            if self._advance(job):
                self._jobs.append(job)
        except EngineError as error:
            job.reply(refusal(job.id, error))
        return []

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    @property
    def stats(self) -> Stats:
        self._stats = Stats(
            state="ready",
            waiting=max(0, len(self._jobs) - 1),
            running=min(1, len(self._jobs)),
            steps=self._stats.steps,
            prompt_tokens=self._stats.prompt_tokens,
        )
        return self._stats

    def _advance(self, job: Job) -> bool:
        """Encode first, then compute; True while something is left."""
        if job.ids is None or job.vectors is None:
            job.ids = [self._embedder.encode(given) for given in job.inputs]
            job.order = sorted(range(len(job.ids)), key=lambda i: len(job.ids[i]))  # type: ignore[index]
            job.vectors = torch.empty(len(job.ids), self._embedder.size)
        batch = [job.order.pop()]
        longest = len(job.ids[batch[0]])
        while job.order and (len(batch) + 1) * longest <= STEP_TOKENS:
            batch.append(job.order.pop())
        job.vectors[batch] = self._embedder.vectors([job.ids[i] for i in batch])
        if job.order:
            return True
        tokens = sum(len(ids) for ids in job.ids)
        job.reply(Vectors(job.id, self._embedder.size, tokens, job.vectors.numpy().astype("<f4").tobytes()))
        self._stats = Stats(steps=self._stats.steps + 1, prompt_tokens=self._stats.prompt_tokens + tokens)
        return False


def makes_embeddings(folder: Path) -> bool:
    """Its config names a model of this kind."""
    return FAMILY in (_read(folder / "config.json").get("architectures") or ())


def _check(folder: Path, config: dict[str, Any]) -> None:
    for name, allowed in (("hidden_act", "gelu"), ("position_embedding_type", "absolute"), ("is_decoder", False)):
        if config.get(name, allowed) != allowed:
            raise ConfigError(f"{folder}: {name} = {config[name]!r} is not supported")
    pooling = _read(folder / "1_Pooling/config.json")
    for name, value in pooling.items():
        if name.startswith("pooling_mode_") and value and name not in ("pooling_mode_cls_token", "pooling_mode_mean_tokens"):
            raise ConfigError(f"{folder}: {name} is not supported")
    if not (folder / "tokenizer.json").exists():
        raise ConfigError(f"{folder} has no tokenizer.json")


def _trained_tokens(folder: Path) -> int | None:
    """The length of text that the model was made for, with what stands around it."""
    length: int | None = _read(folder / "sentence_bert_config.json").get("max_seq_length")
    return length


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is no file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    return value if isinstance(value, dict) else {}
