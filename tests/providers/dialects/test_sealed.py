"""Sealed reasoning goes back to those who can read it, unchanged, and to nobody else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.sealed import is_sealed, seal, unseal


@given(st.text())
def test_what_was_sealed_comes_out_unchanged_for_its_own_kind_alone(text: str) -> None:
    sealed = seal("mine", text)
    assert unseal(sealed, "mine") == text
    assert unseal(sealed, "others") is None
    assert is_sealed(sealed)
    assert unseal(seal("others", sealed), "others") == sealed  # in a language that seals what is sealed


def test_what_nobody_sealed() -> None:
    for text in (None, "", "EqQBCkgIARABGAIiQ==", "gAAAA"):
        assert not is_sealed(text)
        assert unseal(text, "mine") is None
