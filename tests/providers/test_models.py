"""The table of families: which model is which, and what a vendor's row becomes for it."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from providers.dialects import DIALECTS
from providers.models import FAMILIES, UNKNOWN, Family, family_of, fitted
from providers.vendors import VENDORS

FORMS = {"", "none", "budget", "adaptive", "adaptive_only", "always"}
KNOWN = {"tools", "images", "audio", "documents", "json_mode", "json_schema", "logprobs", "n", "embeddings"}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.names[0])
def test_rows_hold_together(family: Family) -> None:
    assert family.source.startswith("https://")
    assert set(family.native) <= set(VENDORS)
    assert family.has | family.lacks <= KNOWN
    assert family.thinking in FORMS
    assert family.dialect in {"", *DIALECTS, "openai_embeddings", "openai_completions"}
    assert all(name == name.lower() for name in family.names)


def test_no_row_is_hidden_by_one_before_it() -> None:
    """A pattern's own text, stars taken out, must find its row."""
    for family in FAMILIES:
        for pattern in family.names:
            name = pattern.replace("*", "")
            found = family_of(name if fnmatchcase(name, pattern) else name + "x")
            assert found is family, (pattern, found.names)


@pytest.mark.parametrize(
    ("model", "context", "output"),
    [
        ("gpt-4o-mini", 128_000, 16_384),
        ("openai/gpt-4.1-2025-04-14", 1_047_576, 32_768),
        ("gpt-5-mini", 400_000, 128_000),
        ("gpt-5-chat-latest", 128_000, 16_384),
        ("o3", 200_000, 100_000),
        ("claude-sonnet-4-5-20250929", 1_000_000, 64_000),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 200_000, 64_000),
        ("anthropic/claude-opus-4-7", 1_000_000, 128_000),
        ("claude-3-5-haiku-latest", 200_000, 8_192),
        ("meta-llama/Llama-3.3-70B-Instruct", 131_072, None),
        ("some-model-of-ours", None, None),
    ],
)
def test_maxima_by_public_name(model: str, context: int | None, output: int | None) -> None:
    found = family_of(model)
    assert (found.context_tokens, found.max_output_tokens) == (context, output)


def test_an_unknown_model_is_as_its_vendor_says() -> None:
    assert family_of("m-basic") is UNKNOWN
    for row in VENDORS.values():
        assert fitted(row, UNKNOWN) == row


def test_what_a_vendors_own_api_refuses_holds_there_alone() -> None:
    o3 = family_of("openai/o3")
    at_home, elsewhere = fitted(VENDORS["openai"], o3).quirks, fitted(VENDORS["openrouter"], o3).quirks
    assert {"temperature", "stop", "logit_bias"} <= at_home.refuse
    assert elsewhere.refuse == VENDORS["openrouter"].quirks.refuse
    assert at_home.token_limit == "max_completion_tokens" and elsewhere.token_limit == "max_tokens"


def test_what_a_model_cannot_see_holds_everywhere() -> None:
    assert "images" not in fitted(VENDORS["vllm"], family_of("meta-llama/Llama-3.1-8B-Instruct")).capabilities
    assert "images" in fitted(VENDORS["vllm"], family_of("meta-llama/Llama-3.2-11B-Vision-Instruct")).capabilities
    assert "audio" in fitted(VENDORS["openai"], family_of("gpt-4o-audio-preview")).capabilities
    assert "audio" not in fitted(VENDORS["openai"], family_of("gpt-4o")).capabilities


@pytest.mark.parametrize(
    ("model", "form", "refused"),
    [
        ("claude-opus-4-7", "adaptive_only", {"temperature", "top_p", "top_k"}),
        ("claude-fable-5", "always", {"temperature", "top_p", "top_k"}),
        ("claude-opus-4-6", "adaptive", set()),
        ("claude-sonnet-4-5", "budget", set()),
        ("claude-3-5-sonnet-20241022", "none", set()),
        ("claude-unheard-of", "", set()),
    ],
)
def test_claudes_ways_of_thinking(model: str, form: str, refused: set[str]) -> None:
    quirks = fitted(VENDORS["anthropic"], family_of(model)).quirks
    assert (quirks.thinking, quirks.refuse) == (form, refused)
