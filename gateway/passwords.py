"""Passwords of members: scrypt with its parameters beside the hash, and what a new one must be. Pure, and slow on purpose: off the loop.

Parameters: OWASP Password Storage Cheat Sheet, "scrypt" (N=2^14, r=8, p=5: 16 MiB and about 0.2 s).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import unicodedata
from typing import NamedTuple

from gateway.errors import InvalidRequest

MIN_CHARS = 12
MAX_CHARS = 256
SALT_BYTES = 16
HASH_BYTES = 32
MEMORY_MAX = 256 * 1024 * 1024  # bytes that one hash may take: a stored one can ask for no more


class Cost(NamedTuple):
    """scrypt's parameters: n a power of two, 128 · n · r bytes of memory, p times as long."""

    n: int
    r: int
    p: int


COST = Cost(2**14, 8, 5)


def check(password: str, field: str = "password") -> None:
    """What a new password must be. InvalidRequest says what to do."""
    if not MIN_CHARS <= len(password) <= MAX_CHARS:
        raise InvalidRequest(f"{field}: use {MIN_CHARS} to {MAX_CHARS} characters; some words in a row are good.", param=field)
    if len(set(password)) < MIN_CHARS // 3:
        raise InvalidRequest(f"{field}: this one is the same few characters over and over; use some words in a row.", param=field)


def hashed(password: str, cost: Cost = COST) -> str:
    """scrypt$n$r$p$salt$hash, the last two in base64."""
    salt = secrets.token_bytes(SALT_BYTES)
    return "$".join(("scrypt", *map(str, cost), _text(salt), _text(_scrypt(password, salt, cost))))


def matches(password: str, stored: str | None) -> bool:
    """Whether it is the stored one's password; None, of somebody who is not there or has set none, takes as long and is never."""
    if stored is None:
        _scrypt(password, bytes(SALT_BYTES), COST)
        return False
    try:
        kind, n, r, p, salt, wanted = stored.split("$")
        cost = Cost(int(n), int(r), int(p))
        expected = base64.b64decode(wanted, validate=True)
        found = _scrypt(password, base64.b64decode(salt, validate=True), cost)
    except (ValueError, binascii.Error) as error:
        raise ValueError("a stored password is not what this program writes") from error
    return kind == "scrypt" and hmac.compare_digest(found, expected)


def _scrypt(password: str, salt: bytes, cost: Cost) -> bytes:
    text = unicodedata.normalize("NFKC", password).encode(errors="surrogatepass")  # the same characters from any keyboard
    return hashlib.scrypt(text, salt=salt, n=cost.n, r=cost.r, p=cost.p, maxmem=MEMORY_MAX, dklen=HASH_BYTES)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
