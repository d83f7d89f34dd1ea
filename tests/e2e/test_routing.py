"""The running gateway chooses well: it hedges what is late, leaves a backend in a brown-out and comes back, and says why."""

from __future__ import annotations

import http.client
import json
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from gateway import cli
from gateway.routing.choose import differences
from gateway.routing.decision import Decision, decode, explain
from tests.e2e.harness import BASIC, FLAT, Gateway, backend, free_port, route, running
from tests.fakes.upstream import FakeUpstream, Received, Step, chat_chunks, hang, head, json_reply, sse_reply
from tests.fixtures.waiting import until_true
from tests.routing.test_quality import EASY, FOREIGN, HARD

SETTINGS = "[routing]\nhedge_share = 1.0\nexplore_share = 0.5\nwindow_s = 8.0\nretry_budget_floor = 200\n"
CHEAP = 'price = { input = "0.10", output = "0.10" }'
DEAR = 'price = { input = "9.00", output = "90.00" }'
TENTH_LESS = 'price = { input = "0.90", output = "1.80", cache_read = "0.09" }'  # than BASIC
QUICK = "ttft_prior_ms = 50"
ONCE, THRICE = (400, 401, 403, 404, 422), (408, 429, 500, 502, 503, 504, 529)
PLACED = ("placed", "late-placed")  # routes over a dear backend in the EU and a cheap one in the US


