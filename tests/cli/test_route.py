"""`tollway route`: the choice that would be made, told and recomputed, and nobody called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Tollway
from tests.fakes.upstream import refused_url

CONFIG = """
[[backends]]
name = "cheap"
vendor = "openai-compatible"
model = "m"
base_url = "http://127.0.0.1:9/v1"
price = { input = "1", output = "1" }
ttft_prior_ms = 2000

[[backends]]
name = "quick"
vendor = "openai-compatible"
model = "m"
base_url = "http://127.0.0.1:9/v1"
price = { input = "5", output = "5" }
ttft_prior_ms = 100

[[routes]]
name = "assistant"
backends = ["cheap", "quick"]
"""


def test_where_a_request_would_go_and_why(tollway: Tollway) -> None:
    Path("tollway.toml").write_text(CONFIG)
    said = tollway("route", "hello there", "--route", "assistant", "--max-tokens", "50")
    assert said.status == 0, said.err
    assert "1. cheap" in said.out and "2. quick" in said.out and "50 output tokens expected" in said.out
    assert said.out.startswith("by priors; ") and said.out.strip().endswith("recomputed: agrees")
    hurried = tollway("route", "hello there", "--route", "assistant", "--ttft-ms", "500")
    assert "1. quick" in hurried.out and "ttft 500 ms" in hurried.out
    misspelt = tollway("route", "hello there", "--route", "assistant", "--labels", "residency")
    assert misspelt.err.startswith("tollway: x-tollway-labels: 'residency' are no labels: write ")
    elsewhere = tollway("route", "hello there", "--route", "assistant", "--labels", "residency=eu")
    assert "the client would be told: No backend of route 'assistant' carries the label residency=eu" in elsewhere.out
    assert "there is no route 'banana'; there are: assistant" in tollway("route", "x", "--route", "banana").err


def test_without_a_gateway_the_priors_speak_and_say_so(tollway: Tollway, monkeypatch: pytest.MonkeyPatch) -> None:
    port = refused_url().rpartition(":")[2]
    Path("tollway.toml").write_text(f"[server]\nport = {port}\n{CONFIG}")
    monkeypatch.setenv("TOLLWAY_ADMIN_KEY", "tw-x")
    said = tollway("route", "hello there", "--route", "assistant")
    assert said.status == 0 and said.out.startswith(f"by priors; no gateway answers at http://127.0.0.1:{port}\n"), said.err
    assert "1. cheap" in said.out


def test_a_wrong_objective_is_named(tollway: Tollway) -> None:
    Path("tollway.toml").write_text(CONFIG)
    for option, value in (("--ttft-ms", "0"), ("--ttft-ms", "-5"), ("--tpot-ms", "-1"), ("--deadline-ms", "0"), ("--max-tokens", "0")):
        said = tollway("route", "hello there", "--route", "assistant", option, value)
        assert said.status == 1 and said.err.startswith(f"tollway: {option}: expected "), said.err
