"""A gateway with a month behind it: its processes run as a user's do, its past is written into its database, its present is asked for.

For the tests in a browser and for the pictures of the documents. Names are hostile where a configuration lets them be.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.money.records import AttemptEnd, UsageRecord
from providers.types import Usage
from tests.e2e.harness import Gateway, running
from tests.fixtures.ledger import write

HOSTILE = '<img src=x onerror="window.pwned=1">'
RIVAL = "zqrival"  # a team, and every word that is said of it: nobody of another team may meet it
DAY_US = 86_400_000_000
BUDGETS = {"growth": "5", "support": "2.40", "search": "2", "research": "1.50"}  # USD a month
TEAMS = tuple(BUDGETS)
OUTAGE = '[[sequence]]\ntimes = 5\n[[sequence]]\ntimes = 3\nerror = "unavailable"\n[[sequence]]\n'
BACKENDS = {  # name -> (model, USD per million tokens in and out, first token and pace in seconds, more of its script)
    "vllm-qwen": ("qwen3-32b", "0.12", "0.40", 0.08, 0.002, ""),
    "azure-gpt": ("gpt-4.1-mini", "0.40", "1.60", 0.12, 0.002, ""),
    "groq-llama": ("llama-3.3-70b", "0.59", "0.79", 0.04, 0.001, ""),
    "smol": ("smollm2-135m", "0.02", "0.06", 0.03, 0.001, OUTAGE),
}  # fmt: skip


def config(hostile: bool) -> str:
    """Four scripted backends, three routes; one more of each with a hostile name."""
    found = '[logging]\nlevel = "warning"\n'
    for name, (model, asked, answered, first_s, pace_s, more) in BACKENDS.items():
        script = f'ttft_s = {first_s}\ntpot_s = {pace_s}\ntext = "A toll road is a road that you pay to use, often by the mile. "\n{more}'
        found += f'[[backends]]\nname = "{name}"\nvendor = "scripted"\nmodel = "{model}"\n'
        found += f'price = {{ input = "{asked}", output = "{answered}" }}\nscript = """\n{script}"""\n'
    routes = {
        "assistant": ("vllm-qwen", "azure-gpt", "groq-llama", "smol"),
        "code": ("azure-gpt", "vllm-qwen"),
        "classify": ("smol", "groq-llama"),
    }
    if hostile:
        quoted = json.dumps(HOSTILE)
        found += f'[[backends]]\nname = "odd"\nvendor = "scripted"\nmodel = {quoted}\nprice = {{ input = "1", output = "1" }}\n'
        routes[HOSTILE] = ("odd",)
    for name, behind in routes.items():
        more = "ttft_ms = 1500\n" if name == "assistant" else ""
        found += f"[[routes]]\nname = {json.dumps(name)}\nbackends = {json.dumps(behind)}\n{more}"
    return found


def admin_key(gateway: Gateway) -> str:
    """The one that the first start printed."""
    found = re.search(r"First admin key, shown this once: (\S+)", gateway.log)
    assert found is not None, "no first admin key was printed"
    return found[1]


def ask(gateway: Gateway, key: str, route: str, prompt: str, *, tag: str = "", **members: Any) -> int:
    """One chat; the status."""
    body = {"model": route, "messages": [{"role": "user", "content": prompt}], "max_tokens": 60, **members}
    headers = {"x-tollway-tag": tag} if tag else {}
    return gateway.call("POST", "/v1/chat/completions", json.dumps(body).encode(), key, headers)[0]


@contextlib.contextmanager
def filled(folder: Path, *, days: int = 3, a_day: int = 10, hostile: bool = True) -> Iterator[Gateway]:
    """A running gateway with this much behind it, its teams' keys in `keys`."""
    with running(folder, config(hostile), server="drain_s = 1") as gateway:
        for team in TEAMS:
            gateway.key(team)
        gateway.key("trial")
        gateway.budget("0.0000001", team="trial")
        if hostile:
            _odd_names(gateway)
        asyncio.run(_past(gateway, days, a_day))
        _present(gateway, hostile)
        for team, usd in BUDGETS.items():  # with what was spent before
            gateway.budget(usd, team=team)
            assert ask(gateway, gateway.keys[team], "code", "Name a toll.") == 200
        yield gateway


def _present(gateway: Gateway, hostile: bool) -> None:
    """What happens now: answers, streams, a cache hit, a failover or two, a refusal."""
    prompts = ("What is a toll road?", "Name three bridges.", "Why is the sky blue?")
    for n in range(15):
        team = TEAMS[n % len(TEAMS)]
        route = ("assistant", "code", "classify")[n % 3]
        status = ask(gateway, gateway.keys[team], route, prompts[n % 3], stream=n % 2 == 0, temperature=0 if n % 6 == 0 else 1)
        assert status == 200, status
    if hostile:
        assert ask(gateway, gateway.keys["growth"], HOSTILE, HOSTILE, tag=HOSTILE) == 200
    status = ask(gateway, gateway.keys["trial"], "assistant", "one too many")
    assert status == 402, status


