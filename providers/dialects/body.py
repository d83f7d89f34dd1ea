"""A client's body, one level deep: what every dialect checks the same way before it looks at its own fields.

JSON in UTF-8, one object, no key twice, each known field of its type, and no name that would steer the gateway or the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from providers.dialects.base import DecodeError, reading

MAX_TOKENS = 1_000_000_000  # of one choice; far above any model, and its worst case at any price is a number that a ledger holds
MAX_DEPTH = 32  # of configuration objects that are searched for steering names
MAX_CONFIGURATION_BYTES = 1024 * 1024  # of one such object

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_any = msgspec.json.Decoder().decode
_key = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_SPACE = b" \t\r\n"
_NULL = Raw(b"null")
_PLAIN = frozenset({bool, int, float, str, list, type(None)})  # values without members that could steer

# parameters that some models take with their default value alone
_DEFAULTS: Mapping[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "top_k": None,
    "stop": [],
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "dimensions": None,
}
_NONE: frozenset[str] = frozenset()

# Names that would choose the address, the credential or the target in place of the catalog. Compared in lower case, `-` as `_`.
STEERING = frozenset(
    {
        "api_base",
        "api_host",
        "api_key",
        "api_keys",
        "api_type",
        "api_version",
        "authorization",
        "aws_access_key_id",
        "aws_bedrock_runtime_endpoint",
        "aws_region_name",
        "aws_secret_access_key",
        "aws_session_token",
        "azure_ad_token",
        "azure_deployment",
        "azure_endpoint",
        "base_url",
        "custom_llm_provider",
        "default_headers",
        "deployment_id",
        "endpoint_url",
        "extra_headers",
        "extra_query",
        "fallbacks",
        "headers",
        "host",
        "http_client",
        "litellm_params",
        "mock_response",
        "model_list",
        "models",
        "openai_api_base",
        "openai_api_key",
        "proxies",
        "proxy",
        "region_name",
        "vertex_credentials",
        "vertex_location",
        "vertex_project",
        "x_api_key",
    }
)


def check(kind: Any) -> Any:
    """A typed decoder of one field's bytes."""
    return msgspec.json.Decoder(kind).decode


def when(capability: str, test: Callable[[Any], bool] = bool) -> Callable[[Any], str | None]:
    """A field's `needs`: the capability where its value says so."""
    return lambda value: capability if test(value) else None


# what many fields are
MODEL = check(Annotated[str, Meta(min_length=1, max_length=256)])
TOKENS = check(Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None)
SHARE = check(Annotated[float, Meta(ge=0, le=1)] | None)
BOOL = check(bool | None)
TEXT = check(str | None)
TEXTS = check(list[str] | None)
OBJECT = check(dict[str, Raw] | None)
OBJECTS = check(list[dict[str, Raw]] | None)
NAME_OR_OBJECT = check(str | dict[str, Raw] | None)


class Field(Struct, frozen=True):
    """How a known field is checked: its type, and the sentence that tells a client what to send.

    abroad: what becomes of it on the way to a backend of another language: translated, refused or dropped (and named). needs: the
    capability that a backend must have for a value of it, None for one that asks for nothing.
    """

    check: Any
    remedy: str
    data: bool = False  # the client's own data: never searched for steering names
    default: Any = None  # the API's own default: sent or not, it means the same
    abroad: str = "translated"
    needs: Callable[[Any], str | None] | None = None


def says_something(raw: Raw, field: Field | None) -> bool:
    """Whether a field is there and not at its default."""
    value = _any(raw)
    return value is not None and (field is None or field.default is None or value != field.default)


def read_fields(body: bytes) -> dict[str, Raw]:
    """The top level of a body, every value as its bytes. Raises DecodeError."""
    try:
        fields = _fields(body)
    except msgspec.ValidationError:
        raise DecodeError("The body must be a JSON object with at least `model` and `messages`.", code="invalid_json") from None
    except RecursionError:
        raise DecodeError("The body is nested too deeply to be read; send it flatter.", code="invalid_json") from None
    except msgspec.DecodeError as fault:
        raise DecodeError(f"The body cannot be read as JSON: {fault}. Send one JSON object in UTF-8.", code="invalid_json") from None
    except UnicodeDecodeError:
        raise _not_utf8(body) from None
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            raise _not_utf8(body) from None
    # msgspec keeps the last of two equal keys silently; equal length of the compact form proves that there were none
    if len(_encode(fields)) != len(body):
        _refuse_repeated(body, fields)
    return fields


def _not_utf8(body: bytes) -> DecodeError:
    try:
        body.decode()
        place = ""
    except UnicodeDecodeError as fault:
        place = f" (byte {fault.start})"
    return DecodeError(f"The body is not UTF-8{place}. Send JSON in UTF-8.", code="invalid_json")