@pytest.fixture(scope="module")
def cheap() -> Iterator[FakeUpstream]:
    with FakeUpstream().threaded() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def dear() -> Iterator[FakeUpstream]:
    with FakeUpstream().threaded() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(cheap: FakeUpstream, dear: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = SETTINGS + "".join(
        backend(f"{name}-{kind}", url.url, price=price, more=QUICK)
        for name in ("late", "poor", "brown", "told", "again")
        for kind, url, price in (("cheap", cheap, FLAT if name == "poor" else CHEAP), ("dear", dear, DEAR))
    )
    for name in ("easy", "hard"):
        config += f'[[backends]]\nname = "{name}"\nvendor = "scripted"\nmodel = "m-{name}"\n{CHEAP if name == "easy" else DEAR}\n'
    config += route("asked", "easy", "hard", more='[routes.quality]\nweak = ["easy"]\nfloor = 0.85')
    config += route("hedged", "late-cheap", "late-dear", more="ttft_ms = 3000")
    config += route("poor", "poor-cheap", "poor-dear", more="ttft_ms = 1000")
    config += route("told", "told-cheap", "told-dear", more="ttft_ms = 86000000")
    config += route("again", "again-cheap", "again-dear", more="ttft_ms = 86000000")
    config += route("brown", "brown-cheap", "brown-dear", more="ttft_ms = 2000")
    for name in PLACED:
        config += backend(f"{name}-eu", dear.url, price=DEAR, more=QUICK + '\nlabels = { residency = "eu" }')
        config += backend(f"{name}-us", cheap.url, price=CHEAP, more=QUICK + '\nlabels = { residency = "us" }')
        config += route(name, f"{name}-eu", f"{name}-us", more="ttft_ms = 600")
    for name, keep_s in (("stay", 600), ("move", 0.05)):
        for host, url, price in (("a", cheap, BASIC), ("b", dear, TENTH_LESS)):
            config += backend(f"{name}-{host}", url.url, price=price, more=f'labels = {{ host = "{host}" }}\nprompt_cache_s = {keep_s}')
        config += route(name, f"{name}-a", f"{name}-b")
    config += backend("slow-cheap", cheap.url, price=CHEAP, more="ttft_prior_ms = 900")
    config += backend("slow-dear", dear.url, price=DEAR, more="ttft_prior_ms = 100")
    config += route("slow", "slow-cheap", "slow-dear")
    config += backend("full-cheap", cheap.url, price=CHEAP, more="parallel = 5") + backend("full-dear", dear.url, price=DEAR)
    config += route("full", "full-cheap", "full-dear")
    config += faults(cheap, dear)
    with running(tmp_path_factory.mktemp("gateway"), config) as made:
        made.key("alpha")
        yield made


def faults(cheap: FakeUpstream, dear: FakeUpstream) -> str:
    """Backends and routes of the faults by number: what a model's name says is how it answers."""
    config = backend("g22-a", cheap.url, model="model-a", price=CHEAP) + backend("g22-b", cheap.url, model="model-b", price=DEAR)
    config += route("g22", "g22-a", "g22-b")
    for status in (*ONCE, *THRICE):
        config += backend(f"g31-{status}", dear.url, model=str(status)) + route(f"g31-{status}", f"g31-{status}")
    config += backend("g31-closed", f"http://127.0.0.1:{free_port()}") + route("g31-closed", "g31-closed")
    for name in ("g32", "g32-down"):
        config += backend(f"{name}-a", cheap.url) + backend(f"{name}-b", dear.url) + route(name, f"{name}-a", f"{name}-b")
    return config + backend("g32-one", cheap.url) + route("g32-one", "g32-one")


@pytest.fixture(scope="module")
def poor(gateway: Gateway, cheap: FakeUpstream) -> str:
    """A team whose budget has room for 100 tokens of the cheap backends (0.001), and for none of the dear ones (0.009)."""
    gateway.key("poor")
    gateway.budget("0.0011", team="poor")
    cheap.play(sse_reply(chat_chunks(["free"], usage=(9, 0))))
    until_true(lambda: ask(gateway, "poor", "poor", 1000)[0] == 402, "the worker knows the budget")
    return "poor"


@pytest.fixture(autouse=True)
def fresh(cheap: FakeUpstream, dear: FakeUpstream) -> None:
    for upstream in (cheap, dear):
        upstream.requests.clear()
        upstream.play()


def ask(gateway: Gateway, route: str, team: str = "alpha", most: int = 100, **headers: str) -> tuple[int, bytes, Any]:
    body = {"model": route, "messages": [{"role": "user", "content": "Say hello."}], "stream": True, "max_tokens": most}
    return post(gateway, body, team, **headers)


def post(gateway: Gateway, body: dict[str, Any], team: str = "alpha", **headers: str) -> tuple[int, bytes, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.call("POST", "/v1/chat/completions", json.dumps(body).encode(), gateway.keys[team], named)


def recorded(gateway: Gateway, headers: Mapping[str, str]) -> Decision:
    """The stored record of an answer's choice, once it is there."""
    request, found = UUID(headers["x-tollway-request-id"]), list[Any]()

    def stored() -> bool:
        found[:] = gateway.rows("SELECT record FROM decisions WHERE request_id = :id", id=request.bytes)
        return bool(found)

    until_true(stored, "its decision")
    return decode(bytes(found[0]["record"]))


def test_a_late_request_is_hedged_and_the_loser_is_cancelled_and_booked(gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream) -> None:
    cheap.play([head(200, {"content-type": "text/event-stream"}), hang()])
    dear.play(sse_reply(chat_chunks(["hedged ", "answer"], usage=(9, 2))))
    status, raw, headers = ask(gateway, "hedged")
    assert status == 200 and b"hedged " in raw
    assert headers["x-tollway-backend"] == "late-dear"
    until_true(lambda: cheap.open_connections == 0, "the loser's call is closed")
    found: list[Any] = []

    def settled() -> bool:
        status, body, _ = gateway.get(f"/v1/requests/{headers['x-tollway-request-id']}", gateway.keys["alpha"])
        found[:] = [json.loads(body)] if status == 200 else []
        return status == 200

    until_true(settled, "its row")
    attempts = found[0]["attempts"]
    assert [(one["backend"], one["outcome"], one["error"]) for one in attempts] == [
        ("late-cheap", "cancelled", "lost_race"),
        ("late-dear", "completed", ""),
    ]
    rows = gateway.rows("SELECT cost, input_tokens, output_tokens FROM attempts WHERE backend = 'late-cheap'")
    assert rows[0]["cost"] > 0, "what was sent may have been read, and is booked"
    total = gateway.rows("SELECT cost FROM usage WHERE id = :id", id=headers["x-tollway-request-id"].replace("-", ""))
    told = gateway.rows("SELECT sum(cost) AS cost FROM attempts")
    assert not total or total[0]["cost"] == told[0]["cost"]
    record = recorded(gateway, headers)
    assert record.hedge is not None and differences(record) == []
    assert (record.hedge.result, record.candidates[record.hedge.second].backend, record.hedge.won) == ("sent", "late-dear", 2)
    assert record.hedge.after_us == 1_800_000, "six tenths of the objective"
    assert record.hedge.waited_us >= record.hedge.after_us - 1_000, "timers of the loop have a grain of a millisecond"
    assert "late-dear was asked beside it" in explain(record)


def test_a_hedge_that_cannot_be_reserved_is_not_sent(gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream, poor: str) -> None:
    cheap.play(sse_reply(chat_chunks(["slow"], usage=(9, 1)), first_s=1.5))
    status, raw, headers = ask(gateway, "poor", poor)
    assert status == 200 and b"slow" in raw and headers["x-tollway-backend"] == "poor-cheap"
    assert dear.requests == []


def tollway(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says that is given the gateway's settings and an admin key."""
    admin = re.search(r"First admin key, shown this once: (\S+)", gateway.log)
    assert admin is not None
    monkeypatch.setenv("TOLLWAY_ADMIN_KEY", admin[1])
    monkeypatch.setattr(sys, "argv", ["tollway", "--config", str(gateway.folder / "tollway.toml"), *words])
    with suppress(SystemExit):
        cli.main()
    return capsys.readouterr().out


def test_a_backend_whose_headers_leave_nothing_gets_nothing_more(
    gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chunks = chat_chunks(["fine"], usage=(9, 1))
    cheap.play(sse_reply(chunks, headers={"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "59s"}))
    dear.play(sse_reply(chunks))
    assert ask(gateway, "told")[2]["x-tollway-backend"] == "told-cheap"
    for _ in range(3):
        status, _, headers = ask(gateway, "told")
        assert (status, headers["x-tollway-backend"]) == (200, "told-dear")
    assert len(cheap.requests) == 1
    assert [(c.backend, c.reason) for c in recorded(gateway, headers).candidates] == [("told-cheap", "headroom"), ("told-dear", "")]
    calls = len(cheap.requests) + len(dear.requests)
    told = tollway(gateway, monkeypatch, capsys, "route", "Say hello.", "--route", "told")
    assert told.startswith(f"by what the gateway at {gateway.url} has learnt"), told
    assert "1. told-dear" in told and "told-cheap" in told and "set aside: headroom" in told and "recomputed: agrees" in told
    assert len(cheap.requests) + len(dear.requests) == calls


def test_it_is_asked_again_once_its_limit_is_whole(gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream) -> None:
    usual = sse_reply(chat_chunks(["fine"], usage=(9, 1)))
    refusal = json_reply({"error": {"message": "slow down"}}, 429, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2"})
    cheap.play(refusal, usual)
    dear.play(usual)
    assert ask(gateway, "again")[2]["x-tollway-backend"] == "again-dear"
    until_true(lambda: ask(gateway, "again")[2]["x-tollway-backend"] == "again-cheap", "its two seconds are over")


RELAXED_TOKENS = 101  # by which an upstream tells relaxed requests from interactive ones


class Traffic:
    """Interactive and relaxed requests, one after another in several threads, until stopped; who answered each, and when it was sent."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.over = threading.Event()
        self.answered: list[tuple[float, str, bool]] = []
        self.took: list[float] = []  # seconds, in the same order
        self.threads = [threading.Thread(target=self._run, args=(n % 2 == 1,)) for n in range(6)]

    def _run(self, relaxed: bool) -> None:
        while not self.over.is_set():
            began = time.monotonic()
            headers = {"x_tollway_ttft_ms": "86000000", "x_tollway_deadline_ms": "60000"} if relaxed else {}
            status, _, told = ask(self.gateway, "brown", most=RELAXED_TOKENS if relaxed else 100, **headers)
            assert status == 200
            self.took.append(time.monotonic() - began)
            self.answered.append((began, told["x-tollway-backend"], relaxed))
            self.over.wait(0.05)

    def last(self, backend: str, count: int, since: float) -> bool:
        """The newest interactive requests, all sent since then, went to this backend."""
        newest = [name for began, name, relaxed in self.answered[-200:] if began >= since and not relaxed][-count:]
        return len(newest) == count and set(newest) == {backend}

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def test_a_brown_out_shifts_traffic_and_its_end_brings_it_back(gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream) -> None:
    """Two seconds after its onset, and twenty answers' time for a machine ten times as slow, hardly any interactive request goes to the
    slow one any more. On a virtual clock: tests/routing/test_router.py."""
    usual = sse_reply(chat_chunks(["tok "] * 3, usage=(9, 3)))
    slow = sse_reply(chat_chunks(["tok "] * 3, usage=(9, 3)), first_s=4.0)
    cheap.play(usual)
    dear.play(usual)
    with Traffic(gateway) as traffic:
        until_true(lambda: traffic.last("brown-cheap", 8, 0.0), "the cheap one serves")
        allowed_s = 2.0 + 20 * statistics.median(traffic.took)
        onset = time.monotonic()
        cheap.play(slow)
        until_true(lambda: traffic.last("brown-dear", 8, onset + allowed_s), "traffic leaves the slow one", 60.0)
        over = time.monotonic()
        sent = [one.at for one in cheap.requests if onset + allowed_s < one.at < over and one.json()["max_tokens"] != RELAXED_TOKENS]
        away = [name for began, name, relaxed in traffic.answered if began > onset + allowed_s and not relaxed]
        assert len(sent) <= 1 + len(away) // 10, f"{len(sent)} interactive requests went to the slow one, {len(away)} elsewhere"
        cheap.play(usual)
        until_true(lambda: traffic.last("brown-cheap", 8, over), "traffic comes back", 120.0)


def test_what_must_stay_in_the_eu_never_goes_elsewhere_though_its_backend_fails(
    gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream
) -> None:
    assert ask(gateway, "placed")[2]["x-tollway-backend"] == "placed-us", "it is the cheaper one"
    cheap.requests.clear()
    assert ask(gateway, "placed", x_tollway_labels="residency=eu")[2]["x-tollway-backend"] == "placed-eu"
    dear.play(json_reply({"error": {"message": "down"}}, 500))
    for _ in range(2):  # the second time it is ejected
        status, raw, headers = ask(gateway, "placed", x_tollway_labels="residency=eu")
        assert status == 503 and b"upstream_unavailable" in raw
    record = recorded(gateway, headers)
    assert [(c.backend, c.reason) for c in record.candidates] == [("placed-eu", "ejected"), ("placed-us", "labels")]
    assert record.labels == "residency=eu" and differences(record) == []
    assert cheap.requests == []
    gateway.key("strict")
    gateway.admin("PUT", "/admin/teams/strict/labels", {"labels": {"residency": "eu"}})
    until_true(lambda: ask(gateway, "placed", "strict")[0] == 503, "the worker knows the team's labels")
    cheap.requests.clear()
    status, raw, _ = ask(gateway, "placed", "strict", x_tollway_labels="residency=us")
    assert status == 400 and b"no_backend_with_labels" in raw, "a header cannot take back what the team asks"
    status, raw, _ = ask(gateway, "placed", x_tollway_labels="residency=mars")
    told = json.loads(raw)["error"]["message"]
    assert status == 400 and "residency=mars" in told and "placed-eu: residency=eu; placed-us: residency=us" in told
    status, raw, _ = ask(gateway, "placed", x_tollway_labels="eu")
    assert status == 400 and json.loads(raw)["error"]["param"] == "x-tollway-labels"
    assert cheap.requests == []


def test_labels_bind_hedges(gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream) -> None:
    dear.play(sse_reply(chat_chunks(["slow"], usage=(9, 1)), first_s=1.5))
    status, raw, headers = ask(gateway, "late-placed", x_tollway_labels="residency=eu")
    assert status == 200 and b"slow" in raw and headers["x-tollway-backend"] == "late-placed-eu"
    assert cheap.requests == []


def turns(words: str) -> list[list[dict[str, str]]]:
    """The messages of a conversation's first request and of the one after the answer: some 1,500 and 1,600 tokens."""
    first = [{"role": "system", "content": words * 1200}, {"role": "user", "content": "Begin."}]
    return [first, [*first, {"role": "assistant", "content": words * 20}, {"role": "user", "content": "Go on."}]]


def test_a_conversation_stays_with_its_prompt_cache_and_moves_when_that_is_gone(gateway: Gateway, cheap: FakeUpstream) -> None:
    cheap.play(sse_reply(chat_chunks(["well"], usage=(1600, 1))))
    other, (first, next_) = turns("whale ")[0], turns("squid ")
    for route_name, second in (("stay", "stay-a"), ("move", "move-b")):
        assert post(gateway, {"model": route_name, "messages": other})[2]["x-tollway-backend"] == f"{route_name}-b", "the cheaper one"
        status, _, headers = post(gateway, {"model": route_name, "messages": first, "stream": True}, x_tollway_labels="host=a")
        assert status == 200 and headers["x-tollway-backend"] == f"{route_name}-a"
        time.sleep(0.1)  # longer than `move` keeps a prompt
        status, _, headers = post(gateway, {"model": route_name, "messages": next_, "stream": True})
        assert status == 200 and headers["x-tollway-backend"] == second
        record = recorded(gateway, headers)
        assert differences(record) == [] and (record.candidates[0].held >= 1024) == (route_name == "stay")
    assert record.candidates[1].cost == record.input_tokens * 900 + record.output_tokens * 1800, "nano-USD"
    again = recorded(gateway, post(gateway, {"model": "stay", "messages": next_, "stream": True})[2]).candidates[0]
    assert (again.hit_ppm, again.cached) == (400_000, again.held * 2 // 5), "its vendor said that it had read nothing from a cache"


@pytest.mark.parametrize("name", ["x-tollway-ttft-ms", "x-tollway-tpot-ms", "x-tollway-deadline-ms", "x-tollway-priority"])
def test_an_objective_that_cannot_be_meant_is_refused_by_its_header(gateway: Gateway, name: str) -> None:
    for value in ("", "0", "-1", "soon", "nan", "inf", "1e99"):
        status, raw, _ = ask(gateway, "slow", **{name: value})
        assert (status, json.loads(raw)["error"]["param"]) == (400, name), value


def test_least_bad_when_nobody_is_in_time_and_low_priority_is_refused(gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream) -> None:
    for upstream in (cheap, dear):
        upstream.play(sse_reply(chat_chunks(["well"], usage=(9, 1))))
    status, raw, headers = ask(gateway, "slow", x_tollway_ttft_ms="50", x_tollway_priority="low")
    assert (status, json.loads(raw)["error"]["code"]) == (503, "no_backend_in_time")
    assert int(headers["retry-after"]) >= 1 and not cheap.requests and not dear.requests
    assert ask(gateway, "slow", x_tollway_ttft_ms="50")[2]["x-tollway-backend"] == "slow-dear", "the one that is the least late"
    assert ask(gateway, "slow", x_tollway_ttft_ms="86000000", x_tollway_priority="low")[2]["x-tollway-backend"] == "slow-cheap"


def test_the_last_places_of_a_backend_go_by_priority_and_by_share(gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream) -> None:
    gateway.key("beta")
    dear.play(sse_reply(chat_chunks(["well"], usage=(9, 1))))
    cheap.play(sse_reply(chat_chunks(["well"], usage=(9, 1)), done=False, end=hang()))
    held = [hold(gateway, team) for team in ("alpha", "alpha", "alpha", "beta")]
    try:
        cheap.play(sse_reply(chat_chunks(["well"], usage=(9, 1))))
        status, _, headers = ask(gateway, "full")
        assert (status, headers["x-tollway-backend"]) == (200, "full-dear"), "three of four are its own"
        assert [c.reason for c in recorded(gateway, headers).candidates] == ["share", ""]
        assert ask(gateway, "full", "beta")[2]["x-tollway-backend"] == "full-cheap"
        assert ask(gateway, "full", "beta", x_tollway_priority="low")[2]["x-tollway-backend"] == "full-dear"
        assert ask(gateway, "full", x_tollway_priority="high")[2]["x-tollway-backend"] == "full-cheap"
        cheap.play(sse_reply(chat_chunks(["well"], usage=(9, 1)), done=False, end=hang()))
        held.append(hold(gateway, "beta"))
        assert ask(gateway, "full", "beta", x_tollway_priority="high")[2]["x-tollway-backend"] == "full-dear", "the limit holds for all"
        view = view_of(gateway, "full-cheap")
        assert (view["state"], view["in_flight"]) == ("parallel", 5)
    finally:
        for connection in held:
            connection.close()
    until_true(lambda: view_of(gateway, "full-cheap")["in_flight"] == 0, "its places are free again")


def hold(gateway: Gateway, team: str) -> http.client.HTTPConnection:
    """A request whose answer has begun and does not end."""
    body = {"model": "full", "messages": [{"role": "user", "content": "Say hello."}], "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer {gateway.keys[team]}"})
    assert connection.getresponse().headers["x-tollway-backend"] == "full-cheap"
    return connection


def view_of(gateway: Gateway, backend: str) -> dict[str, Any]:
    views = gateway.admin("GET", "/admin/backends", None)["data"]
    return next(view for view in views if view["backend"] == backend)


def test_g22_a_failover_leaves_neither_the_keys_models_nor_its_budget(gateway: Gateway, cheap: FakeUpstream, poor: str) -> None:
    def answer(asked: Received) -> Sequence[Step]:
        if asked.json()["model"] == "model-b":
            return sse_reply(chat_chunks(["b"], model="model-b", usage=(9, 1)))
        said = {"message": "the maximum context length is 8192 tokens", "param": "messages", "code": "context_length_exceeded"}
        return json_reply({"error": {"type": "invalid_request_error", **said}}, 400)

    cheap.play(answer)
    gateway.admin("POST", "/admin/teams", {"name": "narrow"})
    gateway.keys["narrow"] = gateway.admin("POST", "/admin/keys", {"team": "narrow", "models": ["model-a"]})["secret"]
    for team in ("narrow", poor):
        status, raw, headers = ask(gateway, "g22", team)
        assert (status, json.loads(raw)["error"]["code"]) == (400, "context_length_exceeded"), team
        assert headers["content-type"].startswith("application/json")
    assert {asked.json()["model"] for asked in cheap.requests} == {"model-a"}, "model-b is not its, or not to be paid"
    status, raw, headers = ask(gateway, "g22")
    assert (status, headers["x-tollway-backend"], headers["x-tollway-attempts"]) == (200, "g22-b", "2")
    chunks = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
    assert {chunk["model"] for chunk in chunks} == {"model-b"}, "the answer names who gave it"


def test_g31_permanent_errors_get_one_call_and_others_three_in_all(gateway: Gateway, dear: FakeUpstream) -> None:
    def answer(asked: Received) -> Sequence[Step]:
        status = int(asked.json()["model"])
        return json_reply({"error": {"message": "no"}}, status, {"retry-after": "1"} if status == 503 else {})

    dear.play(answer)
    names = [f"g31-{what}" for what in (*ONCE, *THRICE, "closed")]
    with ThreadPoolExecutor(len(names)) as pool:
        told = pool.map(lambda one: ask(gateway, one)[2]["x-tollway-request-id"], names)
        ids = dict(zip(names, told, strict=True))
    hits = Counter(int(asked.json()["model"]) for asked in dear.requests)
    assert hits == dict.fromkeys(ONCE, 1) | dict.fromkeys(THRICE, 3)
    times = [asked.at for asked in dear.requests if asked.json()["model"] == "503"]
    assert all(later - before >= 0.99 for before, later in pairwise(times)), "as its Retry-After said"
    found: dict[str, Any] = {}

    def settled() -> bool:
        answers = {name: gateway.get(f"/v1/requests/{ids[name]}", gateway.keys["alpha"]) for name in names}
        found.update({name: json.loads(raw) for name, (status, raw, _) in answers.items() if status == 200})
        return len(found) == len(names)

    until_true(settled, "one row for each request")
    assert {len(found[f"g31-{status}"]["attempts"]) for status in ONCE} == {1}
    assert {len(found[f"g31-{what}"]["attempts"]) for what in (*THRICE, "closed")} == {3}
    assert {row["cost"] for row in gateway.rows("SELECT cost FROM attempts WHERE backend LIKE 'g31-%'")} == {0}
    assert len(gateway.rows("SELECT id FROM usage WHERE route LIKE 'g31-%'")) == len(names)


def test_g32_who_all_wait_is_told_so_and_nobody_is_asked_again(gateway: Gateway, cheap: FakeUpstream, dear: FakeUpstream) -> None:
    for upstream in (cheap, dear):
        upstream.play(json_reply({"error": {"message": "slow down"}}, 429, {"retry-after": "30"}))
    took = []
    for _ in range(3):
        began = time.monotonic()
        status, _, headers = ask(gateway, "g32")
        took.append(time.monotonic() - began)
        assert status == 429 and 1 <= int(headers["retry-after"]) <= 30
    assert (len(cheap.requests), len(dear.requests)) == (1, 1) and min(took) < 1.0
    view = view_of(gateway, "g32-a")
    assert view["state"] == "rate_limited" and 0 < view["ready_in_s"] <= 30
    series = b'tollway_backend_set_aside{backend="g32-a",reason="rate_limited"} 1.0'
    until_true(lambda: series in gateway.get("/metrics")[1], "its state is a metric")
    status, _, headers = ask(gateway, "g32-one")
    assert (status, headers["retry-after"]) == (429, "30"), "a single backend's word is passed on"
    for upstream in (cheap, dear):
        upstream.play(json_reply({"error": {"message": "it broke"}}, 500))
    status, raw, _ = ask(gateway, "g32-down")
    assert (status, json.loads(raw)["error"]["code"]) == (503, "upstream_unavailable")


def test_easy_prompts_go_to_the_weak_backend_others_to_the_strong_one(gateway: Gateway) -> None:
    def answered_by(prompt: str, **more: Any) -> tuple[str, Any]:
        status, raw, headers = post(
            gateway, {"model": "asked", "messages": [{"role": "user", "content": prompt}], "temperature": 1, **more}
        )
        assert status == 200, raw
        return headers["x-tollway-backend"], headers

    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    assert answered_by(EASY)[0] == "easy"
    assert answered_by(EASY, stream=True)[0] == "easy"
    assert answered_by(FOREIGN)[0] == "hard"
    assert answered_by(EASY, tools=tools)[0] == "hard"
    long = recorded(gateway, answered_by(f"{EASY}\n" * 30)[1]).quality
    assert long is not None and long.unseen <= long.unseen_most, "judged on a thread"
    backend, headers = answered_by(HARD)
    assert backend == "hard"
    record = recorded(gateway, headers)
    assert differences(record) == []
    told = explain(record)
    assert "set aside easy" in told and "1. hard" in told and "2. easy" in told
