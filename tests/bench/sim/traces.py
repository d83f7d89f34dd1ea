"""Load to replay: public traces by their columns, and two synthetic ones. Knows no backend and no policy.

Azure 2023:  TIMESTAMP, ContextTokens, GeneratedTokens (csv, plain or gzip)
Mooncake:    timestamp (ms), input_length, output_length, hash_ids of 512-token blocks (jsonl, plain or gzip)
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from msgspec import Struct

INTERACTIVE_TTFT_S = 1.5
INTERACTIVE_TPOT_S = 0.060
RELAXED_DEADLINE_S = 60.0
RELAXED_SHARE = 0.30
TEAMS = 4


class Asked(Struct, gc=False):
    """One request of a trace. at: seconds since the trace's first; output_tokens is known to the world alone, never to a policy."""

    index: int
    at: float
    input_tokens: int
    output_tokens: int
    relaxed: bool = False
    team: int = 0
    prefix: tuple[int, ...] = ()  # chained names of its leading blocks


def load(name: str, seed: int) -> list[Asked]:
    """The requests of a file, or of `calm` or `bursts`; who is relaxed and which team asks is drawn by the seed."""
    rows = list(_synthetic(name, seed) if name in ("calm", "bursts") else _file(Path(name)))
    rows.sort(key=lambda row: row[0])
    draw = random.Random(f"who:{seed}")
    first = rows[0][0]
    return [
        Asked(i, at - first, max(1, tokens_in), max(1, tokens_out), draw.random() < RELAXED_SHARE, draw.randrange(TEAMS), prefix)
        for i, (at, tokens_in, tokens_out, prefix) in enumerate(rows)
    ]


Row = tuple[float, int, int, tuple[int, ...]]


def _file(path: Path) -> Iterator[Row]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    if text.lstrip().startswith("{"):
        for line in text.splitlines():
            one = json.loads(line)
            yield one["timestamp"] / 1000.0, one["input_length"], one["output_length"], tuple(one.get("hash_ids", ()))
        return
    for one in csv.DictReader(io.StringIO(text)):
        at = datetime.fromisoformat(one["TIMESTAMP"].strip()[:26])
        yield at.timestamp(), int(one["ContextTokens"]), int(one["GeneratedTokens"]), ()


def _synthetic(name: str, seed: int, seconds: float = 900.0, per_s: float = 4.0) -> Iterator[Row]:
    """Poisson arrivals with log-normal sizes about those of chat; `bursts`: every 120 s the rate is threefold for 20 s."""
    draw = random.Random(f"{name}:{seed}")
    at = 0.0
    while at < seconds:
        rate = per_s * (3.0 if name == "bursts" and at % 120.0 < 20.0 else 1.0)
        at += draw.expovariate(rate)
        tokens_in = min(12_000, int(draw.lognormvariate(math.log(800), 0.9)))
        tokens_out = min(1_000, int(draw.lognormvariate(math.log(140), 0.8)))
        yield at, tokens_in, tokens_out, ()


def cut(trace: list[Asked], begin_s: float, end_s: float) -> list[Asked]:
    """The requests of a span, their times kept, numbered anew."""
    kept = [one for one in trace if begin_s <= one.at < end_s]
    return [Asked(i, o.at, o.input_tokens, o.output_tokens, o.relaxed, o.team, o.prefix) for i, o in enumerate(kept)]
