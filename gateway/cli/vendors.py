"""`tollway vendors`: the table of vendors, and what each can carry. Reads no settings and asks nobody."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from gateway.cli.database import table
from providers.models import FAMILIES, Family
from providers.vendors import VENDORS, Vendor

FAMILY_COLUMNS = ("models", "at", "refuses", "lacks", "context", "answer")
COLUMNS = ("vendor", "language", "address", "key", "carries")


def vendors(*, models: bool = False, shape: Annotated[Literal["table", "json"], Parameter(name="--format")] = "table") -> None:
    """Every vendor that a backend may name: its wire language, its address, how the key is sent, and what it can carry.

    Parameters
    ----------
    models
        What is known of families of models, in place of vendors.
    shape
        table, or json with everything that the rows say.
    """
    if models:
        if shape == "json":
            print(msgspec.json.format(msgspec.json.encode([_plain(family) for family in FAMILIES]), indent=2).decode())
        else:
            print(table(FAMILY_COLUMNS, [family_cells(family) for family in FAMILIES]))
        return
    rows = sorted(VENDORS.values(), key=lambda row: row.name)
    if shape == "json":
        print(msgspec.json.format(msgspec.json.encode([document(row) for row in rows]), indent=2).decode())
        return
    print(table(COLUMNS, [cells(row) for row in rows]))


def cells(row: Vendor) -> tuple[str, ...]:
    """One line for people."""
    address = row.base_url or ("base_url" if row.dialect else "-")
    key = "none" if row.signer == "none" else row.signer if row.key_required else f"{row.signer}, optional"
    return row.name, ", ".join((row.dialect, *row.also)) or "-", address, key, ", ".join(sorted(row.capabilities)) or "text"


def family_cells(family: Family) -> tuple[str | int, ...]:
    """One line for people."""
    refused = ", ".join(sorted(family.refuse)) or "-"
    maxima = (family.context_tokens or "-", family.max_output_tokens or "-")
    return " ".join(family.names), " ".join(family.native) or "any", refused, ", ".join(sorted(family.lacks)) or "-", *maxima


def document(row: Vendor) -> dict[str, Any]:
    """One row as JSON values; empty members are left out."""
    quirks = {name: value for name, value in _plain(row.quirks).items() if value not in (None, "", [], {}, False)}
    quirks["usage_option"] = row.quirks.usage_option
    return {
        "name": row.name,
        "language": row.dialect,
        "base_url": row.base_url,
        "path": row.path if row.dialect else "",
        "also": {dialect: {"path": speech.path, "capabilities": sorted(speech.capabilities)} for dialect, speech in row.also.items()},
        "account": row.account,
        "api_version": row.api_version,
        "signer": row.signer,
        "key_required": row.key_required,
        "capabilities": sorted(row.capabilities),
        "quirks": quirks if row.dialect else {},
        "prices": row.prices,
        "source": row.source,
    }


def _plain(value: Any) -> dict[str, Any]:
    """A struct's members with sets in order."""
    found: dict[str, Any] = msgspec.to_builtins(value, enc_hook=sorted)
    return {name: sorted(member) if isinstance(member, set | frozenset | list) else member for name, member in found.items()}
