"""The rule of names: the file's are its own, the API's live beside them, and one name in both is an error that names both."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.made import NOTHING, Made, check, joined, routes_of
from gateway.settings import BackendSettings, ConfigError, QualitySettings, RouteSettings, Settings

A = BackendSettings(name="a", vendor="scripted", model="m")
B = BackendSettings(name="b", vendor="scripted", model="m")
FILE = Settings(backends=(A,), routes=(RouteSettings(name="r", backends=("a",)),))


def route(name: str, *backends: str, **fields: Any) -> RouteSettings:
    return RouteSettings(name=name, backends=backends, **fields)


def test_what_the_api_made_stands_beside_the_file() -> None:
    settings, problems = joined(FILE, Made(backends=(B,), routes=(route("s", "b", "a"),)))
    assert [one.name for one in settings.backends] == ["a", "b"] and problems == {}
    assert {one.name: one.backends for one in settings.routes} == {"r": ("a",), "s": ("b", "a")}
    assert joined(FILE, NOTHING) == (FILE, {})


def test_a_file_without_routes_keeps_one_for_each_of_its_backends() -> None:
    file = replace(FILE, routes=())
    settings, _ = joined(file, Made(backends=(B,), routes=(route("s", "b"),)))
    assert [one.name for one in settings.routes] == ["a", "s"], "what the API makes takes no route away, and adds none by itself"
    assert [one.name for one in routes_of(file)] == ["a"]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (Made(backends=(A,)), ("backends.a: stands in tollway.toml", "made over the API", "DELETE /admin/backends/a")),
        (Made(routes=(route("r", "a"),)), ("routes.r: stands in tollway.toml", "made over the API", "DELETE /admin/routes/r")),
        (Made(routes=(route("s", "gone"),)), ("backends.gone", '"s"', "tollway.toml does not have")),
    ],
)
def test_a_file_that_does_not_go_with_it_is_refused(made: Made, says: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        check(FILE, made)
    assert all(part in str(caught.value) for part in says), caught.value
    check(FILE, Made(backends=(B,), routes=(route("s", "b"),)))


def test_a_worker_lets_the_file_win_and_says_so() -> None:
    settings, problems = joined(FILE, Made(backends=(A, B), routes=(route("r", "b"), route("s", "b"))))
    assert settings.backends == (A, B) and [one.name for one in settings.routes] == ["r", "s"]
    assert settings.routes[0].backends == ("a",), "the file's"
    assert set(problems) == {"backend a", "route r"} and all("tollway.toml" in why for why in problems.values())


def test_what_cannot_work_here_is_left_out_and_the_rest_stays() -> None:
    def usable(one: BackendSettings) -> None:
        if one.name == "b":
            raise ConfigError("the environment variable B_KEY of its api_key is not set.")

    weak = QualitySettings(weak=("b",), floor=0.9)
    made = Made(
        backends=(B, replace(B, name="c")),
        routes=(route("half", "b", "c"), route("none", "b"), route("weak", "b", "c", quality=weak)),
        unreadable={"backend old": "is not understood"},
    )
    settings, problems = joined(FILE, made, usable)
    assert [one.name for one in settings.backends] == ["a", "c"]
    assert {one.name: one.backends for one in settings.routes} == {"r": ("a",), "half": ("c",)}
    assert set(problems) == {"backend old", "backend b", "route half", "route none", "route weak"}
    assert problems["route half"] == "names b, which cannot be asked" and "B_KEY" in problems["backend b"]
