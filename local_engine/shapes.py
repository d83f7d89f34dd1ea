"""Whether a model's weights have the sizes that its config.json says. Compiled arithmetic works on addresses and looks at no size again."""

from __future__ import annotations

from collections.abc import Mapping

from local_engine.errors import ConfigError
from local_engine.layers.linear import Quantised, Weight
from local_engine.loader import Shape


def check(shape: Shape, weights: Mapping[str, Weight]) -> None:
    """ConfigError names the first weight of another size; names that are not known here are somebody else's to refuse."""
    if shape.kv_heads < 1 or shape.heads % shape.kv_heads:
        raise ConfigError(f"config.json: {shape.heads} heads cannot share {shape.kv_heads} heads of keys and values")
    sizes = _sizes(shape)
    for name, weight in weights.items():
        part, _, kind = name.rpartition(".")
        wanted = sizes.get(part.rpartition(".")[2])
        if wanted is None or kind not in ("weight", "bias"):
            continue
        values = weight.values if isinstance(weight, Quantised) else weight
        size = tuple(values.shape)
        if size != (wanted if kind == "weight" else wanted[:1]):
            told = [" × ".join(map(str, one)) for one in (size, wanted if kind == "weight" else wanted[:1])]
            raise ConfigError(f"{name} is {told[0]} where config.json wants {told[1]}")
        if isinstance(weight, Quantised) and tuple(weight.scales.shape) != size[:1]:
            raise ConfigError(f"{name} has {weight.scales.shape[0]} scales for {size[0]} outputs")


def _sizes(s: Shape) -> dict[str, tuple[int, ...]]:
    """Of the weight of each part, [out, in]; a norm's is one number."""
    queries, keys = s.heads * s.head_dim, s.kv_heads * s.head_dim
    return {
        "embed_tokens": (s.vocab, s.hidden),
        "lm_head": (s.vocab, s.hidden),
        "q_proj": (queries, s.hidden),
        "k_proj": (keys, s.hidden),
        "v_proj": (keys, s.hidden),
        "o_proj": (s.hidden, queries),
        "gate_proj": (s.intermediate, s.hidden),
        "up_proj": (s.intermediate, s.hidden),
        "down_proj": (s.hidden, s.intermediate),
        "input_layernorm": (s.hidden,),
        "post_attention_layernorm": (s.hidden,),
        "norm": (s.hidden,),
        "q_norm": (s.head_dim,),
        "k_norm": (s.head_dim,),
    }
