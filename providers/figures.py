"""What an engine says of itself: how many wait and run, what is still to be computed, its KV cache, what its prefix cache saved.

Self-hosted servers publish it as a page in Prometheus' text format: `Page` names where and how, `read` takes the figures out. The page is a
stranger's: what cannot be read says nothing, and looking costs a search per name. Knows no connection and no router.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from providers.errors import BadAnswer

LINES_MOST = 128  # of one name: beyond it the page is not that of one engine
LINE_MOST = 1024  # bytes; with the former what a hostile page costs
LARGEST = 1e15


class Times(Struct, frozen=True):
    """A histogram: bounds in seconds, counts between them (one more, for what is beyond), the sum in seconds; since its engine started."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Figures(Struct, frozen=True, kw_only=True):
    """One moment of an engine, all its clients together; None = it does not say. Totals count from its start.

    waiting, running: requests. prefill_tokens: of accepted prompts, still to be computed. kv_share: of the KV cache in use, 0 to 1.
    """

    waiting: int | None = None
    running: int | None = None
    prefill_tokens: int | None = None
    kv_share: float | None = None
    kv_bytes_used: int | None = None
    kv_bytes_cap: int | None = None
    kv_blocks_used: int | None = None
    kv_blocks_free: int | None = None  # those that hold known tokens included
    kv_blocks_shared: int | None = None  # of those in use, held by more than one request
    prompt_tokens: int | None = None  # total
    prefix_hit_tokens: int | None = None  # total, of them found in the prefix cache
    output_tokens: int | None = None  # total
    preemptions: int | None = None  # total: requests that gave their place back
    steps: int | None = None  # total
    batch: int | None = None  # sequences in the last step
    device_memory_used_bytes: int | None = None  # of its GPU, by all processes
    device_memory_bytes: int | None = None
    device_busy_share: float | None = None
    time_to_first_token: Times | None = None
    time_per_output_token: Times | None = None
    step: Times | None = None


TIMES = ("time_to_first_token", "time_per_output_token", "step")
NAMES = tuple(name for name in Figures.__struct_fields__ if name not in TIMES)
TOTALS = frozenset({"prompt_tokens", "prefix_hit_tokens", "output_tokens", "preemptions", "steps"})
SHARES = frozenset({"kv_share", "device_busy_share"})  # joined by their mean; all others are added up


def metric(name: str) -> str:
    """Under which name we publish a figure or times."""
    return f"tollway_engine_{name}" + ("_total" if name in TOTALS else "_seconds" if name in TIMES else "")


class NoFigures(BadAnswer):
    """This backend publishes nothing of itself, or nothing that is known of its kind."""


class Page(Struct, frozen=True, kw_only=True):
    """Where a kind of server publishes its figures, and under which names: the first that is on the page counts.

    copies: labels of processes that say the same twice. parts: labels whose lines are parts of the line without them.
    """

    names: Mapping[str, tuple[str, ...]]
    path: str = "/metrics"
    copies: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()


VLLM = Page(  # https://docs.vllm.ai/en/stable/usage/metrics/, and the names of its first engine
    names={
        "waiting": ("vllm:num_requests_waiting",),
        "running": ("vllm:num_requests_running",),
        "kv_share": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "prompt_tokens": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "vllm:prompt_tokens_total"),
        "prefix_hit_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        "output_tokens": ("vllm:generation_tokens_total",),
        "preemptions": ("vllm:num_preemptions_total",),
    },
)
SGLANG = Page(  # https://docs.sglang.io/docs/references/production_metrics
    names={
        "waiting": ("sglang:num_queue_reqs",),
        "running": ("sglang:num_running_reqs",),
        "kv_share": ("sglang:token_usage",),
        "prompt_tokens": ("sglang:prompt_tokens_total",),
        "prefix_hit_tokens": ("sglang:cached_tokens_total",),
        "output_tokens": ("sglang:generation_tokens_total",),
    },
    copies=frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"}),
    parts=frozenset({"priority"}),
)
LLAMACPP = Page(  # https://github.com/ggml-org/llama.cpp/tree/master/tools/server, with --metrics; newer ones tell no KV use
    names={
        "waiting": ("llamacpp:requests_deferred",),
        "running": ("llamacpp:requests_processing",),
        "kv_share": ("llamacpp:kv_cache_usage_ratio",),
        "prompt_tokens": ("llamacpp:prompt_tokens_total",),
        "prefix_hit_tokens": ("llamacpp:prompt_tokens_cached_total",),
        "output_tokens": ("llamacpp:tokens_predicted_total",),
    },
)
TGI = Page(  # https://huggingface.co/docs/text-generation-inference/reference/metrics
    names={"waiting": ("tgi_queue_size",), "running": ("tgi_batch_current_size",)},
)
TOLLWAY = Page(names={name: (metric(name), f"tollway_engine_{name}") for name in NAMES})  # 0.1 had no _total

_LABEL = re.compile(r'(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*+)="((?:[^"\\]|\\.)*+)"')  # no way back: a hostile line costs its length


def page_url(base_url: str, page: Page) -> str:
    """The page's address, beside the API's: http://host:8000/v1 -> http://host:8000/metrics."""
    return base_url.rstrip("/").removesuffix("/v1") + page.path


def read(text: bytes, page: Page) -> Figures:
    """The figures on a page. Raises NoFigures where none of its names is there."""
    found: dict[str, float] = {}
    for figure, names in page.names.items():
        for name in names:
            value = _joined(text, name, page, figure in SHARES)
            if value is not None:
                found[figure] = value
                break
    if not found:
        raise NoFigures(f"the page holds none of the names that were looked for, such as {next(iter(page.names.values()))[0]}")
    return Figures(**{name: value if name in SHARES else int(value) for name, value in found.items()})  # type: ignore[arg-type]


def _joined(text: bytes, name: str, page: Page, share: bool) -> float | None:
    """The values of one name as one: copies counted once, then added up; of shares the mean."""
    values: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in _series(text, name):
        if any(labels.get(part) for part in page.parts):
            continue
        key = tuple(sorted((label, said) for label, said in labels.items() if label not in page.copies))
        values[key] = max(value, values.get(key, 0.0))
    if not values:
        return None
    total = sum(values.values())
    return min(total / len(values), 1.0) if share else min(total, LARGEST)


def _series(text: bytes, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """Labels and value of each line of this name; what is no number, or less than nothing, is left out."""
    sought, at = name.encode(), -1
    for _ in range(LINES_MOST):
        at = text.find(sought, at + 1)
        if at < 0:
            return
        end = text.find(b"\n", at, at + LINE_MOST)
        if (at and text[at - 1 : at] != b"\n") or (end < 0 and len(text) - at > LINE_MOST):
            continue
        line = text[at + len(sought) : end if end >= 0 else len(text)].decode("utf-8", "replace")
        labels, closed, rest = line.rpartition("}") if line.startswith("{") else ("", "}", line)
        value = _number(rest) if closed and (labels or line[:1].isspace()) else None
        if value is not None:
            yield dict(_LABEL.findall(labels)), value


def _number(rest: str) -> float | None:
    """The value after a name; a time stamp may follow it."""
    words = rest.split(None, 2)
    try:
        value = float(words[0]) if words else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0.0 else None
