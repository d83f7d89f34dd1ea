"""`tollway route`: the choice that would be made, told and recomputed, and nobody called."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Tollway

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
    assert said.out.strip().endswith("recomputed: agrees")
    hurried = tollway("route", "hello there", "--route", "assistant", "--ttft-ms", "500")
    assert "1. quick" in hurried.out and "ttft 500 ms" in hurried.out
    elsewhere = tollway("route", "hello there", "--route", "assistant", "--labels", "residency=eu")
    assert "the client would be told: No backend of route 'assistant' carries the label residency=eu" in elsewhere.out
    assert "there is no route 'banana'; there are: assistant" in tollway("route", "x", "--route", "banana").err
