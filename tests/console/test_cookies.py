"""Cookies and form tokens: what is accepted over which transport, and from whom."""

from __future__ import annotations

from typing import Any

import pytest
from litestar import Request
from litestar.testing import RequestFactory

from gateway.access import Actor
from gateway.console import cookies
from gateway.errors import Forbidden


def request(method: str = "GET", scheme: str = "http", data: dict[str, str] | None = None, **headers: str) -> Request[Any, Any, Any]:
    factory = RequestFactory(server="gateway", port=4000)
    told = {name.replace("_", "-"): value for name, value in headers.items()} | {"host": "gateway:4000"}
    made = (
        factory.post("/console/x", headers=told, data=data, request_media_type="application/x-www-form-urlencoded")
        if method == "POST"
        else factory.get("/console/x", headers=told)
    )
    made.scope["scheme"] = scheme
    return made


def test_over_tls_only_the_host_s_own_cookie_counts() -> None:
    both = "tollway_session=plain; __Host-tollway_session=own"
    assert cookies.token_of(request(cookie=both), always=False) == "plain"
    assert cookies.token_of(request(cookie=both, scheme="https"), always=False) == "own"
    assert cookies.token_of(request(cookie=both, x_forwarded_proto="https"), always=False) == "own"
    assert cookies.token_of(request(cookie="tollway_session=plain"), always=True) == ""


def test_the_session_s_cookie_is_closed_to_scripts_and_other_sites() -> None:
    plain = cookies.made(request(), "t", always=False, max_age_s=60)
    assert (plain.key, plain.httponly, plain.samesite, plain.secure) == ("tollway_session", True, "lax", False)
    hosted = cookies.made(request(), "t", always=True, max_age_s=60)
    assert (hosted.key, hosted.secure, hosted.path, hosted.domain) == ("__Host-tollway_session", True, "/", None)


def with_session(made: Request[Any, Any, Any], token: str = "session") -> Request[Any, Any, Any]:
    cookies.keep(made, token, Actor(name="key x", role="admin"))
    return made


async def test_a_change_needs_the_token_of_its_session() -> None:
    token = cookies.csrf_of(with_session(request()))
    assert "session" not in token
    await cookies.check(with_session(request("POST", x_csrf_token=token)))
    await cookies.check(with_session(request("POST", data={"csrf": token})))
    await cookies.check(with_session(request()))
    for made in (
        with_session(request("POST")),
        with_session(request("POST", data={"csrf": ""})),
        with_session(request("POST", x_csrf_token=token), "another session"),
        with_session(request("POST", x_csrf_token=token, origin="http://evil.example")),
        request("POST", x_csrf_token=token),
    ):
        with pytest.raises(Forbidden):
            await cookies.check(made)


@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({"origin": "http://gateway:4000"}, True),
        ({"origin": "https://gateway:4000"}, True),
        ({"origin": "http://gateway:4001"}, False),
        ({"origin": "null"}, False),
        ({"sec_fetch_site": "same-origin"}, True),
        ({"sec_fetch_site": "cross-site"}, False),
        ({}, False),
    ],
)
def test_whose_page_sent_it(headers: dict[str, str], ours: bool) -> None:
    assert cookies.same_origin(request("POST", **headers)) is ours


def test_theme_and_zone_are_what_they_can_be() -> None:
    told = request(cookie="tollway_theme=dark; tollway_tz=Europe/Berlin")
    assert (cookies.theme_of(told), cookies.zone_of(told)) == ("dark", "Europe/Berlin")
    wild = request(cookie='tollway_theme="><script>; tollway_tz=../../etc/passwd')
    assert (cookies.theme_of(wild), cookies.zone_of(wild)) == ("", "UTC")
