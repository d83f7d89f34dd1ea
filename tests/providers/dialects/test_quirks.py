"""What a target's own data changes in a body."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from providers.dialects import Quirks
from providers.dialects.body import Field
from providers.dialects.quirks import for_target, leave_out, set_limit, unsupported
from providers.errors import Unsupported
from providers.types import Request, Target

TABLE = {
    "same": Field(None, "x"),
    "must": Field(None, "x", default=0, abroad="refused"),
    "may": Field(None, "x", default={}, abroad="dropped"),
}


def test_quirks_leave_out_what_says_something_and_name_it():
    fields = {"same": Raw(b"1"), "may": Raw(b"3"), "must": Raw(b"0")}
    assert leave_out(fields, Quirks(drop=frozenset({"may", "must"})), TABLE) == ("may",)
    assert fields == {"same": Raw(b"1")}
    with pytest.raises(Unsupported):
        leave_out({"may": Raw(b"3")}, Quirks(refuse=frozenset({"may"})), TABLE)
    kept = {"may": Raw(b"{}")}
    assert leave_out(kept, Quirks(refuse=frozenset({"may"})), TABLE) == () and kept == {}


def test_unsupported_costs_nothing():
    error = unsupported("no", "field")
    assert (error.sent, error.elsewhere, error.param, error.status) == (False, True, "field", 400)


def test_the_limit_goes_under_the_name_that_is_known():
    names = ("old", "new")
    for given, wanted, expected in (("new", "", "new"), ("new", "old", "old"), ("old", "new", "new"), ("other", "", "old")):
        fields = {given: Raw(b"9"), "z": Raw(b"1")}
        set_limit(fields, 7, names, wanted)
        assert {name: bytes(value) for name, value in fields.items() if name in names} == {expected: b"7"}
    fields = {"old": Raw(b"9"), "z": Raw(b"1")}
    set_limit(fields, 7, names, "")
    assert list(fields) == ["old", "z"]  # in its place: the rest of the body stays as it came


def test_a_body_for_its_target():
    request = Request(dialect="d", fields={}, model="route")
    request.dropped = ("before",)
    fields = {"model": Raw(b'"route"'), "may": Raw(b"3"), "seed": Raw(b"7")}
    quirks = Quirks(drop=frozenset({"may"}), names={"seed": "random_seed"})
    body = for_target(fields, request, Target(backend="b", model="upstream"), quirks, TABLE)
    assert json.loads(body) == {"model": "upstream", "random_seed": 7} and request.dropped == ("before", "may")