def _refuse_repeated(body: bytes, fields: dict[str, Raw]) -> None:
    """Walk the top level: where a key comes twice, or its place holds another value than the one kept, it is repeated."""
    seen = set()
    at = _skip(body, body.index(b"{") + 1)
    while body[at] != 0x7D:
        end = at + 1
        while body[end] != 0x22:
            end += 2 if body[end] == 0x5C else 1
        name = _key(body[at : end + 1])
        value = bytes(fields[name])
        at = _skip(body, _skip(body, end + 1) + 1)
        if name in seen or not body.startswith(value, at):
            raise DecodeError(f"`{name}` stands twice in the body; send it once.", param=name, code="repeated_parameter")
        seen.add(name)
        at = _skip(body, at + len(value))
        if body[at] == 0x2C:
            at = _skip(body, at + 1)


def _skip(body: bytes, at: int) -> int:
    while body[at] in _SPACE:
        at += 1
    return at


def read_value(name: str, field: Field, raw: Raw) -> Any:
    """One field by its row of the table. Raises DecodeError naming it."""
    try:
        return field.check(raw)
    except msgspec.ValidationError as fault:
        code = (
            "invalid_value" if "`int`" in str(fault) and ">=" in str(fault) else "invalid_type" if "got" in str(fault) else "invalid_value"
        )
        inner = str(fault).rpartition("`$")[2].rstrip("`") if "`$." in str(fault) else ""
        inner += "." + str(fault).split("`")[1] if "missing required field" in str(fault) else ""
        what = f"`{name}` must be {field.remedy}" if not inner else f"`{name}{inner}` is wrong: send {field.remedy}"
        raise DecodeError(f"{what} ({str(fault)[:160]}).", param=name + inner, code=code) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise DecodeError(f"`{name}` cannot be read: {fault}.", param=name, code="invalid_json") from None


def read_request(body: bytes, table: Mapping[str, Field]) -> tuple[dict[str, Raw], dict[str, Any], set[str], list[str]]:
    """(fields as bytes, values of the known ones that are checked, what these need, names of the unknown ones). Raises DecodeError."""
    fields = read_fields(body)
    values: dict[str, Any] = {}
    needs: set[str] = set()
    unknown: list[str] = []
    for name, raw in fields.items():
        field = table.get(name)
        if field is None:
            check_steering(name, raw)
            if raw != _NULL:
                unknown.append(name)
        elif field.check is not None:
            value = values[name] = read_value(name, field, raw)
            if not field.data and value.__class__ not in _PLAIN:
                check_steering(name, raw)
            if field.needs is not None and value is not None:
                need = field.needs(value)
                if need is not None:
                    needs.add(need)
    return fields, values, needs, unknown


def asked(values: Mapping[str, Any]) -> frozenset[str]:
    """Which of the parameters that some models do not take a body sets to something."""
    found = [name for name in _DEFAULTS if name in values and values[name] is not None and values[name] != _DEFAULTS[name]]
    return frozenset(found) if found else _NONE


def required(values: Mapping[str, Any], name: str, table: Mapping[str, Field]) -> Any:
    """A field's value. Raises DecodeError where it is missing or null."""
    value = values.get(name)
    if value is None:
        raise DecodeError(f"`{name}` is missing: send {table[name].remedy}.", param=name, code="missing_required_parameter")
    return value


def check_steering(name: str, raw: Raw | None) -> None:
    """Refuse a name that steers, at top level (raw None: the name alone) or anywhere inside a configuration object."""
    if name in STEERING or name.lower().replace("-", "_") in STEERING:
        raise _steers(name)
    if raw is None or memoryview(raw)[0] not in b"{[":
        return
    if len(memoryview(raw)) > MAX_CONFIGURATION_BYTES:
        raise DecodeError(f"`{name}` is larger than {MAX_CONFIGURATION_BYTES} bytes; send less.", param=name)
    with reading(name):
        value = msgspec.json.decode(raw)
    _search(value, name, 1)


def _search(value: Any, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise DecodeError(f"`{path}` is nested deeper than {MAX_DEPTH} levels; send it flatter.", param=path)
    if isinstance(value, dict):
        for name, inner in value.items():
            here = f"{path}.{name}"
            if name.lower().replace("-", "_") in STEERING:
                raise _steers(here)
            _search(inner, here, depth + 1)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            if isinstance(inner, dict | list):
                _search(inner, f"{path}[{position}]", depth + 1)


def _steers(path: str) -> DecodeError:
    message = f"`{path}` may not be sent: addresses, credentials and targets are set by this gateway's operator alone. Leave it out."
    return DecodeError(message, param=path, code="steering_field")
