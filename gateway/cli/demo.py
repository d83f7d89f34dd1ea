"""`tollway demo`: a gateway in a temporary folder, scripted backends, a little traffic of two teams, the report. Reaches nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gateway import listen
from gateway.child import environment, python
from gateway.cli.hello import answers

START_S = 60.0
STOP_S = 40.0
COMMAND_TIMEOUT_S = 60.0
SETTLE_S = 10.0  # for the last row to reach the database; it takes about a quarter of a second
TEAMS = ("search", "support")
QUESTIONS = ("What is a toll road?", "Name three bridges.", "Why is the sky blue?", "Say hello in five languages.")
CONFIG = """
[server]
port = {port}
drain_s = 2
[storage]
state_dir = "{state}"
[logging]
level = "warning"

[[backends]]                        # cheap, and out of order for a while
name = "self-hosted"
vendor = "scripted"
model = "small"
price = {{ input = "0.05", output = "0.15" }}
script = '''
ttft_s = 0.02
tpot_s = 0.001
text = "A short answer from the model on your own machine. "
[[sequence]]
times = 6
[[sequence]]
times = 3
error = "unavailable"
[[sequence]]
'''

[[backends]]
name = "hosted"
vendor = "scripted"
model = "large"
price = {{ input = "2.50", output = "10.00" }}
script = '''
ttft_s = 0.05
tpot_s = 0.001
text = "A longer and dearer answer, which the hosted model takes its time to give, word by word. "
'''

[[routes]]
name = "assistant"
backends = ["self-hosted", "hosted"]
"""


def demo(*, keep: bool = False) -> None:
    """Start it, send traffic, print what it cost and why.

    Parameters
    ----------
    keep
        Leave the gateway running until Ctrl-C.
    """
    with tempfile.TemporaryDirectory(prefix="tollway-demo-") as name:
        folder = Path(name)
        with listen.claim("127.0.0.1", 0) as claim:
            port = claim.getsockname()[1]
        (folder / "tollway.toml").write_text(CONFIG.format(port=port, state=folder / "state"))
        with gateway(folder, port) as url:
            show(folder, url)
            if keep:
                wait(folder, url)


@contextmanager
def gateway(folder: Path, port: int) -> Iterator[str]:
    """A running gateway's address; it is drained and gone afterwards."""
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command(folder, "serve"), env=clean(), stdout=log, stderr=log)
    try:
        if not answers(f"{url}/health/live", START_S):
            print((folder / "log").read_text()[-2000:], file=sys.stderr)
            sys.exit(1)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def show(folder: Path, url: str) -> None:
    keys = {}
    for team in TEAMS:
        tollway(folder, "teams", "add", team)
        keys[team] = tollway(folder, "keys", "add", "--team", team, "--quiet").strip()
    print(f"{url} serves one route, `assistant`, over two scripted backends. The cheap one fails for a while: watch the requests move.\n")
    last = ""
    for number in range(16):
        team = TEAMS[number % 3 % len(TEAMS)]
        headers = ask(
            url, keys[team], QUESTIONS[number % len(QUESTIONS)], deterministic=number % len(QUESTIONS) == 0
        )  # the first question's answer may be cached
        last = headers["x-tollway-request-id"]
        told = [headers.get(f"x-tollway-{name}", "-") for name in ("backend", "attempts", "cache", "cost-usd")]
        print(f"{team:8} backend {told[0]:12} attempts {told[1]}  cache {told[2]:5} {told[3]} USD")
    settled(url, keys[team], last)
    print("\n$ tollway report --by team,backend\n" + tollway(folder, "report", "--by", "team,backend"))
    print(f"$ tollway explain {last}\n" + tollway(folder, "explain", last))


def ask(url: str, key: str, question: str, *, deterministic: bool) -> Mapping[str, str]:
    """One whole answer's headers; an error answer is shown and ends the demo."""
    body = {
        "model": "assistant",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0 if deterministic else 1,
        "max_tokens": 64,
    }
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    request.add_header("authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return {name.lower(): value for name, value in answer.headers.items()}
    except urllib.error.HTTPError as error:
        with error:
            print(f"HTTP {error.code}: {error.read().decode(errors='replace')}", file=sys.stderr)
        sys.exit(1)


def settled(url: str, key: str, request_id: str) -> None:
    """Wait for the ledger row of the last request: those before it are there then, too."""
    request = urllib.request.Request(f"{url}/v1/requests/{request_id}", headers={"authorization": f"Bearer {key}"})
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except urllib.error.HTTPError as error:
            error.close()
            time.sleep(0.1)


def wait(folder: Path, url: str) -> None:
    key = tollway(folder, "keys", "add", "--team", TEAMS[0], "--quiet").strip()
    print(f"Serving at {url} until Ctrl-C; a key: {key}", flush=True)
    while True:
        time.sleep(3600)


def command(folder: Path, *arguments: str) -> list[str]:
    return python("gateway", "--config", str(folder / "tollway.toml"), *arguments)


def clean() -> dict[str, str]:
    """The environment without settings: the demo's are its own."""
    return {name: value for name, value in environment().items() if not (name.startswith("TOLLWAY_") and "__" in name)}


def tollway(folder: Path, *arguments: str) -> str:
    done = subprocess.run(command(folder, *arguments), env=clean(), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    if done.returncode != 0:
        print(f"tollway {' '.join(arguments)}: {done.stderr}", file=sys.stderr)
        sys.exit(1)
    return done.stdout