def _odd_names(gateway: Gateway) -> None:
    """A key with a hostile name, and a team whose every word is its own."""
    gateway.admin("POST", "/admin/keys", {"team": "growth", "name": HOSTILE, "tag": HOSTILE})
    gateway.admin("POST", "/admin/teams", {"name": RIVAL})
    gateway.keys[RIVAL] = gateway.admin("POST", "/admin/keys", {"team": RIVAL, "name": f"{RIVAL}-key", "tag": RIVAL})["secret"]
    gateway.admin("POST", "/admin/members", {"email": f"{RIVAL}@example.org", "name": RIVAL, "teams": {RIVAL: "team_admin"}})
    gateway.budget("3", team=RIVAL)
    assert ask(gateway, gateway.keys[RIVAL], "assistant", RIVAL) == 200


async def _past(gateway: Gateway, days: int, a_day: int) -> None:
    """Rows of the days before, as workers write them, more of them by day than by night."""
    engine = create_async_engine(gateway.database_url)
    try:
        async with engine.connect() as connection:
            rows = await connection.execute(text("SELECT t.name, t.id, t.org_id, k.id FROM teams t JOIN api_keys k ON k.team_id = t.id"))
            known = {name: (int(team), int(org), int(key)) for name, team, org, key in rows.all() if name in TEAMS}
        chance, now_us = random.Random(7), time.time_ns() // 1000
        made = []
        for n in range(days * a_day):
            at_us = now_us - int((n + chance.random()) / a_day * DAY_US) - 60_000_000
            hour = at_us % DAY_US / DAY_US * 24
            if chance.random() > 0.35 + 0.65 * math.exp(-(((hour - 14) / 5) ** 2)):
                continue
            made.append(_row(chance, at_us, known[chance.choices(TEAMS, (5, 3, 2, 1))[0]]))
        await write(engine, made, now_us)
    finally:
        await engine.dispose()


def _row(chance: random.Random, at_us: int, who: tuple[int, int, int]) -> UsageRecord:
    """One request: mostly answered, some cached, failed over, failed, cancelled."""
    team, org, key = who
    request = UUID(int=(at_us // 1000) << 80 | 0x7 << 76 | chance.getrandbits(12) << 64 | 0x2 << 62 | chance.getrandbits(62))
    backend = chance.choices(tuple(BACKENDS), (5, 3, 2, 4))[0]
    route = "classify" if backend == "smol" else chance.choice(("assistant", "assistant", "code"))
    kind = chance.choices(("plain", "cached", "over", "failed", "cancelled"), (80, 8, 6, 3, 3))[0]
    first_ms = int(chance.lognormvariate(6.0, 0.5))
    usage = Usage(
        input=int(chance.lognormvariate(8, 1)), output=int(chance.lognormvariate(5.5, 0.7)), cache_read=chance.choice((0, 0, 1200))
    )
    ends: list[AttemptEnd] = []
    if kind == "over":
        ends.append(_attempt(request, 1, "groq-llama", "failed", Usage(), 200))
    if kind != "cached":
        outcome = "completed" if kind in ("plain", "over") else kind
        ends.append(_attempt(request, len(ends) + 1, backend, outcome, usage if outcome != "failed" else Usage(), first_ms))
    cost = sum(end.cost or 0 for end in ends)
    took_ms = first_ms + usage.output * 12 if kind != "cached" else 4
    last = ends[-1] if ends else None
    return UsageRecord(
        id=request,
        started_at_us=at_us,
        ended_at_us=at_us + took_ms * 1000,
        team_id=team,
        key_id=key,
        org_id=org,
        route=route,
        backend=last.backend if last else "",
        vendor=last.vendor if last else "",
        model=last.model if last else "",
        price_id="config",
        outcome=last.outcome if last else "cached",
        cost=cost,
        usage=last.usage if last else usage,
        charges=(),
        attempts=tuple(ends),
        streamed=chance.random() < 0.7,
        tag=chance.choice(("", "", "nightly", "web")),
        error=last.error if last else "",
        status={"failed": 502, "cancelled": 499}.get(kind, 200),
        saved=0 if ends else int(usage.output * 1.6e3),
        ttft_ms=None if kind == "failed" else 3 if kind == "cached" else first_ms,
        duration_ms=took_ms,
    )


def _attempt(request: UUID, n: int, backend: str, outcome: str, usage: Usage, first_ms: int) -> AttemptEnd:
    model, asked, answered, *_ = BACKENDS[backend]
    cost = int(usage.prompt_tokens * float(asked) * 1000 + usage.completion_tokens * float(answered) * 1000)
    return AttemptEnd(
        request_id=request,
        n=n,
        backend=backend,
        vendor="scripted",
        model=model,
        price_id="config",
        outcome=outcome,
        cost=cost,
        worst=cost * 3 + 1000,
        usage=usage,
        error="upstream_unavailable" if outcome == "failed" else "",
        status=503 if outcome == "failed" else 200,
        ttft_ms=None if outcome == "failed" else first_ms,
        duration_ms=first_ms + usage.output * 12,
        began_ms=0 if n == 1 else 210,
    )
