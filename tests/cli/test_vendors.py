"""`tollway vendors`: the table is whole, and what it says is what the rows say."""

from __future__ import annotations

import json

import pytest

from gateway.cli.vendors import vendors
from providers.models import FAMILIES
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


def test_models(capsys: pytest.CaptureFixture[str]) -> None:
    vendors(models=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FAMILIES) + 1
    assert any(line.startswith("gpt-5 gpt-5-* ") and "temperature" in line and "400000" in line for line in lines)
    vendors(models=True, shape="json")
    found = json.loads(capsys.readouterr().out)
    assert [row["names"] for row in found] == [list(family.names) for family in FAMILIES]
    assert all(row["source"] for row in found)
