"""What two languages do alike when a request passes from one to the other: fields without a counterpart, and quirks of a target.

A field is translated, refused by its name or dropped and named; never lost in silence. Knows no particular language.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Raw

from providers.dialects.base import Quirks
from providers.dialects.body import Field
from providers.errors import Unsupported
from providers.types import Document, Parameters, Request

_any = msgspec.json.Decoder().decode


def unsupported(message: str, param: str) -> Unsupported:
    """Found before anything was sent: another backend may carry it."""
    return Unsupported(message, sent=False, param=param)


def plain_text(document: Document, path: str) -> str:
    """The text of a plain-text document, which languages hold in different forms. Raises Unsupported naming its place."""
    try:
        return base64.b64decode(document.data or "", validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError):
        raise unsupported(f"`{path}` has a text document that is not UTF-8 in base64.", path) from None


def without_counterpart(request: Request, table: Mapping[str, Field]) -> tuple[dict[str, Raw], dict[str, Raw]]:
    """(refused, dropped) of `Parameters`, by the table of the request's own language. A default value says nothing and is in neither."""
    refused: dict[str, Raw] = {}
    dropped: dict[str, Raw] = {}
    for name, raw in request.fields.items():
        field = table.get(name)
        if field is not None and field.abroad != "translated" and _says_something(raw, field):
            (refused if field.abroad == "refused" else dropped)[name] = raw
    return refused, dropped


def _says_something(raw: Raw, field: Field | None) -> bool:
    value = _any(raw)
    return value is not None and (field is None or field.default is None or value != field.default)


def take_over(parameters: Parameters, known: Iterable[str] = ()) -> list[str]:
    """The names that are dropped. Raises Unsupported for a field that may not be; `known`: names that this target has itself."""
    for name in parameters.refused.keys() - known:
        raise unsupported(f"`{name}` has no counterpart in the language of this backend; leave it out or use another route.", name)
    return [name for name in parameters.dropped if name not in known]


def leave_out(fields: dict[str, Raw], quirks: Quirks, table: Mapping[str, Field]) -> tuple[str, ...]:
    """Take from `fields` what the target cannot carry; the names of those that said something. Raises Unsupported for a refused one."""
    dropped = []
    for name in [name for name in fields if name in quirks.drop or name in quirks.refuse]:
        if not _says_something(fields[name], table.get(name)):
            del fields[name]
            continue
        if name in quirks.refuse:
            raise unsupported(f"`{name}` with this value is not supported by this model; leave it out.", name)
        del fields[name]
        dropped.append(name)
    return tuple(dropped)
