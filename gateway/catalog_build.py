"""Settings and price book -> Catalog. Knows what a vendor row gives a backend; opens nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from gateway.catalog import Backend, Catalog, Price, Route
from gateway.money.pricing import parse_price
from gateway.settings import BackendSettings, RouteSettings, Settings
from providers.vendors import VENDORS, Vendor, located


def build(settings: Settings, prices: Mapping[tuple[str, str], Price]) -> Catalog:
    """The catalog of the settings. prices: what the price book knows by (vendor, model); a price in the settings wins.

    Raises ValueError naming the backend and the field. Cross references were checked by settings.load.
    """
    backends = {one.name: _backend(one, prices) for one in settings.backends}
    routes = {one.name: _route(one, settings.cache.ttl_s) for one in settings.routes}
    if not routes:  # without a policy each backend is asked for by its own name
        routes = {name: Route(name=name, backends=(name,), cache_ttl_s=settings.cache.ttl_s) for name in backends}
    told = msgspec.msgpack.encode((backends, routes), enc_hook=sorted)
    return Catalog(version=hashlib.sha256(told).hexdigest()[:12], backends=backends, routes=routes)


def vendor_of(one: BackendSettings) -> Vendor:
    """The vendor's row as this backend uses it: language, address and paths, quirks as its own entry says. The vendor must be known.

    Raises ValueError naming the backend for a language that the vendor does not speak.
    """
    try:
        vendor = VENDORS[one.vendor].speaking(one.dialect)
    except ValueError as error:
        raise ValueError(f"backends.{one.name}.dialect: {error}.") from None
    vendor = located(vendor, one.base_url, one.model, one.account, one.api_version)
    if one.capabilities is None:
        return vendor
    return replace(vendor, quirks=replace(vendor.quirks, takes=vendor.quirks.takes | frozenset(one.capabilities)))


def _backend(one: BackendSettings, prices: Mapping[tuple[str, str], Price]) -> Backend:
    vendor = vendor_of(one)
    price = parse_price(one.price, one.name) if one.price is not None else prices.get((one.vendor, one.model))
    return Backend(
        name=one.name,
        vendor=one.vendor,
        model=one.model,
        dialect=vendor.dialect,
        base_url=vendor.base_url,
        api_key=one.api_key,
        price=price,
        capabilities=vendor.capabilities if one.capabilities is None else frozenset(one.capabilities),
        context_tokens=one.context_tokens,
        max_output_tokens=one.max_output_tokens,
        token_factor=one.token_factor if one.token_factor is not None else (1.0 if one.vendor == "openai" else 1.5),
        parallel=one.parallel,
        labels=one.labels,
        ttft_prior_ms=one.ttft_prior_ms or 800.0,
        tpot_prior_ms=one.tpot_prior_ms or 20.0,
        connect_s=one.connect_s,
        first_byte_s=one.first_byte_s,
        idle_s=one.idle_s,
    )


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
        labels=one.labels,
    )
