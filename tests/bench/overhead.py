"""What the gateway costs per request beside nginx: runs the load ruler of TOLLWAY_RULER against a gateway with everything on.

    TOLLWAY_RULER=… python tests/bench/overhead.py [--rows saturation,single] [--seconds 3]

Key, budget, journal and ledger on SQLite, metrics, log, response cache and decision records are all in use. Quote ratios and CPU
microseconds per request, never absolute rates: see the ruler's own words.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
[server]
port = {port}
workers = {workers}
[storage]
state_dir = "{state}"
database_url = "{database}"
redis_url = "{redis}"

[[backends]]
name = "fast"
vendor = "openai-compatible"
model = "fast"
base_url = "http://127.0.0.1:9100/v1"
price = {{ input = "0.15", output = "0.60" }}
max_output_tokens = 4096

[[backends]]
name = "paced"
vendor = "openai-compatible"
model = "paced"
base_url = "http://127.0.0.1:9102/v1"
price = {{ input = "0.15", output = "0.60" }}
max_output_tokens = 4096

[[routes]]
name = "fast"
backends = ["fast"]

[[routes]]
name = "paced"
backends = ["paced"]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="single,saturation,burst,paced")
    parser.add_argument("--seconds", default="3")
    parser.add_argument("--port", type=int, default=4321)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--database", default="")
    parser.add_argument("--redis", default="")
    arguments = parser.parse_args()
    ruler = os.environ.get("TOLLWAY_RULER")
    if not ruler:
        print("skipped: TOLLWAY_RULER names no folder with a load ruler (run.py, mock.c, load.c)")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "tollway.toml"
        config.write_text(
            CONFIG.format(
                port=arguments.port,
                workers=arguments.workers,
                state=Path(folder) / "state",
                database=arguments.database,
                redis=arguments.redis,
            )
        )
        tollway = [sys.executable, "-m", "gateway", "--config", str(config)]

        def cli(*words: str) -> str:
            done = subprocess.run([*tollway, *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
            return done.stdout.strip()

        cli("migrate")
        cli("teams", "add", "bench")
        key = cli("keys", "add", "--team", "bench", "--quiet")
        cli("budgets", "set", "--team", "bench", "--usd", "100000", "--per", "month")
        rows = ["--rows", arguments.rows, "--seconds", arguments.seconds]
        command = [sys.executable, str(Path(ruler) / "run.py"), "--port", str(arguments.port), "--key", key, *rows, "--", *tollway, "serve"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
