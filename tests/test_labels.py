from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.labels import LABELS_MOST, Labels, checked, mapping, parse, required, stored, text_of

EU, NONE = ("residency", "eu"), ("retention", "none")


def test_text_is_read_in_any_order_and_each_label_once() -> None:
    assert parse("retention=none , residency=eu,residency=eu", "labels") == (EU, NONE)
    assert parse("  ", "labels") == ()
    assert parse("residency=eu,residency=us", "labels") == (EU, ("residency", "us")), "no backend carries both"


@pytest.mark.parametrize(
    "text",
    ["residency", "=eu", "residency=", "residency=eu,", "a=b=c", "a b=c", "a=é", "a=" + "x" * 65, "a=b," * LABELS_MOST + "a=b"],
)
def test_what_is_no_label_is_refused_by_the_name_of_its_field(text: str) -> None:
    with pytest.raises(InvalidRequest, match="are no labels: write at most 16 of name=value") as told:
        required({}, (), text.encode())
    assert (told.value.param, told.value.status) == ("x-tollway-labels", 400)


def test_a_long_text_is_refused_and_not_cut() -> None:
    with pytest.raises(InvalidRequest):
        parse("a=b," * 400 + "c=d", "labels")


def test_where_a_name_has_one_value_two_are_refused() -> None:
    assert mapping("residency=eu", "labels") == {"residency": "eu"}
    with pytest.raises(InvalidRequest, match="two values of one label"):
        mapping("residency=eu,residency=us", "labels")
    with pytest.raises(InvalidRequest):
        checked({"residency": "eu,us=x"}, "labels")


words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
some = st.dictionaries(words, words, max_size=5)


@given(some, some, some, st.one_of(st.none(), some))
def test_nothing_that_was_asked_can_be_taken_back(route: dict[str, str], team: dict[str, str], key: dict[str, str], header: object) -> None:
    held = stored(checked(team, "labels"), checked(key, "labels"))
    asked: dict[str, str] = header if isinstance(header, dict) else {}
    found: Labels = required(route, held, None if header is None else text_of(asked.items()).encode())
    assert set(found) == {*route.items(), *team.items(), *key.items(), *asked.items()}
    assert len(found) == len(set(found))
