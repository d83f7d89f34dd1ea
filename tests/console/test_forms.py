"""What a form sent, cut and trimmed, passwords as they were typed; what is wrong, at the field's own name."""

from __future__ import annotations

from litestar import post
from litestar.testing import create_test_client

from gateway.console import forms
from gateway.console.shell import Asked
from gateway.errors import Forbidden, InvalidRequest


def test_fields_are_cut_and_trimmed_and_passwords_are_not() -> None:
    @post("/")
    async def form(request: Asked) -> dict[str, str]:
        return await forms.sent(request, exact=("password",))

    with create_test_client(form) as client:
        told = client.post("/", data={"name": "  anna ", "password": "  correct horse ", "long": "x" * 5000}).json()
    assert told == {"name": "anna", "password": "  correct horse ", "long": "x" * forms.FIELD_MAX}


def test_an_error_stands_at_the_field_that_the_form_has() -> None:
    assert forms.wrong(None) == {}
    assert forms.wrong(InvalidRequest("models[3]: too long.", param="models[3]")) == {"models": "models[3]: too long."}
    assert forms.wrong(InvalidRequest("usd: no number.", param="usd")) == {"usd": "no number."}
    assert forms.wrong(InvalidRequest("A limit is small.", param="limit"), {"limit": "usd"}) == {"usd": "A limit is small."}
    assert forms.wrong(Forbidden("Not yours.")) == {"": "Not yours."}
