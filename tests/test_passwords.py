"""Passwords: what is stored of one, whether another is the same, what a new one must be."""

from __future__ import annotations

import hashlib

import pytest

from gateway import passwords
from gateway.errors import InvalidRequest
from gateway.passwords import Cost

CHEAP = Cost(2, 1, 1)


def test_the_hash_is_scrypt_of_rfc_7914() -> None:
    """The second vector of RFC 7914, section 12."""
    told = passwords._scrypt("password", b"NaCl", Cost(1024, 8, 16))
    assert told == bytes.fromhex("fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162")


def test_a_hash_holds_its_parameters_and_matches_its_password_alone() -> None:
    stored = passwords.hashed("correct horse battery", CHEAP)
    assert stored.startswith("scrypt$2$1$1$") and "horse" not in stored
    assert passwords.matches("correct horse battery", stored)
    assert not passwords.matches("correct horse batter", stored)
    assert not passwords.matches("", stored)
    assert passwords.hashed("correct horse battery", CHEAP) != stored  # a salt of its own


def test_the_same_characters_from_another_keyboard_are_the_same() -> None:
    stored = passwords.hashed("caf\u00e9 \u212bngstr\u00f6m", CHEAP)
    assert passwords.matches("cafe\u0301 A\u030angstro\u0308m", stored)


def test_nobody_has_no_password_and_takes_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[int] = []
    real = hashlib.scrypt

    def counting(password: bytes, *, n: int, r: int, p: int, **more: int) -> bytes:
        costs.append(n * r * p)
        return real(password, n=2, r=1, p=1, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "scrypt", counting)
    stored = passwords.hashed("correct horse battery")
    assert not passwords.matches("correct horse battery", None)
    assert passwords.matches("correct horse battery", stored)
    assert len(costs) == 3 and len(set(costs)) == 1


@pytest.mark.parametrize("stored", ["", "scrypt$x", "scrypt$2$1$1$?$?", "scrypt$3$1$1$AAAA$AAAA"])
def test_what_is_no_hash_is_an_error(stored: str) -> None:
    with pytest.raises(ValueError, match=r"stored password|n must be"):
        passwords.matches("correct horse battery", stored)


@pytest.mark.parametrize(("password", "good"), [("a" * 11, False), ("aaaaaaaaaaaaaaa", False), ("correct horse", True), ("x" * 257, False)])
def test_a_new_password_is_long_and_not_one_character(password: str, good: bool) -> None:
    if good:
        passwords.check(password)
        return
    with pytest.raises(InvalidRequest, match=r"new: .*words in a row") as caught:
        passwords.check(password, "new")
    assert caught.value.param == "new"
