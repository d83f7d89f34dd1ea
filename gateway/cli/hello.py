"""`tollway hello`: for a first try, a key and a request to copy, once the gateway answers. Knows no database: it asks other commands."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request

from gateway import listen
from gateway.child import environment, python
from gateway.cli import chosen_file, settings
from gateway.settings import Server, Settings

WAIT_S = 120.0
POLL_S = 0.1
COMMAND_TIMEOUT_S = 60.0
KEY_LIFE = "7d"


def hello() -> None:
    """Wait for the gateway of these settings, make a key of the team `default` that lives a week, print a request to copy."""
    chosen = settings()
    url = base_url(chosen.server)
    if not answers(f"{url}/health/live", WAIT_S):
        print(f"tollway: no gateway answered at {url} within {WAIT_S:g} s", file=sys.stderr)
        sys.exit(1)
    print(greeting(chosen, url, new_key()), flush=True)


def base_url(server: Server) -> str:
    """Where this machine reaches the gateway."""
    host = listen.reachable(server.host, server.port)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


def answers(url: str, within_s: float) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(POLL_S)
    return False


def new_key() -> str:
    """The text of a new key of the team that every first start makes."""
    file = chosen_file()
    config = () if file is None else ("--config", str(file))
    command = python("gateway", *config, "keys", "add", "--team", "default", "--name", "hello", "--expires", KEY_LIFE, "--quiet")
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    if done.returncode != 0:
        print(done.stderr.strip(), file=sys.stderr)
        sys.exit(1)
    return done.stdout.strip()


def greeting(chosen: Settings, url: str, key: str) -> str:
    """What to copy, and what to expect of it."""
    model = chosen.routes[0].name if chosen.routes else next((backend.name for backend in chosen.backends), "assistant")
    missing = [
        one.model
        for one in chosen.backends
        if one.vendor == "local" and not (chosen.storage.models_path / one.model / "config.json").exists()
    ]
    lines = [f"Tollway answers at {url}. A key for a first try, for {KEY_LIFE}: {key}"]
    if any(backend.vendor == "scripted" for backend in chosen.backends):
        lines.append(
            "The backend is a scripted stand-in. For a real small model on this machine: pip install 'tollway[local]', then start again."
        )
    lines += [f"The model {name} is on its way; until it is there the answer is 503 with Retry-After." for name in missing]
    lines += [
        "",
        f"curl -N {url}/v1/chat/completions -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\",
        f'  -d \'{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "What is a toll road?"}}]}}\'',
        "",
    ]
    if chosen.console.enabled:
        lines += [
            f"The console is at {url}/console. Sign in with the first admin key, which the gateway printed when it first started;",
            "for e-mail and password: tollway members add you@example.org --admin",
            "",
        ]
    return "\n".join(lines)
