"""What a target's own data changes in a body that is ready otherwise: fields left out or refused, other names for them, the limit.

Works on any language's fields; knows none, and no vendor: everything comes as `Quirks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Raw

from providers.dialects.base import Quirks
from providers.dialects.body import Field, says_something
from providers.dialects.rawjson import NULL, decode_any, encode_json, name_as_json
from providers.errors import Unsupported
from providers.types import Request, Target

_INCLUDE_USAGE = Raw(b'{"include_usage":true}')


def unsupported(message: str, param: str) -> Unsupported:
    """Found before anything was sent: another backend may carry it."""
    return Unsupported(message, sent=False, param=param)


def leave_out(fields: dict[str, Raw], quirks: Quirks, table: Mapping[str, Field]) -> tuple[str, ...]:
    """Take from `fields` what the target cannot carry; the names of those that said something. Raises Unsupported for a refused one."""
    dropped = []
    for name in [name for name in fields if name in quirks.drop or name in quirks.refuse]:
        if says_something(fields[name], table.get(name)):
            if name in quirks.refuse:
                raise unsupported(f"`{name}` with this value is not supported by this model; leave it out.", name)
            dropped.append(name)
        del fields[name]
    return tuple(dropped)


def for_target(fields: dict[str, Raw], request: Request, target: Target, quirks: Quirks, table: Mapping[str, Field]) -> bytes:
    """The body of `fields`, and what is dropped added to `request.dropped`. Raises Unsupported."""
    fields["model"] = name_as_json(target.model)
    if quirks.drop or quirks.refuse:
        request.dropped += leave_out(fields, quirks, table)
    for old, new in quirks.names.items():
        if old in fields:
            fields[new] = fields.pop(old)
    return encode_json(fields)


def ask_for_usage(fields: dict[str, Raw], request: Request, quirks: Quirks) -> None:
    """Let a stream end with its usage, whether or not the client asked for it, where the target knows how to be asked."""
    if not quirks.usage_option:
        fields.pop("stream_options", None)
    elif request.stream and not request.include_usage:
        raw = fields.get("stream_options", NULL)
        fields["stream_options"] = _INCLUDE_USAGE if raw == NULL else Raw(encode_json({**decode_any(raw), "include_usage": True}))


def set_limit(fields: dict[str, Raw], limit: int, names: Sequence[str], wanted: str) -> None:
    """The limit of the answer under the name that the target knows; empty: under that which the client used, or the first."""
    name = wanted or next((name for name in names if fields.get(name, NULL) != NULL), names[0])
    for other in names:
        if other != name:
            fields.pop(other, None)
    fields[name] = Raw(str(limit).encode())
