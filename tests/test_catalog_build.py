"""Settings and price book become the catalog: what a vendor's row gives, what the settings change, whose price counts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.catalog import Price
from gateway.catalog_build import build, vendor_of
from gateway.routing.features import Features
from gateway.routing.router import Router
from gateway.settings import BackendSettings, CacheSettings, PriceSettings, RouteSettings, Settings, TraitSettings
from providers.dialects import Quirks
from providers.vendors import VENDORS

HOSTED = BackendSettings(name="mini", vendor="openai", model="gpt-4o-mini", api_key="env:OPENAI_API_KEY")
HOUSE = BackendSettings(
    name="house",
    vendor="vllm",
    model="qwen",
    base_url="http://10.0.0.7:8000/v1",
    price=PriceSettings(input="0", output="0.000000001"),
    capabilities=("tools",),
    labels={"region": "eu"},
    token_factor=1.2,
)
BOOK = {("openai", "gpt-4o-mini"): Price(id="book:1", input=150_000_000, output=600_000_000)}


def test_a_backend_takes_from_its_vendor_what_it_does_not_say() -> None:
    found = build(Settings(backends=(HOSTED, HOUSE)), {}).backends
    assert found["mini"].base_url == VENDORS["openai"].base_url
    assert found["mini"].capabilities == VENDORS["openai"].capabilities - {"audio"}, "which gpt-4o-mini does not hear"
    assert found["house"].base_url == "http://10.0.0.7:8000/v1"
    assert found["house"].capabilities == {"tools"}
    assert found["house"].labels == {"region": "eu"}
    assert (found["mini"].token_factor, found["house"].token_factor) == (1.0, 1.2)


def test_a_backend_chooses_among_its_vendors_languages() -> None:
    own = BackendSettings(name="own", vendor="tollway", model="m", base_url="http://10.0.0.8:4000/v1", dialect="anthropic_messages")
    found = build(Settings(backends=(own,)), {}).backends["own"]
    assert found.dialect == "anthropic_messages"
    assert found.capabilities == VENDORS["anthropic"].capabilities
    wrong = BackendSettings(name="wrong", vendor="openai", model="m", dialect="klingon")
    with pytest.raises(ValueError, match=r'backends.wrong.dialect: the vendor openai does not speak "klingon"'):
        build(Settings(backends=(wrong,)), {})


def test_the_price_book_fills_in_and_the_settings_win() -> None:
    own = BackendSettings(name="own", vendor="openai", model="gpt-4o-mini", price=PriceSettings(input="9", output="9"))
    found = build(Settings(backends=(HOSTED, HOUSE, own)), BOOK).backends
    assert found["mini"].price == BOOK["openai", "gpt-4o-mini"]
    assert found["own"].price is not None
    assert found["own"].price.input == 9 * 10**9
    assert found["house"].price is not None
    assert (found["house"].price.input, found["house"].price.output) == (0, 1)


def test_an_unknown_price_is_none_and_not_zero() -> None:
    assert build(Settings(backends=(HOSTED,)), {}).backends["mini"].price is None


def test_without_routes_each_backend_is_one() -> None:
    found = build(Settings(backends=(HOSTED, HOUSE), cache=CacheSettings(ttl_s=7)), {}).routes
    assert {name: route.backends for name, route in found.items()} == {"mini": ("mini",), "house": ("house",)}
    assert found["mini"].cache_ttl_s == 7


def test_a_route_may_keep_answers_for_longer() -> None:
    routes = (RouteSettings(name="a", backends=("mini",), cache_ttl_s=9), RouteSettings(name="b", backends=("mini",)))
    found = build(Settings(backends=(HOSTED,), routes=routes, cache=CacheSettings(ttl_s=7)), {}).routes
    assert (found["a"].cache_ttl_s, found["b"].cache_ttl_s) == (9, 7)


@pytest.mark.parametrize("change", [{"model": "gpt-4o"}, {"parallel": 3}, {"labels": {"a": "b"}}, {"capabilities": ("tools",)}])
def test_the_version_names_the_content(change: dict[str, object]) -> None:
    base: dict[str, object] = {"name": "mini", "vendor": "openai", "model": "gpt-4o-mini"}

    def version(**fields: object) -> str:
        return build(Settings(backends=(BackendSettings(**(base | fields)),)), BOOK).version  # type: ignore[arg-type]

    assert version() == version()
    assert version(**change) != version()
    assert build(Settings(backends=(HOSTED,)), BOOK).version != build(Settings(backends=(HOSTED,)), {}).version


# ---- what models take ---------------------------------------------------------------------------------------------------------------
def quirks_of(**fields: object) -> Quirks:
    return vendor_of(BackendSettings(name="b", **fields)).quirks  # type: ignore[arg-type]


def test_the_models_family_fills_in_maxima_and_refusals() -> None:
    thinker = BackendSettings(name="t", vendor="openai", model="gpt-5-mini")
    found = build(Settings(backends=(thinker,)), {}).backends["t"]
    assert (found.context_tokens, found.max_output_tokens) == (400_000, 128_000)
    assert {"temperature", "stop"} <= found.refuses
    own = BackendSettings(name="t", vendor="openai", model="gpt-5-mini", context_tokens=1000, max_output_tokens=100)
    found = build(Settings(backends=(own,)), {}).backends["t"]
    assert (found.context_tokens, found.max_output_tokens) == (1000, 100)


def test_a_deployment_is_known_by_the_models_public_name() -> None:
    deployment = {"vendor": "azure_openai", "model": "our-deployment", "account": "contoso"}
    assert "temperature" not in quirks_of(**deployment).refuse
    assert "temperature" in quirks_of(**deployment, known_as="gpt-5-mini").refuse


def test_lenient_is_dropped_and_named_in_place_of_refused() -> None:
    quirks = quirks_of(vendor="openai", model="o3", unsupported="drop")
    assert quirks.refuse == frozenset() and {"temperature", "stop"} <= quirks.drop
    lenient = BackendSettings(name="b", vendor="openai", model="o3", unsupported="drop")
    assert build(Settings(backends=(lenient,)), {}).backends["b"].refuses == frozenset()


def test_a_backends_own_traits_win() -> None:
    own = TraitSettings(
        token_limit="max_tokens",
        take=("temperature",),
        drop=("stop",),
        refuse=("seed",),
        system="first",
        developer="system",
        thinking="none",
    )
    quirks = quirks_of(vendor="openai", model="o3", traits=own)
    assert quirks.token_limit == "max_tokens"
    assert "temperature" not in quirks.refuse and "stop" not in quirks.refuse
    assert "stop" in quirks.drop and "seed" in quirks.refuse
    assert quirks.system_first and quirks.roles == {"developer": "system"} and quirks.thinking == "none"
    assert not quirks_of(vendor="vllm", model="m", traits=TraitSettings(system="anywhere")).system_first
    assert quirks_of(vendor="vllm", model="m", traits=TraitSettings(developer="developer")).roles == {}


def test_hardware_by_the_hour_has_a_marginal_price_that_nobody_is_charged() -> None:
    plain = BackendSettings(name="plain", vendor="openai", model="gpt-4o-mini", hourly_usd="0.40")
    priced = BackendSettings(name="priced", vendor="vllm", model="m", hourly_usd="2", price=PriceSettings(input="0.01", output="0.03"))
    found = build(Settings(backends=(plain, priced, HOSTED)), BOOK).backends
    assert found["plain"].hourly_nanousd == 400_000_000
    assert found["plain"].price == Price(id="hourly:plain:400000000", input=0, output=0), "not that of the book"
    assert found["priced"].hourly_nanousd == 2 * 10**9
    assert found["priced"].price == Price(id="hourly:priced:2000000000", input=10_000_000, output=30_000_000)
    assert found["mini"].hourly_nanousd is None


@pytest.mark.parametrize("usd", ["-1", "0.0000000001", "much", "1000001"])
def test_an_hourly_rate_that_cannot_be_is_refused_by_name(usd: str) -> None:
    with pytest.raises(ValueError, match="backend 'a': hourly_usd"):
        build(Settings(backends=(BackendSettings(name="a", vendor="vllm", model="m", hourly_usd=usd),)), {})


def test_routing_compares_what_one_request_more_costs() -> None:
    """By the hour a request more costs nothing, or the marginal price: so it is asked before a cheap hosted one."""
    own = BackendSettings(name="own", vendor="vllm", model="m", hourly_usd="100")
    metered = BackendSettings(name="metered", vendor="vllm", model="m", hourly_usd="1", price=PriceSettings(input="1", output="1"))
    cheap = BackendSettings(name="cheap", vendor="vllm", model="m", price=PriceSettings(input="0.01", output="0.01"))
    routes = (RouteSettings(name="assistant", backends=("metered", "cheap", "own")),)
    catalog = build(Settings(backends=(own, metered, cheap), routes=routes), {})
    features = Features(
        route="assistant", dialect="openai_chat", input_tokens=1000, input_tokens_upper=1000, expected_output_tokens=1000, budgeted=True
    )
    choice = Router().plan(features, catalog.routes["assistant"], catalog, 0.0, 0.5)
    assert [backend.name for backend in choice.plan] == ["own", "cheap", "metered"]
    assert {one.backend: one.cost for one in choice.decision.candidates} == {"own": 0, "cheap": 20_000, "metered": 2_000_000}


def test_a_page_of_figures_is_for_servers_whose_page_is_known() -> None:
    assert vendor_of(replace(HOUSE, metrics_url="http://10.0.0.7:9000/metrics")).page is not None
    with pytest.raises(ValueError, match=r"backends\.mini\.metrics_url: what openai publishes is not known; .* vllm"):
        vendor_of(replace(HOSTED, metrics_url="http://10.0.0.7:9000/metrics"))
