"""What operators change while two workers serve: reloads under running streams, a broken file, what the API makes, drains; over real
processes, each change seen by asking until every worker has answered.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.harness import Gateway, route, running

A = '[[backends]]\nname = "{name}"\nvendor = "scripted"\nmodel = "m"\nprice = {{ input = "1", output = "1" }}\n'
SLOW = A.format(name="slow") + 'script = """\ntokens = 60\ntpot_s = 0.05\n"""\n'
CONFIG = A.format(name="a") + A.format(name="b") + SLOW + route("assistant", "a", "b") + route("slow", "slow")
ROUNDS = 12  # of new connections, which the kernel deals out among the workers


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running(tmp_path_factory.mktemp("operations"), CONFIG, server="workers = 2") as gateway:
        gateway.key("alpha")
        yield gateway


def until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.05)


def ask(two: Gateway, model: str) -> tuple[int, str, Any]:
    """Status, backend and body of one request over a connection of its own."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": str(time.monotonic_ns())}]}).encode()
    status, answer, headers = two.call("POST", "/v1/chat/completions", body, two.keys["alpha"])
    return status, headers.get("x-tollway-backend", ""), json.loads(answer)


def admin(two: Gateway, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    found = two.log.split("First admin key, shown this once: ")[1].split()[0]
    status, answer, _ = two.call(method, path, None if body is None else json.dumps(body).encode(), found)
    return status, json.loads(answer) if answer else None


def states(two: Gateway, backend: str) -> list[str]:
    """What each worker believes of a backend."""
    row = next(row for row in admin(two, "GET", "/admin/backends")[1]["data"] if row["backend"] == backend)
    return [one["state"] for one in row["workers"]]


def everywhere(two: Gateway, model: str, wanted: set[tuple[int, str]]) -> None:
    """Until so many requests in a row are all answered so: no worker says otherwise any more."""
    until(lambda: {ask(two, model)[:2] for _ in range(ROUNDS)} == wanted)


def test_a_reload_takes_effect_everywhere_and_drops_no_running_stream(two: Gateway) -> None:
    client = two.client().chat.completions
    streams = [client.create(model="slow", messages=[{"role": "user", "content": str(n)}], stream=True) for n in range(4)]
    heard: list[list[Any]] = [[next(iter(one))] for one in streams]
    readers = [threading.Thread(target=into.extend, args=(one,)) for one, into in zip(streams, heard, strict=True)]
    for reader in readers:
        reader.start()
    file = two.folder / "tollway.toml"
    good = file.read_text()
    file.write_text(good.replace(SLOW, "").replace(route("slow", "slow"), "") + route("second", "b"))
    status, told = admin(two, "POST", "/admin/reload")
    assert status == 200 and told["complete"] and [one["in_force"] for one in told["workers"]] == [True, True], told
    assert {ask(two, "second")[:2] for _ in range(ROUNDS)} == {(200, "b")}, "no worker goes by the old file once the call has answered"
    for reader in readers:
        reader.join(60)
    assert [one[-1].choices[0].finish_reason for one in heard] == ["stop"] * 4, "streams over a backend that is gone end as they began"
    file.write_text(good)
    assert admin(two, "POST", "/admin/reload")[1]["complete"]


def test_a_broken_file_changes_nothing_and_is_said_everywhere(two: Gateway) -> None:
    file = two.folder / "tollway.toml"
    good = file.read_text()
    before = admin(two, "GET", "/admin/config")[1]
    assert before["file"]["path"] == str(file) and not before["file"]["changed"]
    for broken, says in (
        (good.replace("workers = 2", "wrokers = 2"), "server.wrokers: unknown setting. Did you mean"),
        (good + '[[backends]]\nname = "x"\nvendor = "openai"\nmodel = "m"\napi_key = "env:NOT_SET_ANYWHERE"\n', "NOT_SET_ANYWHERE"),
    ):
        file.write_text(broken)
        status, told = admin(two, "POST", "/admin/reload")
        assert (status, told["error"]["code"]) == (422, "reload_refused") and says in told["error"]["message"], told
        config = admin(two, "GET", "/admin/config")[1]
        assert says in config["reload"]["refused"] and config["settings"] == before["settings"] and config["file"]["changed"]
        assert [one["in_force"] for one in config["workers"]] == [True, True]
        assert ask(two, "assistant")[0] == 200
        until(lambda: b"tollway_config_refused 1.0" in two.get("/metrics")[1])
    file.write_text(good)
    assert admin(two, "POST", "/admin/reload")[1]["complete"]
    until(lambda: b"tollway_config_refused 0.0" in two.get("/metrics")[1])
    assert admin(two, "GET", "/admin/config")[1]["reload"]["refused"] == ""


def test_what_the_api_makes_is_in_force_on_every_worker_and_a_file_that_names_it_is_refused(two: Gateway) -> None:
    body = {"vendor": "scripted", "model": "m", "price": {"input": "0", "output": "0"}}
    assert admin(two, "PUT", "/admin/backends/made", body)[0] == 200
    assert admin(two, "PUT", "/admin/routes/made/one", {"backends": ["made", "a"]})[0] == 200
    everywhere(two, "made/one", {(200, "made")})
    assert admin(two, "PUT", "/admin/backends/a", body)[1]["error"]["code"] == "in_the_file"
    file = two.folder / "tollway.toml"
    good = file.read_text()
    file.write_text(good + A.format(name="made"))
    status, told = admin(two, "POST", "/admin/reload")
    assert status == 422 and "backends.made: stands in tollway.toml" in told["error"]["message"], told
    assert "DELETE /admin/backends/made" in told["error"]["message"]
    file.write_text(good)
    assert admin(two, "POST", "/admin/reload")[1]["complete"]
    everywhere(two, "made/one", {(200, "made")})
    assert admin(two, "DELETE", "/admin/routes/made/one")[0] == 204 and admin(two, "DELETE", "/admin/backends/made")[0] == 204
    everywhere(two, "made/one", {(404, "")})


def test_a_drain_holds_on_both_workers_and_lets_streams_end(two: Gateway) -> None:
    stream = two.client().chat.completions.create(model="slow", messages=[{"role": "user", "content": "x"}], stream=True)
    parts = [next(iter(stream))]
    status, told = admin(two, "POST", "/admin/backends/slow/drain", {"note": "test"})
    assert (status, told["error"]["code"]) == (409, "routes_emptied")
    status, told = admin(two, "POST", "/admin/backends/slow/drain", {"empty_routes": True})
    assert (status, told["routes_without_backend"]) == (200, ["slow"])
    everywhere(two, "slow", {(503, "")})
    assert ask(two, "slow")[2]["error"]["code"] == "backends_drained"
    assert [*parts, *stream][-1].choices[0].finish_reason == "stop"
    page = two.get("/metrics")[1].decode()
    assert 'tollway_backend_drained{backend="slow"} 1.0' in page and 'tollway_route_backends{route="slow"} 0.0' in page
    admin(two, "POST", "/admin/backends/slow/undrain")
    until(lambda: states(two, "slow") == ["ready", "ready"])
