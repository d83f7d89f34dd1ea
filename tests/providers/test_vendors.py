"""The rows of the vendor table hold together."""

from __future__ import annotations

import re

import pytest

from providers import signers
from providers.dialects import DIALECTS
from providers.vendors import VENDORS, Vendor

NEEDS = {"tools", "images", "audio", "documents", "json_mode", "json_schema", "logprobs", "n"}
HTTP = [row for row in VENDORS.values() if row.dialect]


def test_the_promised_vendors_are_there() -> None:
    hosted = {
        "anthropic",
        "openai",
        "openai-compatible",
        "vllm",
        "ollama",
        "groq",
        "mistral",
        "together",
        "openrouter",
        "deepseek",
        "tollway",
    }
    assert set(VENDORS) == hosted | {"scripted", "local"}
    assert all(name == row.name for name, row in VENDORS.items())


@pytest.mark.parametrize("row", HTTP, ids=lambda row: row.name)
def test_row_can_be_used(row: Vendor) -> None:
    assert row.dialect in DIALECTS
    assert row.capabilities <= NEEDS
    assert row.path.startswith("/") and row.models_path.startswith("/")
    assert set(signers.headers(row.signer, "key").values()) == {"Bearer key" if row.signer == "bearer" else "key"}
    if row.base_url:
        assert re.fullmatch(r"https?://[a-z0-9.:/]+[^/]", row.base_url)
        assert row.base_url.startswith("https://") == row.key_required  # a key goes out only encrypted
        assert not row.address_required
    assert row.quirks.token_limit in ("max_tokens", "max_completion_tokens") or row.dialect != "openai_chat"


def test_rows_without_an_address_say_so() -> None:
    assert {row.name for row in VENDORS.values() if row.address_required} == {"openai-compatible", "tollway"}
    assert not VENDORS["local"].address_required


def test_a_further_language_changes_what_it_names_and_no_more() -> None:
    for row in HTTP:
        assert row.speaking("") is row.speaking(row.dialect) is row
        for dialect, speech in row.also.items():
            found = row.speaking(dialect)
            test_row_can_be_used(found)
            assert (found.dialect, found.path, found.capabilities) == (dialect, speech.path, speech.capabilities)
            assert (found.name, found.base_url, found.signer, found.prices) == (row.name, row.base_url, row.signer, row.prices)


@pytest.mark.parametrize(
    ("vendor", "known"), [("tollway", "anthropic_messages, openai_chat"), ("mistral", "openai_chat"), ("local", "none to choose from")]
)
def test_a_language_that_a_vendor_does_not_speak_is_refused_by_name(vendor: str, known: str) -> None:
    with pytest.raises(ValueError, match=f'the vendor {vendor} does not speak "klingon"; its languages: .*{known}'):
        VENDORS[vendor].speaking("klingon")


def test_price_list_names_exist() -> None:
    from genai_prices.data import providers

    known = {provider.id for provider in providers}
    assert {row.prices for row in VENDORS.values()} - {""} <= known
