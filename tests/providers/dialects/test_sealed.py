"""Sealed reasoning goes back to those who can read it, unchanged, and to nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects.sealed import is_sealed, open_members, seal, seal_members, unseal
from providers.errors import Rejected


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


def test_members_go_in_and_out_and_a_broken_seal_is_told() -> None:
    sealed = seal_members("mine", {"encrypted_content": Raw(b'"gA"'), "format": Raw(b'"x"')})
    assert open_members(sealed, "mine") == {"encrypted_content": "gA", "format": "x"}
    assert open_members(sealed, "others") is None
    for broken in ("{", "7", ""):
        with pytest.raises(Rejected, match="send it back unchanged"):
            open_members(seal("mine", broken), "mine")
