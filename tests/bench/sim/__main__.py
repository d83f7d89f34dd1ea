"""`make bench-router`: the router beside its peers in five scenarios, on a public trace or any other of the same columns.

    python -m tests.bench.sim --trace FILE --begin 900 --end 1800 --seeds 1,2,3 --scenarios normal,hang

Prints Markdown; --write puts it and the plot into docs/routing.md. Data: the folder named by TOLLWAY_ROUTING_DATA.
"""

from __future__ import annotations

import argparse
import os
import re
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import msgspec

from gateway.settings import Routing
from tests.bench.sim import cost, policies, summary, traces, world
from tests.bench.sim.run import Clock, Policy, Result, Simulation, World, build
from tests.bench.sim.summary import Figures

DOCS = Path(__file__).parents[3] / "docs"
MARGINS = tuple(0.5 + 0.05 * step for step in range(10))
MARK = "<!-- bench-router -->"
WARM_UP_S = 120.0
COLD = "tollway, cold"
HEDGED = "tollway, hedging"


class Job(msgspec.Struct, frozen=True):
    """One run, small enough to be sent to another process."""

    policy: str
    scenario: str
    seed: int
    trace: str
    begin: float
    end: float
    target: str = ""
    settings: Routing = Routing()
    warm: float = 0.0  # seconds before `begin` that are played but not counted


@cache
def _published() -> dict[tuple[str, str], list[tuple[float, float, str]]]:
    return world.published(data() / "llmperf_requests.csv")


@cache
def _trace(name: str, seed: int) -> list[traces.Asked]:
    return traces.load(name, seed)


def data() -> Path:
    folder = os.environ.get("TOLLWAY_ROUTING_DATA", "")
    if not folder:
        raise SystemExit("TOLLWAY_ROUTING_DATA must name the folder with llmperf_requests.csv and the traces.")
    return Path(folder)


def make(job: Job, where: World) -> Policy:
    if job.policy.startswith("clairvoyant"):
        return policies.Clairvoyant(where, job.seed, float(job.policy.split()[1]))
    if job.policy.startswith("tollway"):
        settings = job.settings if job.policy == HEDGED else msgspec.structs.replace(job.settings, hedge_share=0.0)
        return policies.Ours(where, job.seed, settings, job.policy == COLD)
    kinds = {kind.name: kind for kind in (*policies.PEERS, policies.LocalFirst)}
    return kinds[job.policy](where, job.seed)


def results(job: Job) -> list[Result]:
    """The requests of one run, those of the warm-up left out."""
    trace = traces.cut(_trace(job.trace, job.seed), job.begin - job.warm, job.end)
    last = min(job.end, trace[-1].at)
    clock = Clock()
    where = build(_published(), job.seed, world.spells(job.scenario, job.target, job.begin, last - job.begin), clock)
    done = Simulation(where, clock, make(job, where), job.seed).run(trace)
    return [one for one in done if one.asked.at >= job.begin]


def run(job: Job) -> Figures:
    return summary.figures(results(job))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-router")
    parser.add_argument("--trace", default="", help="a file of Azure's or Mooncake's columns, or calm or bursts")
    parser.add_argument("--begin", type=float, default=900.0, help="seconds into the trace")
    parser.add_argument("--end", type=float, default=1800.0)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--scenarios", default=",".join(world.SCENARIOS))
    parser.add_argument("--policies", default="", help="names, separated by semicolons; empty: all")
    parser.add_argument("--target", default="", help="who suffers outage and hang; empty: the second cheapest hosted backend")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of [routing] for our policy")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put table and plot into docs/routing.md")
    return parser.parse_args()


def settings_of(pairs: list[str]) -> Routing:
    values = dict(pair.split("=", 1) for pair in pairs)
    return msgspec.convert(values, Routing, strict=False)


def main() -> None:
    asked = arguments()
    trace = asked.trace or str(data() / "azure_conv_first_1800s.csv.gz")
    ours = settings_of(asked.set)
    seeds = [int(seed) for seed in asked.seeds.split(",")]
    scenarios = asked.scenarios.split(",")
    names = asked.policies.split(";") if asked.policies else default_policies()
    curve = [f"clairvoyant {margin:.2f}" for margin in MARGINS]
    jobs = [
        Job(name, scenario, seed, trace, asked.begin, asked.end, asked.target, ours)
        for scenario in scenarios
        for name in [*names, *curve]
        for seed in seeds
    ]
    with ProcessPoolExecutor(asked.jobs) as pool:
        done = list(pool.map(run, jobs, chunksize=4) if asked.jobs > 1 else map(run, jobs))
    found: dict[tuple[str, str], list[Figures]] = {}
    for job, one in zip(jobs, done, strict=True):
        found.setdefault((job.scenario, job.policy), []).append(one)
    rows = {s: {name: summary.mean(found[s, name]) for name in names} for s in scenarios}
    curves = {s: [(f.met, f.usd) for f in (summary.mean(found[s, name]) for name in curve)] for s in scenarios}
    text = "\n\n".join([*(summary.table(s, rows[s], curves[s]) for s in scenarios), cost.text(cost.measure())])
    print(text)
    if asked.write:
        write(text, rows, curves)


def default_policies() -> list[str]:
    return ["tollway", HEDGED, *(kind.name for kind in policies.PEERS), policies.LocalFirst.name]


def write(text: str, rows: dict[str, dict[str, Figures]], curves: dict[str, list[tuple[float, float]]]) -> None:
    """Replace what stands between the marks of docs/routing.md, and the plot beside it."""
    page = DOCS / "routing.md"
    old = page.read_text(encoding="utf-8")
    new = re.sub(f"{MARK}.*{MARK}", lambda _: f"{MARK}\n{text}\n{MARK}", old, flags=re.DOTALL)
    page.write_text(new, encoding="utf-8")
    summary.plot(DOCS / "routing.svg", rows, curves)


if __name__ == "__main__":
    main()
