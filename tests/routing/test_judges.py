"""Judges: what a request is judged by, where, and how a wanted share of strong calls is kept whatever the traffic is like."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.catalog import QualityRule, Route
from gateway.routing import judges as module
from gateway.routing.judges import INLINE_BYTES, MAX_WAITING, Judges, Share, asked
from gateway.routing.quality import MILLION, Model
from providers.dialects import DIALECTS
from providers.types import Request
from tests.routing.test_quality import EASY, FOREIGN, HARD

RULE = QualityRule(weak=("small",), most_gain=150_000)
ROUTE = Route(name="assistant", backends=("small", "large"), quality=RULE)


def request(*said: Any, role: str = "user", **fields: Any) -> Request:
    messages = [{"role": role, "content": one} for one in said]
    return DIALECTS["openai_chat"].decode_request(json.dumps({"model": "assistant", "messages": messages, **fields}).encode())


@pytest.fixture(scope="module")
def judges() -> Judges:
    made = Judges()
    made.load({"assistant": ROUTE})
    return made


def test_a_floor_lets_the_weak_backend_have_what_it_does_well(judges: Judges) -> None:
    easy, hard = (asyncio.run(judges.of(ROUTE, RULE, request(text))) for text in (EASY, HARD))
    assert not easy.needs_strong and hard.needs_strong
    assert easy.limit == hard.limit == 150_000 and easy.weak == ("small",) and len(easy.model) == 12
    assert judges.now(ROUTE, RULE, request(EASY)) == easy


@pytest.mark.parametrize(
    "unlike",
    [
        request(FOREIGN),
        request(""),
        request(EASY, role="system"),
        request(EASY, tools=[{"type": "function", "function": {"name": "f"}}]),
        request([{"type": "text", "text": EASY}, {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]),
        request(EASY, response_format={"type": "json_object"}),
    ],
)
def test_what_is_unlike_the_labels_goes_to_a_strong_one(judges: Judges, unlike: Request) -> None:
    found = asyncio.run(judges.of(ROUTE, RULE, unlike))
    assert found.needs_strong and found.unseen > found.unseen_most


def test_parameters_that_change_no_question_make_nothing_unlike(judges: Judges) -> None:
    assert not asyncio.run(judges.of(ROUTE, RULE, request(EASY, n=2, logprobs=True))).needs_strong


def test_all_that_the_user_said_is_read_and_of_much_the_last() -> None:
    turns = request("first", [{"type": "text", "text": "second"}, {"type": "text", "text": "part"}], "third")
    assert asked(turns) == "first\nsecond\npart\nthird"
    assert asked(request("a" * 5000, "b" * 5000, "c" * 5000)) == "b" * 5000 + "\n" + "c" * 5000


def test_a_route_whose_model_is_not_loaded_asks_strong_backends() -> None:
    assert asyncio.run(Judges().of(ROUTE, RULE, request(EASY))).needs_strong


def test_a_model_that_cannot_be_read_names_the_route(judges: Judges, tmp_path: Path) -> None:
    bad = Route(name="sums", backends=("a", "b"), quality=QualityRule(weak=("a",), model=str(tmp_path / "none")))
    with pytest.raises(ValueError, match=r"routes\.sums\.quality\.model: .*none: cannot be read"):
        judges.load({"assistant": ROUTE, "sums": bad})
    assert not asyncio.run(judges.of(ROUTE, RULE, request(EASY))).needs_strong, "what was loaded stays"


def test_a_long_prompt_is_judged_off_the_loop_and_the_queue_is_bounded(judges: Judges, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[str] = []
    free = threading.Event()
    judge = Model.judge

    def watched(model: Model, text: str) -> Any:
        where.append(threading.current_thread().name)
        if len(text) > INLINE_BYTES:
            free.wait(60)
        return judge(model, text)

    monkeypatch.setattr(Model, "judge", watched)
    long = request(EASY * 20)

    async def flood() -> list[Any]:
        tasks = [asyncio.create_task(judges.of(ROUTE, RULE, long)) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        beyond = await judges.of(ROUTE, RULE, long)
        short = await judges.of(ROUTE, RULE, request(EASY))
        free.set()
        return [beyond, short, *await asyncio.gather(*tasks)]

    beyond, short, *rest = asyncio.run(flood())
    assert beyond.unseen == MILLION, "the queue is full: to a strong one, unread"
    assert not short.needs_strong
    assert len(rest) == MAX_WAITING and len({one.gain for one in rest}) == 1 and rest[0].unseen < MILLION
    assert where.count(threading.main_thread().name) == 1
    assert sum(name.startswith("tollway-quality") for name in where) == MAX_WAITING


# ---- a wanted share
def uniform(draw: random.Random) -> float:
    return draw.random()


def other(draw: random.Random) -> float:
    return 0.4 + 0.1 * draw.random()  # traffic that is nothing like what the model was trained on


@pytest.mark.parametrize("traffic", [uniform, other])
@pytest.mark.parametrize("wanted", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_realised_share_is_the_wanted_one(traffic: Callable[[random.Random], float], wanted: float) -> None:
    share, draw, strong = Share(tuple(i / 100 for i in range(101)), wanted), random.Random(4), 0
    for _ in range(6000):
        needs = round(traffic(draw) * MILLION) > share.limit
        share.took(needs)
        strong += needs
    assert strong / 6000 == pytest.approx(wanted, abs=0.03)


def test_a_share_starts_where_held_out_prompts_say() -> None:
    assert Share(tuple(i / 100 for i in range(101)), 0.25).limit == 750_000
    assert Share((0.0,) * 101, 1.0).limit < 0 < Share((0.0,) * 101, 0.0).limit


def test_shares_are_kept_per_route(judges: Judges) -> None:
    rule = QualityRule(weak=("small",), strong_share=0.5)
    a, b = (Route(name=name, backends=("small", "large"), quality=rule) for name in "ab")
    before = judges.now(a, rule, request(HARD)).limit
    first = [asyncio.run(judges.of(a, rule, request(HARD))).limit for _ in range(20)]
    assert first[0] == before, "a question that nobody sent moves nothing"
    assert first[-1] > first[0], "all that came was hard: the threshold rises"
    assert judges.now(b, rule, request(HARD)).limit == first[0]
    assert module.STEP == 0.01
