"""Credentials: where they come from, how they go into headers, and which strings must never be seen in a log.

A reference is `env:NAME` or `file:PATH`, read once at start; a literal key is refused. A signer is a name in a vendor's row. Knows no
vendor and keeps nothing but the set of values to mask.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

MASK_FROM = 8  # characters; a shorter value ("EMPTY", "ollama") is no secret, and masking it would blank ordinary words
MAX_FILE_BYTES = 64 * 1024

_secrets: tuple[str, ...] = ()


class CredentialError(ValueError):
    """A credential cannot be had or used; the message names the backend and says what to do, never the value."""


def resolve(reference: str, backend: str = "", what: str = "api_key") -> str:
    """The value behind a reference, without surrounding white space; from now on it is masked in logs. Raises CredentialError."""
    owner = f"backend {backend!r}: " if backend else ""
    kind, _, name = reference.partition(":")
    if kind == "env" and name:
        value = os.environ.get(name, "").strip()
        if not value:
            raise CredentialError(f"{owner}the environment variable {name} of its {what} is not set; export it before the start")
    elif kind == "file" and name:
        value = _read(Path(name), owner, what)
    else:
        raise CredentialError(f"{owner}{what} must be a reference, env:NAME or file:PATH; secrets are not written into the configuration")
    if not re.fullmatch(r"[\x21-\x7e]+", value):
        raise CredentialError(f"{owner}the value of {reference} is not one line of printable ASCII without spaces")
    conceal(value)
    return value


def _read(path: Path, owner: str, what: str) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CredentialError(f"{owner}the file {path} of its {what} cannot be read: {error.strerror}") from error
    value = raw.decode("utf-8", "replace").strip()
    if not value or len(raw) > MAX_FILE_BYTES:
        raise CredentialError(f"{owner}the file {path} of its {what} is empty or larger than {MAX_FILE_BYTES} bytes")
    return value


def conceal(value: str) -> None:
    """Add a value to those that the logging sink masks."""
    global _secrets  # noqa: PLW0603 - one set per process, read by the logging sink
    if len(value) >= MASK_FROM and value not in _secrets:
        _secrets = tuple(sorted((*_secrets, value), key=len, reverse=True))  # longest first: one may contain another


def conceal_url(url: str) -> None:
    """Mask the password that an address carries before its host, as it stands there and as it is meant."""
    password = urlsplit(url).password
    if password:
        conceal(password)
        conceal(unquote(password))


def secrets() -> tuple[str, ...]:
    """Every value to mask, longest first."""
    return _secrets


def headers(signer: str, credential: str) -> dict[str, str]:
    """The headers that carry a credential: `bearer`, `header:NAME` or `none`. Without a credential there are none."""
    if not credential or signer == "none":
        return {}
    if signer == "bearer":
        return {"authorization": f"Bearer {credential}"}
    kind, _, name = signer.partition(":")
    if kind == "header" and name:
        return {name.lower(): credential}
    raise ValueError(f"unknown signer {signer!r}; use bearer, header:NAME or none")
