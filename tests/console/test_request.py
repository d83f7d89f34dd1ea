"""The page of one request: the sentence, the decision drawn, the timeline, and money that adds up to the ledger."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert

from gateway.catalog import Price
from gateway.console import request as console_request
from gateway.console.request import charges, doing, happened, moment, short, what_then
from gateway.db.tables import decisions, price_book
from gateway.money.marks import HEDGED, MISSED
from gateway.money.records import UsageRecord
from gateway.routing.decision import Hedge, encode
from gateway.views.decided import tell
from gateway.views.request import Found
from gateway.views.under_way import Call, UnderWay
from providers.scripted import ScriptedProvider, parse
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths
from tests.fixtures.ledger import record, write
from tests.fixtures.waiting import until
from tests.views.test_request import NOW, PRICE, decided, failed_over


async def stored(site: Site, one: UsageRecord, **given: Any) -> None:
    made = decided()
    for name, value in given.items():
        setattr(made, name, value)
    async with site.parts.engine.begin() as connection:
        values = {"request_id": one.id, "made_at_us": NOW, "team_id": 1, "record": encode(made)}
        await connection.execute(insert(decisions).values(**values))
        price = {"id": PRICE.id, "vendor": "openai", "model": "m", "source": "api", "from_us": NOW, "created_at_us": 1}
        await connection.execute(insert(price_book).values(**price, record=msgspec.json.encode(PRICE).decode()))
    await write(site.parts.engine, [one])


async def test_it_says_the_answer_first_and_then_the_proof(site: Site) -> None:
    browser = await site.signed_in()
    one = failed_over()
    await stored(site, one)
    answer = await browser.get(f"/console/requests/{one.id}")
    assert answer.status_code == 200
    sound(answer, paths(site))
    for text in (
        tell(decided()).headline,
        "qwen answered 503 overloaded after 30 ms. So the next in the plan, mini, answered.",
        "Recomputed from the record, same choice",
        f"tollway explain {one.id}",
        "Nothing sent yet: failed over to mini.",
        "Prompt-cache read",
        "$0.000142650",
        "$0.000144000",
        "$0.000324600",
        "$0.000611250",
        "objective 1.50 s",
        '<span class="mono">book:mini</span> of 18 Nov',
    ):
        assert text in answer.text, text
    drawn = answer.text[answer.text.index('<table class="t dec') : answer.text.index("</table>")]
    assert [drawn.count(f"<bdi>{c.backend}</bdi>") for c in decided().candidates] == [1, 1]


async def test_a_choice_that_computes_otherwise_is_told_and_why_there_is_none(site: Site) -> None:
    browser = await site.signed_in()
    one = failed_over()
    await stored(site, one, order=(1, 0) if decided().order == (0, 1) else (0, 1))
    assert "Recomputed from the record, differs: choice" in (await browser.get(f"/console/requests/{one.id}")).text
    cached, refused, plain = record(NOW, [], outcome="cached"), record(NOW, [], outcome="refused"), record(NOW, [("a", "completed", 5)])
    await write(site.parts.engine, [cached, refused, plain])
    for one, words in ((cached, "from the response cache"), (refused, "refused before a backend"), (plain, "No decision is stored")):
        assert words in (await browser.get(f"/console/requests/{one.id}")).text


async def test_another_team_s_request_looks_like_a_missing_one(site: Site) -> None:
    await site.key("growth", "inference")
    one = record(NOW, [("a", "completed", 5)], team_id=1)
    await write(site.parts.engine, [one])
    browser = await site.signed_in("team_admin", team="search")
    hidden, absent = await browser.get(f"/console/requests/{one.id}"), await browser.get(f"/console/requests/{str(one.id)[:-4]}0000")
    assert hidden.status_code == absent.status_code == 404
    assert hidden.text.replace(str(one.id), "X") == absent.text.replace(f"{str(one.id)[:-4]}0000", "X")


async def test_a_request_that_runs_is_shown_and_asks_again_until_its_row_and_its_decision_are_there(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_request, "DECISION_WAIT_US", 600_000_000)
    silent = {name: ScriptedProvider(parse("hang_after = 2")) for name in ("near", "far")}
    site.parts.pipeline.attempts.providers = silent
    headers = {"authorization": f"Bearer {await site.key('growth', 'inference')}"}
    body = {"model": "assistant", "stream": True, "messages": [{"role": "user", "content": "Say hello."}]}
    browser, other = await site.signed_in(), await site.signed_in("team_admin", team="search")
    client = asyncio.ensure_future(site.browser().post("/v1/chat/completions", json=body, headers=headers))
    try:
        running = site.parts.pipeline.in_flight
        await until(lambda: any(x.answered_by is not None and x.answered_by.meter.pieces == 2 for x in running), "two pieces of an answer")
        (x,) = running
        page = f"/console/requests/{x.id}"
        answer = await browser.get(page)
        assert answer.status_code == 200
        sound(answer, paths(site))
        live = f'hx-get="{page}/-/live"'
        for text in (">Running<", "answers", "Chosen", 'data-tick="2000"', live, "<bdi>growth</bdi>"):
            assert text in answer.text, text
        assert live in (await browser.get(f"{page}/-/live")).text
        for path in (page, f"{page}/-/live"):
            assert "growth" not in (told := await other.get(path)).text and live not in told.text, "another team sees nothing of it"
        x.cancel("deadline")
    finally:
        await client
    await until(lambda: not running and not len(site.parts.accounts._syncer.queue), "the row is written")
    part = await browser.get(f"{page}/-/live")
    assert ">Failed<" in part.text and "No decision is stored" in part.text and live in part.text, "its decision is on its way"
    await site.application.decisions.flush()
    part = await browser.get(f"{page}/-/live")
    assert "Recomputed from the record" in part.text and "hx-get" not in part.text, "all is told: it asks no more"
    assert "hx-get" not in (await browser.get(page)).text.split('id="live"')[1].split(">")[0]
    gone = await browser.get(f"/console/requests/{str(x.id)[:-4]}0000/-/live")
    assert gone.status_code == 200 and "It left no row" in gone.text and "hx-get" not in gone.text


async def test_what_was_asked_for_and_what_the_cache_said_stand_there(site: Site) -> None:
    client, key = site.browser(), await site.key("growth", "inference")
    body = {"model": "assistant", "temperature": 0, "top_p": 0.5, "max_tokens": 9, "messages": [{"role": "user", "content": "my secret"}]}
    ids, pages = [], []
    asked: tuple[tuple[dict[str, Any], dict[str, str]], ...] = (
        ({}, {}),
        ({}, {}),
        ({}, {"cache-control": "no-cache"}),
        ({}, {"cache-control": "no-store"}),
        ({"temperature": 0.7, "reasoning_effort": "my secret"}, {}),
    )
    for more, headers in asked:
        answer = await client.post("/v1/chat/completions", json=body | more, headers={"authorization": f"Bearer {key}", **headers})
        assert answer.status_code == 200, answer.text
        ids.append(answer.headers["x-tollway-request-id"])
    await until(lambda: not len(site.parts.accounts._syncer.queue), "the rows are written")
    await site.application.decisions.flush()
    browser, headers = await site.signed_in(), {"authorization": f"Bearer {await site.key('ops', 'admin')}"}
    for request_id in ids:
        pages.append((await browser.get(f"/console/requests/{request_id}")).text)
        assert "my secret" not in pages[-1]
    for page, words in zip(
        pages,
        (
            "miss: no such answer was stored; this one is now",
            "hit: a stored answer",
            "miss: the client wanted no stored answer; this one is stored now",
            "bypassed: the client sent no-store",
            "bypassed: the temperature was not 0",
        ),
        strict=True,
    ):
        assert words in page, words
    assert "temperature 0 · max_tokens 9 · top_p 0.5" in pages[0] and "temperature 0.7" in pages[4]
    told = (await client.get(f"/admin/requests/{ids[4]}", headers=headers)).json()["asked"]
    assert told == {
        "parameters": {"temperature": 0.7, "max_tokens": 9, "top_p": 0.5, "reasoning_effort": "other"},
        "dropped": [],
        "max_tokens_lowered_to": None,
        "cache": "temperature",
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"state": "being written", "outcome": "completed"}, "it ended as completed"),
        ({"calls": ()}, "no backend is called at the moment"),
        ({"calls": (Call(n=1, backend="a", outcome="failed"), Call(n=2, backend="b"))}, "b was asked"),
        ({"calls": (Call(n=1, backend="a"), Call(n=2, backend="b")), "pieces": 0}, "waits for the first token of a and b"),
        ({"calls": (Call(n=1, backend="a", ttft_ms=4),), "pieces": 3}, "a answers"),
    ],
)
def test_what_goes_on_in_words(given: dict[str, Any], words: str) -> None:
    fields = {"id": failed_over().id, "team_id": 1, "key_id": 1, "route": "r", "state": "runs", "started_at_us": 0, "calls": ()}
    assert doing(UnderWay(**(fields | given))) == words


def attempt(n: int, **given: Any) -> dict[str, Any]:
    base = {"n": n, "backend": f"b{n}", "outcome": "completed", "status": 200, "error": "", "ttft_ms": 300, "duration_ms": 1000}
    return base | {"cost": 5, "worst": 9} | given


def found(*tried: dict[str, Any], **given: Any) -> Found:
    from gateway.views.request import Tried

    row = {"outcome": "completed", "marks": 0, "cost": 5} | given
    each = tuple(Tried(row=one, bill=None, share=False) for one in tried)
    return Found(id=failed_over().id, row=row, tried=each, corrections=(), charged=(), decision=given.get("decision", decided()))


@pytest.mark.parametrize(
    ("tried", "words"),
    [
        ([attempt(1)], ["First good event after 300 ms, then committed."]),
        (
            [attempt(1, outcome="failed", ttft_ms=None), attempt(2)],
            ["Nothing sent yet: failed over to b2.", "First good event after 300 ms, then committed."],
        ),
        ([attempt(1, outcome="failed", ttft_ms=None), attempt(2, backend="b1")], ["Nothing sent yet: tried again.", None]),
        ([attempt(1, outcome="failed", ttft_ms=None)], ["Nobody else was asked."]),
        ([attempt(1, outcome="failed")], ["The answer had begun: no failover any more."]),
        ([attempt(1, outcome="cancelled")], ["The client left: the call was cancelled and what was generated is charged."]),
        ([attempt(1, outcome="cancelled", error="lost_race")], ["Another attempt answered first, so this call was cancelled."]),
        ([attempt(1, outcome="unknown")], ["Its gateway stopped before the end was written down: booked at its worst case."]),
    ],
)
def test_what_happened_next_in_words(tried: list[dict[str, Any]], words: list[str | None]) -> None:
    said = [happened(found(*tried).tried, place) for place in range(len(tried))]
    assert all(wanted is None or one == wanted for one, wanted in zip(said, words, strict=True))


def test_a_hedge_and_a_miss_are_told() -> None:
    made = decided()
    made.hedge = Hedge(900_000, 900_500, "sent", 1, 100, 2)
    one = found(attempt(1, outcome="cancelled", error="lost_race"), attempt(2), marks=HEDGED | MISSED, decision=made)
    assert what_then(one, tell(made)) == (
        "It was late after 900 ms, so mini was asked beside it. mini answered first. An objective was missed."
    )


def test_charges_add_up_to_the_cost() -> None:
    shared = found(attempt(1, cost=7))
    assert [(line.what, line.nanousd) for line in charges(shared)] == [("Attempt 1", 7)]
    assert charges(found(attempt(1, cost=None))) == []
    assert Price(id="p", input=1, output=1).per_request == 0


def test_an_instant_and_an_id_for_headings() -> None:
    assert moment(1_795_000_000_412_000, "Europe/Berlin") == ("2026-11-18T12:06:40.412000+01:00", "18 Nov 2026 12:06:40.412, Europe/Berlin")
    assert (short("01a22d5f-982f-78bc-b124-ea2602778a14"), short("nonsense")) == ("01a22d5f…8a14", "nonsense")
