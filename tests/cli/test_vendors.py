"""`tollway vendors`: the table is whole, and what it says is what the rows say."""

from __future__ import annotations

import json

import pytest

from gateway.cli.vendors import vendors
from providers.vendors import VENDORS


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    vendors()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["vendor", "language", "address", "key", "carries"]
    assert [line.split()[0] for line in lines[1:]] == sorted(VENDORS)
    groq = next(line for line in lines if line.startswith("groq "))
    assert "https://api.groq.com/openai/v1" in groq and "tools" in groq and "logprobs" not in groq


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    vendors(shape="json")
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(found) == set(VENDORS)
    assert found["azure_openai"]["account"] == "the name of the Azure OpenAI resource"
    assert found["mistral"]["quirks"]["names"] == {"seed": "random_seed"}
    assert found["mistral"]["quirks"]["usage_option"] is False
    assert found["groq"]["capabilities"] == ["images", "json_mode", "json_schema", "tools"]
