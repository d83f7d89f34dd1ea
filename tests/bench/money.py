"""What money costs per request: the same worker with and without admission, journal and ledger, turn by turn, under the load ruler.

    TOLLWAY_RULER=… python tests/bench/money.py [--rounds 5] [--seconds 3] [--database URL]

CPU microseconds per request of the worker, threads included, at 32 connections. Medians; on a busy machine look at the spread first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from gateway.published import publish
from gateway.settings import load
from tests.bench.overhead import CONFIG

ROOT = Path(__file__).resolve().parents[2]
MOST_US = 60.0  # what it may cost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", default="3")
    parser.add_argument("--port", type=int, default=4322)
    parser.add_argument("--database", default="")
    told = parser.parse_args()
    ruler = os.environ.get("TOLLWAY_RULER")
    if not ruler:
        print("skipped: TOLLWAY_RULER names no folder with a load ruler (run.py, mock.c, load.c)")
        return 0
    found: dict[str, list[float]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        key, settings = prepare(Path(folder), told)
        for number in range(told.rounds):
            for form in ("with", "without") if number % 2 == 0 else ("without", "with"):
                found[form].append(measure(Path(ruler), told, key, [form, "0", "--settings", str(settings)]))
            print(f"round {number + 1}: with {found['with'][-1]:.0f}, without {found['without'][-1]:.0f} CPU us per request", flush=True)
    each = [a - b for a, b in zip(found["with"], found["without"], strict=True)]
    costs = median(found["with"]) - median(found["without"])
    load_average = os.getloadavg()[0]
    print(f"with {median(found['with']):.0f}, without {median(found['without']):.0f}: money costs {costs:.0f} CPU us per request")
    print(f"pair by pair: median {median(each):.0f}, from {min(each):.0f} to {max(each):.0f}; load average {load_average:.1f}")
    return int(median(each) > MOST_US)


def prepare(folder: Path, told: argparse.Namespace) -> tuple[str, Path]:
    """A key of a team with a budget that nothing reaches, and the settings that the workers read."""
    config = folder / "tollway.toml"
    config.write_text(CONFIG.format(port=told.port, workers=1, state=folder / "state", database=told.database, redis=""))
    tollway = [sys.executable, "-m", "gateway", "--config", str(config)]

    def cli(*words: str) -> str:
        return subprocess.run([*tollway, *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    cli("migrate")
    cli("teams", "add", "bench")
    key = cli("keys", "add", "--team", "bench", "--quiet")
    cli("budgets", "set", "--team", "bench", "--usd", "100000", "--per", "month")
    settings = load(config, {})
    return key, publish(settings, settings.state)


def measure(ruler: Path, told: argparse.Namespace, key: str, worker: list[str]) -> float:
    """One run of the ruler's `saturation`; CPU microseconds per request."""
    options = ["--port", str(told.port), "--key", key, "--rows", "saturation", "--seconds", told.seconds, "--json"]
    command = [sys.executable, str(ruler / "run.py"), *options, "--", sys.executable, "-m", "tests.bench.money_worker", *worker]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    try:
        results, _ = json.JSONDecoder().raw_decode(done.stdout)
    except json.JSONDecodeError:
        sys.exit(f"the ruler failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    row = next(one for one in results if one["name"] == "gateway")["rows"]["saturation"]
    if row.get("failed") or row["err"]:
        sys.exit(f"requests failed: {row}")
    return float(row["gwcpu_us_req"])


if __name__ == "__main__":
    sys.exit(main())
