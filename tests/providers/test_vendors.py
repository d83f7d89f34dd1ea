"""The rows of the vendor table hold together."""

from __future__ import annotations

import re

import pytest

from providers import signers
from providers.dialects import DIALECTS
from providers.vendors import VENDORS, Vendor, located

NEEDS = {"embeddings", "tools", "images", "audio", "documents", "json_mode", "json_schema", "logprobs", "n"}
HTTP = [row for row in VENDORS.values() if row.dialect]


def test_the_promised_vendors_are_there() -> None:
    promised = (
        "openai-compatible openai azure_openai azure_ai anthropic mistral groq deepseek xai together fireworks openrouter perplexity "
        "cerebras huggingface nvidia databricks snowflake cloudflare writer zai moonshot venice vllm sglang llamacpp ollama tgi lmstudio "
        "tollway scripted local"
    )
    assert set(VENDORS) == set(promised.split())
    assert all(name == row.name for name, row in VENDORS.items())


@pytest.mark.parametrize("row", HTTP, ids=lambda row: row.name)
def test_row_can_be_used(row: Vendor) -> None:
    assert row.dialect in DIALECTS
    assert row.capabilities <= NEEDS
    assert row.path.startswith("/") and row.models_path.startswith("/")
    assert set(signers.headers(row.signer, "key").values()) == {"Bearer key" if row.signer == "bearer" else "key"}
    assert row.source
    assert ("{account}" in row.base_url) == bool(row.account)
    assert ("{api_version}" in row.path + row.models_path) == bool(row.api_version)
    if row.base_url:
        assert re.fullmatch(r"https?://[a-z0-9.:/{}-]+[^/]", row.base_url)
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
    ("vendor", "known"),
    [
        ("tollway", "anthropic_messages, openai_chat"),
        ("mistral", "openai_chat"),
        ("local", "openai_embeddings"),
        ("scripted", "none to choose from"),
    ],
)
def test_a_language_that_a_vendor_does_not_speak_is_refused_by_name(vendor: str, known: str) -> None:
    with pytest.raises(ValueError, match=f'the vendor {vendor} does not speak "klingon"; its languages: .*{known}'):
        VENDORS[vendor].speaking("klingon")


def test_price_list_names_exist() -> None:
    from genai_prices.data import providers

    known = {provider.id for provider in providers}
    assert {row.prices for row in VENDORS.values()} - {""} <= known


def test_an_address_is_made_of_the_account_the_deployment_and_the_version() -> None:
    row = located(VENDORS["azure_openai"], "", "my deployment/2", "contoso", "")
    assert row.base_url + row.path == (
        "https://contoso.openai.azure.com/openai/deployments/my%20deployment%2F2/chat/completions?api-version=2024-10-21"
    )
    assert row.models_path == "/openai/models?api-version=2024-10-21"
    other = located(VENDORS["azure_openai"], "https://gate.example", "d", "", "2025-01-01-preview")
    assert other.base_url + other.path == "https://gate.example/openai/deployments/d/chat/completions?api-version=2025-01-01-preview"
    assert located(VENDORS["cloudflare"], "", "m", "a1b2", "").base_url == "https://api.cloudflare.com/client/v4/accounts/a1b2/ai/v1"
    assert located(VENDORS["openai"], "", "m", "", "") == VENDORS["openai"]


def test_paths_are_those_that_recorded_clients_called() -> None:
    """Of vendors whose path is not the usual one; read off recorded requests."""
    called = {
        "azure_ai": "/models/chat/completions?api-version=2024-05-01-preview",
        "cloudflare": "/client/v4/accounts/ACCOUNT/ai/v1/chat/completions",
        "databricks": "/serving-endpoints/chat/completions",
        "deepseek": "/chat/completions",
        "groq": "/openai/v1/chat/completions",
        "openrouter": "/api/v1/chat/completions",
        "perplexity": "/chat/completions",
        "snowflake": "/api/v2/cortex/v1/chat/completions",
        "venice": "/api/v1/chat/completions",
        "writer": "/v1/chat",
        "zai": "/api/paas/v4/chat/completions",
    }
    for name, path in called.items():
        row = located(VENDORS[name], "", "m", "ACCOUNT", "")
        assert (row.base_url + row.path).partition("://")[2].partition("/")[2] == path[1:], name
