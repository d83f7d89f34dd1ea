"""`tollway explain`: the stored record of a choice, computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from sqlalchemy import insert

from gateway.catalog import Backend, Price
from gateway.db.tables import decisions
from gateway.routing.choose import Knobs, choose
from gateway.routing.decision import encode
from gateway.routing.features import Features
from gateway.routing.state import BackendState
from tests.cli.conftest import Tollway


def test_the_stored_choice_is_told_and_agrees(tollway: Tollway, on_database: Callable[[Callable[..., Any]], Any]) -> None:
    states = [
        BackendState(Backend(name=name, vendor="openai", model="m", dialect="openai_chat", price=Price(id=name, input=rate, output=rate)))
        for name, rate in (("cheap", 10**9), ("dear", 9 * 10**9))
    ]
    asked = Features(
        route="assistant", dialect="openai_chat", input_tokens=1000, input_tokens_upper=4000, expected_output_tokens=100, stream=True
    )
    _, made = choose(asked, states, 0.0, 0.25, Knobs("cat-7"))
    request = uuid4()

    async def store(engine: Any) -> None:
        async with engine.begin() as connection:
            await connection.execute(insert(decisions).values(request_id=request, made_at_us=1, team_id=1, record=encode(made)))

    on_database(store)
    said = tollway("explain", str(request))
    assert said.status == 0
    assert "1. cheap" in said.out and "2. dear" in said.out and said.out.strip().endswith("recomputed: agrees")


def test_what_is_not_there_is_said_in_one_line(tollway: Tollway, on_database: Callable[[Callable[..., Any]], Any]) -> None:
    assert "is no request id" in tollway("explain", "banana").err
    request = uuid4()
    missing = tollway("explain", str(request))
    assert missing.status == 1 and str(request) in missing.err and missing.err.count("\n") == 1

    async def store(engine: Any) -> None:
        async with engine.begin() as connection:
            await connection.execute(insert(decisions).values(request_id=request, made_at_us=1, team_id=1, record=b"\x93\x01\x02\x03"))

    on_database(store)
    assert "another version" in tollway("explain", str(request)).err
