"""Replicas of one model with prefix caches: TTFT of our choice beside round robin's, on Mooncake's conversation trace.

python -m tests.bench.sim.affinity [--trace FILE] [--replicas 6] [--end 1200]

The last row is a bound that no choice can beat: each request alone on an idle replica that holds whatever was ever asked before.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gateway.settings import Routing
from tests.bench.sim import policies, summary, traces
from tests.bench.sim.__main__ import data
from tests.bench.sim.engine import BLOCK_TOKENS, Speed
from tests.bench.sim.run import Clock, Simulation, build

SPEED = Speed(step_s=0.012, prefill_s=1 / 14_000, decode_s=0.00008, chunk_tokens=2048, kv_tokens=500_000, sequences=64, prefix_blocks=6000)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sim.affinity")
    parser.add_argument("--trace", default="")
    parser.add_argument("--replicas", type=int, default=6)
    parser.add_argument("--begin", type=float, default=0.0)
    parser.add_argument("--end", type=float, default=1200.0)
    asked = parser.parse_args()
    trace = traces.cut(traces.load(asked.trace or str(data() / "mooncake_conversation_trace.jsonl.gz"), 1), asked.begin, asked.end)
    print(f"| policy, {asked.replicas} replicas, {len(trace)} requests | TTFT p50 s | TTFT p95 s |\n|---|---|---|")
    p95 = {}
    for name in ("round robin", "least busy", "tollway"):
        clock = Clock()
        where = build({}, 1, {}, clock, asked.replicas, SPEED)
        kinds = {kind.name: kind for kind in policies.PEERS}
        policy = kinds[name](where, 1) if name in kinds else policies.Ours(where, 1, Routing(hedge_share=0.0), goals=False)
        done = summary.figures(Simulation(where, clock, policy, 1).run(trace))
        p95[name] = done.ttft95_s
        print(f"| {name} | {done.ttft50_s:.2f} | {done.ttft95_s:.2f} |", flush=True)
    floor = alone(trace)
    print(f"| nobody waits, nothing is forgotten | {floor[len(floor) // 2]:.2f} | {floor[len(floor) * 95 // 100]:.2f} |")
    print(f"\ntollway's p95 is {p95['tollway'] / p95['round robin']:.2f} of round robin's")


def alone(trace: Sequence[traces.Asked]) -> list[float]:
    """Seconds to the first token, ascending: what is left to compute when all blocks that came before are known."""
    known: set[int] = set()
    times = []
    for asked in trace:
        blocks = next((i for i, name in enumerate(asked.prefix) if name not in known), len(asked.prefix))
        known.update(asked.prefix)
        fresh = asked.input_tokens - min(blocks * BLOCK_TOKENS, asked.input_tokens - 1)
        times.append(fresh * SPEED.prefill_s + -(-fresh // SPEED.chunk_tokens) * SPEED.step_s)
    return sorted(times)


if __name__ == "__main__":
    main()
