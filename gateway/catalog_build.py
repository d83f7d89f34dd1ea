"""Settings and price book -> Catalog. Knows what a vendor row gives a backend; opens nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from gateway.catalog import Backend, Catalog, Price, QualityRule, Route
from gateway.money.owned import HOURLY
from gateway.money.pricing import NANO, nanousd, parse_price
from gateway.settings import BackendSettings, QualitySettings, RouteSettings, Settings, TraitSettings
from providers.dialects import Quirks
from providers.models import Family, family_of, fitted
from providers.vendors import VENDORS, Vendor, located

MOST_HOURLY = 1_000_000 * NANO


def build(settings: Settings, prices: Mapping[tuple[str, str], Price]) -> Catalog:
    """The catalog of the settings. prices: what the price book knows by (vendor, model); a price in the settings wins.

    Raises ValueError naming the backend and the field. Cross references were checked by settings.load.
    """
    backends = {one.name: backend_of(one, prices) for one in settings.backends}
    routes = {one.name: _route(one, settings.cache.ttl_s) for one in settings.routes}
    if not routes:  # without a policy each backend is asked for by its own name
        routes = {name: Route(name=name, backends=(name,), cache_ttl_s=settings.cache.ttl_s) for name in backends}
    told = msgspec.msgpack.encode((backends, routes), order="deterministic")  # sets have another order in each process
    return Catalog(version=hashlib.sha256(told).hexdigest()[:12], backends=backends, routes=routes)


def vendor_of(one: BackendSettings) -> Vendor:
    """The vendor's row as this backend uses it: language, address, paths, and what the model takes. The vendor must be known.

    Raises ValueError naming the backend for a language that the vendor does not speak, or an address of figures that it does not have.
    """
    row, family = VENDORS[one.vendor], family_of(one.known_as or one.model)
    try:
        row = row.speaking(one.dialect or (family.dialect if family.dialect in row.also else ""))
    except ValueError as error:
        raise ValueError(f"backends.{one.name}.dialect: {error}.") from None
    if one.metrics_url and row.page is None:
        readable = ", ".join(sorted(name for name, known in VENDORS.items() if known.page is not None))
        raise ValueError(f"backends.{one.name}.metrics_url: what {one.vendor} publishes is not known; pages are read of {readable}.")
    vendor = fitted(located(row, one.base_url, one.model, one.account, one.api_version), family)
    quirks = vendor.quirks
    if one.traits is not None:
        quirks = _with_traits(quirks, one.traits)
    if one.unsupported == "drop":
        quirks = replace(quirks, drop=quirks.drop | quirks.refuse, refuse=frozenset())
    if one.capabilities is not None:
        quirks = replace(quirks, takes=quirks.takes | frozenset(one.capabilities))
    return replace(vendor, quirks=quirks)


def _context(one: BackendSettings, family: Family, vendor: Vendor) -> int | None:
    """Of one prompt and its answer; a request for embeddings has many prompts, so nothing is known of their sum."""
    return None if vendor.dialect == "openai_embeddings" else one.context_tokens or family.context_tokens


def _with_traits(quirks: Quirks, own: TraitSettings) -> Quirks:
    """What a backend's own entry says of its model, over what is known of the model's family."""
    take = frozenset(own.take)
    roles = {role: other for role, other in quirks.roles.items() if role != "developer"}
    if own.developer == "system":
        roles["developer"] = "system"
    return replace(
        quirks,
        token_limit=own.token_limit or quirks.token_limit,
        refuse=(quirks.refuse - take - frozenset(own.drop)) | frozenset(own.refuse),
        drop=(quirks.drop - take - frozenset(own.refuse)) | frozenset(own.drop),
        takes=quirks.takes | take,
        system_first=quirks.system_first if not own.system else own.system == "first",
        roles=roles if own.developer else quirks.roles,
        thinking=own.thinking or quirks.thinking,
    )


def backend_of(one: BackendSettings, prices: Mapping[tuple[str, str], Price]) -> Backend:
    """One backend as `build` makes it."""
    vendor, family = vendor_of(one), family_of(one.known_as or one.model)
    price = parse_price(one.price, one.name) if one.price is not None else prices.get((one.vendor, one.model))
    hourly = None if one.hourly_usd is None else _hourly(one.hourly_usd, one.name)
    if hourly is not None:
        price = _marginal(price if one.price is not None else None, f"{HOURLY}{one.name}:{hourly}")
    return Backend(
        name=one.name,
        vendor=one.vendor,
        model=one.model,
        dialect=vendor.dialect,
        base_url=vendor.base_url,
        api_key=one.api_key,
        price=price,
        hourly_nanousd=hourly,
        capabilities=vendor.capabilities if one.capabilities is None else frozenset(one.capabilities),
        honours=vendor.honours,
        refuses=vendor.quirks.refuse,
        context_tokens=_context(one, family, vendor),
        max_output_tokens=one.max_output_tokens or family.max_output_tokens,
        token_factor=one.token_factor if one.token_factor is not None else (1.0 if one.vendor == "openai" else 1.5),
        parallel=one.parallel,
        rpm=one.rpm,
        tpm=one.tpm,
        prompt_cache_s=one.prompt_cache_s,
        own=vendor.own,
        labels=one.labels,
        ttft_prior_ms=one.ttft_prior_ms or 800.0,
        tpot_prior_ms=one.tpot_prior_ms or 20.0,
        connect_s=one.connect_s,
        first_byte_s=one.first_byte_s,
        idle_s=one.idle_s,
    )


def _hourly(text: str, backend: str) -> int:
    name = f"backend {backend!r}: hourly_usd"
    rate = nanousd(text, name)
    if rate > MOST_HOURLY:
        raise ValueError(f"{name}: {text} USD per hour is not believable")
    return rate


def _marginal(price: Price | None, price_id: str) -> Price:
    """What one request more costs on hardware that is paid for by the hour: nothing, unless the settings say otherwise."""
    return Price(id=price_id, input=0, output=0) if price is None else replace(price, id=price_id)


def _quality(one: QualitySettings) -> QualityRule:
    most_gain = 0 if one.floor is None else round((1.0 - one.floor) * 1_000_000)
    return QualityRule(weak=one.weak, most_gain=most_gain, strong_share=one.strong_share, model=one.model)


def _route(one: RouteSettings, ttl_s: int) -> Route:
    return Route(
        name=one.name,
        backends=one.backends,
        ttft_ms=one.ttft_ms,
        tpot_ms=one.tpot_ms,
        deadline_ms=one.deadline_ms,
        cache=one.cache,
        cache_ttl_s=one.cache_ttl_s if one.cache_ttl_s is not None else ttl_s,
        max_attempts=one.max_attempts,
        free_when_spent=one.free_when_spent,
        labels=one.labels,
        quality=None if one.quality is None else _quality(one.quality),
    )
