"""Engines are read over real sockets: what they say reaches the router and the admin page; what goes wrong harms nothing and is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from gateway.catalog import Catalog, Route
from gateway.engine_figures import EngineFigures
from gateway.routing.router import BackendView, Router
from gateway.settings import FigureSettings
from gateway.settings import Upstream as UpstreamSettings
from providers.http import Upstream
from providers.remote import RemoteProvider
from providers.vendors import VENDORS
from tests.fakes.engine_pages import llamacpp, reply, sglang, vllm
from tests.fakes.upstream import FakeUpstream, Step, chunk, hang, head, json_reply, refused_url
from tests.routing.conftest import make_backend, make_features

WITHIN_S = 60.0
GENEROUS = FigureSettings(timeout_s=20.0, max_age_s=600.0)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    client = Upstream(UpstreamSettings())
    yield client
    await client.close()


class Engines:
    """A reader over backends of given vendors and addresses."""

    def __init__(self, upstream: Upstream, settings: FigureSettings, **urls: tuple[str, str]) -> None:
        self.now: float | None = None  # instead of the clock
        backends = {name: make_backend(name, vendor=vendor, own=True) for name, (vendor, _) in urls.items()}
        self.catalog = Catalog(version="1", backends=backends, routes={})
        self.router = Router()
        self.providers = {name: RemoteProvider(VENDORS[vendor], url + "/v1", "sk-secret", upstream) for name, (vendor, url) in urls.items()}
        self.reader = EngineFigures(settings, self.router, lambda: self.catalog, lambda: self.providers, self.clock)

    def clock(self) -> float:
        return time.monotonic() if self.now is None else self.now

    def view(self, name: str) -> BackendView:
        return next(view for view in self.router.snapshot(self.clock()) if view.backend == name)

    async def read(self, name: str) -> None:
        """Look until this one was read: under load a page may take longer than it has."""
        end = time.monotonic() + WITHIN_S
        while not self.read_once(name):
            assert time.monotonic() < end, f"{name} is not read"
            await self.reader.look()
            await asyncio.sleep(0.002)

    def read_once(self, name: str) -> bool:
        engine = self.view(name).engine
        return engine is not None and engine.problem == ""


async def test_each_server_is_read_in_its_own_words(upstream: Upstream) -> None:
    async with (
        FakeUpstream(reply(vllm(2, 8, 0.5, 100, 40))) as a,
        FakeUpstream(reply(sglang(1, 3, 0.25))) as b,
        FakeUpstream(reply(llamacpp(5, 4))) as c,
    ):
        engines = Engines(upstream, GENEROUS, a=("vllm", a.url), b=("sglang", b.url), c=("llamacpp", c.url))
        await engines.reader.look()
    found = {name: engines.view(name).engine for name in "abc"}
    assert all(one is not None and one.problem == "" and one.age_s is not None for one in found.values())
    assert [(one.figures.waiting, one.figures.running, one.figures.kv_share) for one in found.values() if one and one.figures] == [
        (2, 8, 0.5),
        (1, 3, 0.25),
        (5, 4, None),
    ]
    assert (a.requests[0].target, a.requests[0].headers["authorization"]) == ("/metrics", "Bearer sk-secret")


async def test_own_requests_are_not_counted_twice(upstream: Upstream) -> None:
    async with FakeUpstream(reply(vllm(0, 5))) as fake:
        engines = Engines(upstream, GENEROUS, a=("vllm", fake.url))
        state = engines.router.states(engines.catalog)["a"]
        for _ in range(3):
            state.started(time.monotonic(), make_features())
        await engines.reader.look()
    assert state.load(time.monotonic()) == (3 * 1000, 5), "three of mine, two of others"


async def test_the_replica_that_others_load_is_left_alone(upstream: Upstream) -> None:
    """From the page over the socket into the choice, and no further than the figures are young."""
    async with FakeUpstream(reply(vllm(9, 30))) as a, FakeUpstream(reply(vllm(0, 0))) as b:
        engines = Engines(upstream, GENEROUS, a=("vllm", a.url), b=("vllm", b.url))
        both = Route(name="r", backends=("a", "b"))
        engines.catalog = Catalog(version="1", backends=engines.catalog.backends, routes={"r": both})
        await engines.reader.look()

    def chosen(now: float) -> set[str]:
        return {engines.router.plan(make_features(route="r"), both, engines.catalog, now, draw).plan[0].name for draw in (0.0, 0.5, 0.99)}

    assert chosen(time.monotonic()) == {"b"}
    assert chosen(time.monotonic() + 700.0) == {"a", "b"}


ABSENT: dict[str, list[Step]] = {
    "404": json_reply({"detail": "Not Found"}, 404),  # SGLang without --enable-metrics
    "501": json_reply({"error": {"code": 501, "message": "This server does not support metrics endpoint."}}, 501),
    "another page": reply("# nothing here\nup 1\n"),
}
TROUBLE: dict[str, list[Step]] = {
    "500": json_reply({}, 500),
    "huge": reply("x" * 70_000),
    "endless": [head(200, {"content-type": "text/plain"}), *[chunk(b"x" * 9_000)] * 20, hang()],
    "hanging": [hang()],
    "stuck": [head(200, {"content-type": "text/plain"}), chunk(b"vllm:num_requests_waiting 1\n"), hang()],
    "cut": [head(200, {"content-type": "text/plain"}), chunk(b"vllm:num_requests_waiting 1\n"), Step("reset")],
    "not HTTP": [Step("send", b"\x00\xff garbage\r\n\r\n"), Step("close")],
    "a redirect": json_reply({}, 302, {"location": "http://127.0.0.1:1/"}),
}


@pytest.mark.parametrize("kind", [*ABSENT, *TROUBLE, "refused"])
async def test_trouble_is_told_and_harms_no_other(upstream: Upstream, kind: str) -> None:
    small = FigureSettings(timeout_s=0.3, max_bytes=65_536, every_s=0.001, absent_s=3000.0)
    async with FakeUpstream((ABSENT | TROUBLE).get(kind, [hang()])) as bad, FakeUpstream(reply(vllm(7, 1))) as good:
        url = refused_url() if kind == "refused" else bad.url
        engines = Engines(upstream, small, bad=("vllm", url), good=("vllm", good.url))
        await asyncio.wait_for(engines.reader.look(), WITHIN_S)
        view = engines.view("bad").engine
        assert view is not None and view.problem not in ("", "not read yet") and view.figures is None and view.age_s is None
        assert engines.router.states(engines.catalog)["bad"].load(time.monotonic()) == (0, 0)
        await engines.read("good")


@pytest.mark.parametrize("kind", ABSENT)
async def test_a_server_without_figures_is_asked_rarely(upstream: Upstream, kind: str) -> None:
    async with FakeUpstream(ABSENT[kind]) as fake:
        engines = Engines(upstream, FigureSettings(every_s=2.0, timeout_s=20.0, absent_s=60.0), a=("vllm", fake.url))
        assert await asked(engines, fake, 130) == [0, 60, 120]


async def asked(engines: Engines, fake: FakeUpstream, seconds: int) -> list[int]:
    """In which of so many seconds, with a look in each, the server was asked."""
    found = []
    for second in range(seconds):
        engines.now = 1000.0 + second
        before = len(fake.requests)
        await engines.reader.look()
        if len(fake.requests) > before:
            found.append(second)
    return found


async def test_a_server_in_trouble_is_asked_less_and_less_and_comes_back(upstream: Upstream) -> None:
    async with FakeUpstream(json_reply({}, 500)) as fake:
        engines = Engines(upstream, FigureSettings(every_s=2.0, timeout_s=20.0, max_age_s=10.0, absent_s=60.0), a=("vllm", fake.url))
        assert await asked(engines, fake, 200) == [0, 4, 12, 28, 60, 120, 180]
        fake.play(reply(vllm(1, 1)))
        engines.now = 1240.0
        await engines.reader.look()
        kept = engines.view("a").engine
        assert kept is not None and kept.problem == "" and kept.figures is not None
        engines.now = 1251.0
        stale = engines.view("a").engine
        assert stale is not None and stale.figures is None and stale.age_s == 11.0, "too old to be used"


async def test_no_more_engines_than_the_settings_allow(upstream: Upstream) -> None:
    async with FakeUpstream(reply(vllm(1, 1))) as fake:
        settings = FigureSettings(timeout_s=20.0, max_backends=2)
        engines = Engines(upstream, settings, **dict.fromkeys("abcd", ("vllm", fake.url)))
        await engines.reader.look()
        problems = [view.engine.problem for name in "abcd" if (view := engines.view(name)).engine]
    assert len(fake.requests) == 2
    assert problems[:2] == ["", ""] and all("max_backends" in problem for problem in problems[2:])


async def test_a_page_elsewhere_gets_no_credential(upstream: Upstream) -> None:
    async with FakeUpstream() as api, FakeUpstream(reply(vllm(1, 1))) as page:
        provider = RemoteProvider(VENDORS["vllm"], api.url + "/v1", "sk-secret", upstream, page.url + "/elsewhere")
        assert (await provider.figures(20.0, 65_536)).waiting == 1
    assert page.requests[0].target == "/elsewhere" and "authorization" not in page.requests[0].headers


async def test_a_hosted_backend_is_never_asked(upstream: Upstream) -> None:
    async with FakeUpstream(reply(vllm(1, 1))) as fake:
        engines = Engines(upstream, GENEROUS, a=("vllm", fake.url))
        engines.catalog = Catalog(version="2", backends={"a": make_backend("a")}, routes={})
        await engines.reader.look()
        assert not fake.requests and engines.view("a").engine is None
