"""Tables of tollway.toml and values of the environment as raw settings, and errors that name the key. Knows no setting.

Standard library and msgspec only: the supervisor imports it.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

DEFAULT_FILE = Path("tollway.toml")
PREFIX = "TOLLWAY_"


class ConfigError(Exception):
    """A setting that cannot work. The message names the key and says what to do."""


def read(path: Path | None) -> dict[str, Any]:
    if path is None:
        if not DEFAULT_FILE.exists():
            return {}
        path = DEFAULT_FILE
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}.") from None


def _fields(kind: type[Struct]) -> dict[str, Any]:
    return {info.name: info.type for info in msgspec.structs.fields(kind)}


def _struct_in(kind: Any) -> type[Struct] | None:
    """The struct inside a field's type: itself, optional, or repeated."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind
    found = [_struct_in(part) for part in getattr(kind, "__args__", ())]
    return next((part for part in found if part is not None), None)


def refuse_unknown(raw: Any, kind: type[Struct], where: str) -> None:
    """Walk tables as the structs are laid out; the first name that no struct has is the error."""
    if not isinstance(raw, dict):
        return  # a wrong type, which msgspec names
    known = _fields(kind)
    for name, value in raw.items():
        if name not in known:
            raise ConfigError(f"{where}{name}: unknown setting.{nearest(name, known)}")
        inner = _struct_in(known[name])
        if inner is None:
            continue
        for row in value if isinstance(value, list) else [value]:
            label = f".{row['name']}" if isinstance(value, list) and isinstance(row, dict) and "name" in row else ""
            refuse_unknown(row, inner, f"{where}{name}{label}.")


def nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f' Did you mean "{close[0]}"?' if close else f" Known: {', '.join(sorted(known))}."


def override(raw: dict[str, Any], name: str, text: str, kind: type[Struct]) -> None:
    """One TOLLWAY_SECTION__KEY into the tables; TOLLWAY_BACKENDS__NAME__KEY reaches a named row, with dashes as underscores."""
    parts = name[len(PREFIX) :].lower().split("__")
    table = raw
    for depth, part in enumerate(parts):
        known = _fields(kind)
        if part not in known:
            raise ConfigError(f"{name}: unknown setting.{nearest(part, known)}")
        inner = _struct_in(known[part])
        if inner is None:
            if depth + 1 < len(parts):
                raise ConfigError(f"{name}: {'.'.join(parts[: depth + 1])} is a single value.")
            table[part] = _from_text(name, text, known[part])
            return
        kind = inner
        below = table.get(part)
        if part == "tiers":
            raise ConfigError(f"{name}: tiers are set in the file alone.")
        if part in ("backends", "routes"):
            row = parts[depth + 1] if depth + 1 < len(parts) else ""
            table = _row(name, below or [], row)
            del parts[depth + 1]
        else:
            table = table.setdefault(part, {}) if below is None else below
    raise ConfigError(f"{name}: names a table; add one of its keys: {', '.join(_fields(kind))}.")


def _row(name: str, rows: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    names = {re.sub(r"[^a-z0-9]", "_", str(row.get("name", "")).lower()): row for row in rows}
    if wanted not in names:
        raise ConfigError(
            f'{name}: no row is named "{wanted}"; the environment changes rows of the file, it adds none.{nearest(wanted, names)}'
        )
    return names[wanted]


def _from_text(name: str, text: str, kind: Any) -> Any:
    """An environment value in its setting's type: lists are separated by commas, tables are a=b,c=d."""
    value: Any = text
    words = [word.strip() for word in text.split(",") if word.strip()]
    if "tuple" in str(kind):
        value = words
    elif "dict" in str(kind):
        value = {key: rest for key, _, rest in (word.partition("=") for word in words)}
    try:
        return msgspec.to_builtins(msgspec.convert(value, kind, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {_lower(str(error))}, not {text!r}.") from None


def explain(message: str, raw: Mapping[str, Any], kind: type[Struct]) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.server.port`" with the key first, rows by name, and without echoing values."""
    said, _, path = message.partition(" - at `$.")
    path = path.rstrip("`")
    found = re.match(r"(backends|routes)\[(\d*|\.\.\.)\](.*)", path)
    if found is not None:
        path = found[1] + _wrong_row(raw, found[1], kind) + found[3]
    missing = re.match(r"Object missing required field `(\w+)`", said)
    if missing is not None:
        return f"{path}.{missing[1]}: is required."
    hint = ' Write money as a string of decimal digits: "0.15".' if re.search(r"\.price\.|hourly_usd", path) else ""
    return f"{path}: {_lower(said)}.{hint}"


def _wrong_row(raw: Mapping[str, Any], table: str, settings: type[Struct]) -> str:
    """msgspec does not say which row of a list it means: try them one by one."""
    kind = _struct_in(_fields(settings)[table])
    for position, row in enumerate(raw[table]):
        try:
            msgspec.convert(row, kind)
        except msgspec.ValidationError:
            named = isinstance(row, dict) and isinstance(row.get("name"), str)
            return f".{row['name']}" if named else f"[{position}]"
    return ""


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "")
