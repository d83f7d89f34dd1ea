"""Words of the semantic conventions: what a surface does, who a vendor is, what went wrong."""

from __future__ import annotations

import pytest

from gateway import gen_ai
from gateway.app import SURFACES
from providers.vendors import VENDORS


def test_every_surface_has_an_operation() -> None:
    assert {gen_ai.operation(dialect) for dialect in SURFACES.values()} == {"chat", "text_completion", "embeddings"}


@pytest.mark.parametrize(
    ("vendor", "name"),
    [("openai", "openai"), ("azure_openai", "azure.ai.openai"), ("xai", "x_ai"), ("vllm", "vllm"), ("", "tollway")],
)
def test_a_vendor_has_the_conventions_name_or_its_own(vendor: str, name: str) -> None:
    assert gen_ai.provider(vendor) == name


def test_every_translated_vendor_is_one() -> None:
    assert set(gen_ai.PROVIDERS) <= set(VENDORS)


@pytest.mark.parametrize(
    ("outcome", "code", "told"),
    [
        ("completed", "", ""),
        ("completed", "over_reserved", ""),
        ("cached", "", ""),
        ("failed", "upstream_unavailable", "upstream_unavailable"),
        ("refused", "budget_exceeded", "budget_exceeded"),
        ("failed", "", "_OTHER"),
        ("cancelled", "", "cancelled"),
    ],
)
def test_an_error_type_is_told_of_what_failed_alone(outcome: str, code: str, told: str) -> None:
    assert gen_ai.error_type(outcome, code) == told
