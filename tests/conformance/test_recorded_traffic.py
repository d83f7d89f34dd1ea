"""A sample of the recordings through a running gateway, with the folder's own replay server as upstream, over real sockets.

Of every vendor and language the smallest answer, whole and streamed, cut into pieces of different sizes on the wire; asked for on every
surface. tests/conformance.test_recorded_answers.py plays all of them, in process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import reading
from tests.conformance.recordings import FOLDER, LANGUAGES, SPOKEN, Record, answers, body, language, needed, records, stated, streamed
from tests.conformance.test_recorded_answers import across, gist
from tests.e2e.harness import Gateway, running

pytestmark = needed
CHUNKS = ("1", "2", "3", "event", "whole")
VENDORS = {"messages": 'vendor = "anthropic"', "chat": 'vendor = "openai-compatible"', "responses": 'vendor = "openai-compatible"'}
PATHS = {row[0]: row[2] for row in SPOKEN.values()}
DIALECTS = {row[0]: row[1] for row in SPOKEN.values()}


def sample() -> list[tuple[Record, str]]:
    """The smallest of each kind, with the size of the pieces in which it is written."""
    found: dict[tuple[str, str, bool], Record] = {}
    for record in sorted(answers(), key=lambda record: len(body(record))):
        found.setdefault((record["provider"], language(record), streamed(record)), record)
    return list(zip(found.values(), cycle(CHUNKS), strict=False))


def errors() -> list[Record]:
    return [record for record in records() if record["response"]["status"] != 200][::4]


@pytest.fixture(scope="module")
def replay() -> Iterator[str]:
    files = [str(path) for path in sorted(Path(FOLDER).glob("*.jsonl"))]
    command = [sys.executable, str(Path(FOLDER) / "replay.py"), *files, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"  # it tells its port once it listens
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def gateway(replay: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One route per recording, on a backend whose address picks it."""
    config = ""
    for record, chunk in [*sample(), *((record, "whole") for record in errors())]:
        name, spoken = record["id"], language(record)
        more = f'dialect = "{DIALECTS[spoken]}"' if spoken != "messages" else ""
        config += f'[[backends]]\nname = "{name}"\n{VENDORS[spoken]}\nmodel = "m"\napi_key = "env:UPSTREAM_KEY"\n{more}\n'
        config += f'base_url = "{replay}/x/{name};chunk={chunk};strict=0/v1"\nprice = {{ input = "3", output = "15" }}\n'
        config += 'capabilities = ["tools", "images", "json_schema", "json_mode", "n", "logprobs", "documents", "audio"]\n'
        config += f'[[routes]]\nname = "{name}"\nbackends = ["{name}"]\nmax_attempts = 1\n'
    with running(tmp_path_factory.mktemp("gateway"), config, UPSTREAM_KEY="recorded-key") as made:
        made.key("alpha")
        yield made


def ask(gateway: Gateway, surface: str, record: Record) -> tuple[int, str]:
    hello = [{"role": "user", "content": "hi"}]
    told: dict[str, Any] = {"model": record["id"], "stream": streamed(record)}
    if surface == "responses":
        told |= {"input": "hi", "store": False}
    else:
        told |= {"messages": hello}
    if surface == "messages":
        told["max_tokens"] = 1000
    if surface == "chat" and streamed(record):
        told["stream_options"] = {"include_usage": True}
    status, raw, _ = gateway.call("POST", PATHS[surface], json.dumps(told).encode(), gateway.keys["alpha"])
    return status, raw.decode()


@pytest.mark.parametrize("surface", LANGUAGES)
def test_a_running_gateway_gives_recorded_answers_as_they_were(gateway: Gateway, surface: str) -> None:
    wrong: dict[str, str] = {}
    for record, _chunk in sample():
        own = language(record) == surface
        status, text = ask(gateway, surface, record)
        assert status == 200, (record["id"], text)
        expected, found = stated(record), reading.said(surface, text, streamed(record))
        wanted, given = gist(expected, expected, every=own), gist(found, expected, every=own)
        if expected.usage is None:
            wanted["usage"] = given["usage"] = None
        if not own:
            across(record, surface, wanted, given)
        if wanted != given:
            wrong[record["id"]] = f"{wanted!r:.300} became {given!r:.300}"
        if streamed(record):
            assert "tollway-cost-usd" in text, record["id"]
    assert wrong == {}
    assert len(sample()) > 30


def test_a_running_gateway_gives_recorded_errors_their_status(gateway: Gateway) -> None:
    for record in errors():
        status, text = ask(gateway, language(record), record)
        recorded = record["response"]["status"]
        told = json.loads(text)["error"]
        if recorded in (401, 403):
            assert status == 502, (record["id"], text)  # the gateway's own key, which is no business of the client's
        elif recorded >= 500:
            assert status in (400, 502), (record["id"], text)
        else:
            assert status in (recorded, 502), (record["id"], text)
        assert told["message"]
