"""What a request asked for beside its prompt, what its backend was sent without, and why the response cache did not answer: in words, and
as values for JSON. Knows no table and no HTML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.cache.response import KEY_MOST_BYTES
from gateway.routing.decision import Asked

CACHE_WORDS = {  # by the words of cache/response.py
    "off": "bypassed: the response cache is switched off",
    "route": "bypassed: this route never uses it",
    "temperature": "bypassed: the temperature was not 0",
    "no_store": "bypassed: the client sent no-store",
    "too_large": f"bypassed: the request is over {KEY_MOST_BYTES // 1024} KiB",
    "absent": "miss: no such answer was stored; this one was not stored either: not whole, too large, or the store was away",
    "stored": "miss: no such answer was stored; this one is now",
    "fresh": "miss: the client wanted no stored answer; this one was not stored: not whole, too large, or the store was away",
    "fresh_stored": "miss: the client wanted no stored answer; this one is stored now",
    "partial": "hit in part: some inputs were stored",
    "partial_stored": "hit in part: some inputs were stored, and the others are now",
}
COUNTED = {"tools": ("tool", "tools"), "n": ("answer", "answers"), "stop": ("stop sequence", "stop sequences")}
COUNTED |= {"stop_sequences": COUNTED["stop"], "logit_bias": ("biased token", "biased tokens")}


def cache_words(asked: Asked | None, row: Mapping[str, Any]) -> str:
    """What the response cache said. row: of the usage table. A request that it served has no record: its row says so."""
    if row["outcome"] == "cached":
        return "hit: a stored answer" if row["saved"] else "hit: a stored answer, or that of the same request while it ran"
    if asked is None:
        return "not kept"
    return CACHE_WORDS.get(asked.cache, "not asked")


def parameters(asked: Asked) -> list[str]:
    """temperature 0.3, max_tokens 1024, 2 tools."""
    found = [_parameter(name, value) for name, value in asked.parameters]
    return [*found, f"max_tokens lowered to {asked.lowered}"] if asked.lowered is not None else found


def _parameter(name: str, value: bool | int | float | str) -> str:
    if name in COUNTED and isinstance(value, int):
        return f"{value} {COUNTED[name][value != 1]}"
    if isinstance(value, bool):
        return f"{name} {'true' if value else 'false'}"
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def document(asked: Asked | None) -> dict[str, Any] | None:
    """As values for JSON; None where nothing is known."""
    if asked is None:
        return None
    told = {"parameters": dict(asked.parameters), "dropped": list(asked.dropped), "max_tokens_lowered_to": asked.lowered}
    return told | {"cache": asked.cache or None}
