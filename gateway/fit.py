"""What settings ask of vendors, credentials and models, beyond what their types and their own references can say. Opens no connection."""

from __future__ import annotations

from gateway.catalog_build import backend_of
from gateway.catalog_build import build as build_catalog
from gateway.db.engine import database_url
from gateway.routing.judges import Judges
from gateway.settings import BackendSettings, ConfigError, Settings, check_vendors
from providers.scripted import parse
from providers.signers import resolve
from providers.vendors import VENDORS


def check(settings: Settings) -> None:
    """Raises ConfigError naming the backend or route and what it lacks."""
    check_vendors(settings.backends, VENDORS)
    for backend in settings.backends:
        _check_vendor(backend)
    try:
        for backend in settings.backends:
            _resolve(backend)
        for name in ("webhook_url", "webhook_secret"):
            value = getattr(settings.alerts, name)
            if value.startswith(("env:", "file:")):
                resolve(value, what=f"alerts.{name}")
        Judges().load(build_catalog(settings, {}).routes)
        database_url(settings.storage)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def check_backend(backend: BackendSettings) -> None:
    """One backend as `check` looks at it, its credential included. Raises ConfigError."""
    check_form(backend)
    try:
        _resolve(backend)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def check_form(backend: BackendSettings) -> None:
    """One backend but for its credential, which another process may not have: vendor, address, script, price. Raises ConfigError."""
    check_vendors((backend,), VENDORS)
    _check_vendor(backend)
    try:
        if backend.vendor == "scripted":
            parse(backend.script)
        backend_of(backend, {})
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _check_vendor(backend: BackendSettings) -> None:
    vendor = VENDORS[backend.vendor]
    if vendor.address_required and not backend.base_url:
        raise ConfigError(f"backends.{backend.name}.base_url: the vendor {vendor.name} has no address of its own; set one.")
    if vendor.account and not (backend.base_url or backend.account):
        raise ConfigError(f"backends.{backend.name}.account: the vendor {vendor.name} needs {vendor.account}, or a base_url.")
    if backend.account and not vendor.account:
        raise ConfigError(f"backends.{backend.name}.account: the vendor {vendor.name} has no accounts in its address; leave it out.")
    if backend.api_version and not vendor.api_version:
        raise ConfigError(f"backends.{backend.name}.api_version: the vendor {vendor.name} has no versions by name; leave it out.")
    if vendor.dialect and vendor.key_required and not backend.api_key:
        raise ConfigError(f"backends.{backend.name}.api_key: the vendor {vendor.name} needs a key: env:NAME or file:PATH.")


def _resolve(backend: BackendSettings) -> None:
    """Its reference has a value. Raises ValueError."""
    if backend.api_key:
        resolve(backend.api_key, backend.name)
