"""The overview: is anything wrong, what was spent, is it fast."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from litestar import Response, get
from litestar.handlers import BaseRouteHandler

from gateway import access
from gateway.catalog import Catalog
from gateway.console import charts, shell
from gateway.console.shell import Asked
from gateway.money.ledger import HOUR_US
from gateway.views import burn, figures, savings
from gateway.views import overview as views
from gateway.views.overview import Notice, Overview
from gateway.views.query import Query
from gateway.views.series import Part, Series, month_name, word

BUDGETS_SHOWN, PLACES_SHOWN = 6, 8
SPLIT = tuple(views.SPLITS)
TROUBLE = ("failed", "refused")


def handlers(parts: views.Watched) -> list[BaseRouteHandler]:
    async def made(request: Asked) -> tuple[access.Actor, dict[str, Any]]:
        who = access.actor(request)
        query = shell.query(request, more={"split": SPLIT})
        since_us, until_us = query.buckets
        asked = views.Asked(since_us=since_us, until_us=until_us, tz=query.tz, scope=who.scope, split=query.more["split"])
        return who, await asyncio.to_thread(shown, await views.overview(parts, asked), query, parts.catalog, who)

    @get("/overview", access=access.EVERYONE)
    async def overview(request: Asked) -> Response[str]:
        who, values = await made(request)
        return await shell.page(request, who, "overview.html", title="Overview", **values)

    @get("/overview/-/{part:str}", access=access.EVERYONE)
    async def live(request: Asked, part: shell.PathPart) -> Response[str]:
        """The figures or the list of what needs a hand, for a page that is open."""
        block = shell.part_of(part, ("kpis", "attention"))
        return await shell.fragment(request, "overview.html", block, **(await made(request))[1])

    return [overview, live]


def shown(told: Overview, query: Query, catalog: Catalog, who: access.Actor) -> dict[str, Any]:
    """What the template needs."""
    total, before = told.together.total, told.before
    return {
        "query": query,
        "told": told,
        "total": total,
        "before": before,
        "subtitle": f"{scope_words(told, who)} · {shell.spelled(query)} · compared with the same length before",
        "month": month_name(told.now_us, query.tz),
        "month_gone": gone(told.month.since_us, told.month.until_us, told.now_us),
        "failed_share": figures.ratio(sum(total.outcomes.get(name, 0) for name in TROUBLE), total.of("requests")),
        "met_share": met(told),
        "sparks": sparks(told.together),
        "saved": total.of("saved") + (told.by_routing if told.places_from_us <= told.steps.starts[0] else 0),
        "saved_tip": f"Cache: what the hits had cost to send. Routing: {savings.TOLD}",
        "rate_tip": "Output tokens of completed requests per second from end to end. How that is spread over requests is not stored",
        "spend": spend_chart(told, query, catalog),
        "ttft": ttft_chart(told),
        "trouble": trouble_chart(told),
        "per": word(told.steps.step_us),
        "per_split": word(told.split.steps.step_us) + ("" if query.more["split"] == "team" else part_words(told, query)),
        "part": part_words(told, query),
        "split": query.more["split"],
        "budgets": told.budgets[:BUDGETS_SHOWN],
        "budgets_more": len(told.budgets) - BUDGETS_SHOWN,
        "gone_of": {one.budget.id: gone(one.since_us, one.until_us, told.now_us) for one in told.budgets},
        "team_slots": figures.slots(told.names.values(), {name: place for place, name in enumerate(told.names.values())}),
        "places": told.places[:PLACES_SHOWN],
        "rest": told.places[PLACES_SHOWN:],
        "place_slots": figures.slots([one.backend for one in told.places if one.backend], places_of(catalog.backends)),
        "notices": [notice(one, query) for one in told.attention],
    }


def part_words(told: Overview, query: Query) -> str:
    """Says so where places and savings are of the end of the stretch alone."""
    if told.places_from_us <= told.steps.starts[0]:
        return ""
    at_us = told.places_from_us
    return f", since {figures.day(at_us, query.zone)} {figures.clock(at_us, query.zone)}: before that it is too many to add up here"


def scope_words(told: Overview, who: access.Actor) -> str:
    if who.scope is None:
        return "All teams"
    return ", ".join(told.names.values()) or "No team"


def gone(since_us: int, until_us: int | None, now_us: int) -> float | None:
    """How much of a period is over; None of one that has no end."""
    return None if until_us is None else (now_us - since_us) / (until_us - since_us)


def met(told: Overview) -> float | None:
    """The share of answered requests that met their objectives."""
    answered = told.together.total.outcomes.get("completed", 0)
    return None if told.missed is None or not answered else max(0.0, 1 - told.missed / answered)


def sparks(series: Series) -> dict[str, list[float | None]]:
    def of(what: Any) -> list[float | None]:
        return [what(part) for part in series.points]

    return {
        "spend": of(lambda part: part.of("cost")),
        "requests": of(lambda part: part.of("requests")),
        "ttft": of(lambda part: part.quantile("ttft", 0.95)),
        "duration": of(lambda part: part.quantile("duration", 0.95)),
        "saved": of(lambda part: part.of("saved")),
    }


def places_of(names: Mapping[str, Any]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def values(parts: Mapping[int, Part], points: int, name: str) -> list[int]:
    return [parts[place].of(name) if place in parts else 0 for place in range(points)]


def spend_chart(told: Overview, query: Query, catalog: Catalog) -> charts.Chart:
    split, at = query.more["split"], told.split.steps
    points = len(at.starts)
    named: dict[str, list[int]] = {}
    for group, parts in told.split.by.items():
        name = told.names.get(group[0], f"team {group[0]}") if split == "team" else group[0] or "none"
        there = named.setdefault(name, [0] * points)
        named[name] = [a + b for a, b in zip(there, values(parts, points, "cost"), strict=True)]
    order = {"team": {name: place for place, name in enumerate(told.names.values())}, "route": places_of(catalog.routes)}
    births = order.get(split, places_of(catalog.backends))
    return charts.stacked(named, births, at, "usd", f"Spend by {split} {word(at.step_us)}")


def ttft_chart(told: Overview) -> charts.Chart:
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    lines = {name: [part.quantile("ttft", share) for part in told.together.points] for name, share in shares.items()}
    whole = {name: told.together.total.quantile("ttft", share) for name, share in shares.items()}
    return charts.quantiles(lines, whole, told.steps, told.objective_ms)


def trouble_chart(told: Overview) -> charts.Chart:
    named = {name.capitalize(): [part.outcomes.get(name, 0) for part in told.together.points] for name in TROUBLE}
    return charts.stacked(named, {"Failed": 3, "Refused": 4}, told.steps, "n", f"Requests failed and refused {word(told.steps.step_us)}")


def notice(one: Notice, query: Query) -> dict[str, Any]:
    """A notice as a sentence: what, why and the way on."""
    if one.kind == "ejected":
        return {
            "bad": one.bad,
            "what": f"{one.subject} is {one.detail}.",
            "why": f"Requests go to the other backends of its routes. It is tried again in {figures.duration(one.number * 1000)}.",
            "link": ("See backend", "/console/backends"),
        }
    if one.kind == "journal":
        return {
            "bad": one.bad,
            "what": f"The ledger is {figures.duration(one.number * 1000)} behind.",
            "why": "Requests go on and wait in the journal; sums on this page stop where it does.",
            "link": None,
        }
    if one.kind == "unpriced":
        return {
            "bad": one.bad,
            "what": f"{figures.count(one.number)} requests have no price.",
            "why": "They count as unpriced, not as $0.",
            "link": ("Show them", query.url("/console/requests", split=None, only="unpriced")),
        }
    if one.kind == "burn":
        return {"bad": one.bad, **_burn_notice(one, query)}
    return {**_budget_notice(one, query), "bad": one.bad, "link": ("Open budget", f"/console/budgets/{one.number}")}


def _budget_notice(one: Notice, query: Query) -> dict[str, str]:
    budget = one.budget
    if budget is None or one.at_us is None:
        raise ValueError("a notice of a budget carries it")
    gone_already = budget.line.spent >= budget.limit
    period = "" if budget.budget.period == "total" else f" of this {budget.budget.period}"
    spent = f"{figures.money(budget.line.spent)} of {figures.money(budget.limit)} is gone"
    if gone_already:
        return {"what": f"{one.subject} has spent its budget{period}.", "why": f"{spent}; its requests are refused."}
    at = f"{figures.day(one.at_us, query.zone)} {figures.clock(one.at_us, query.zone)}"
    return {"what": f"{one.subject} will spend its budget{period} on {at}.", "why": f"{spent}; after that its requests are refused."}


def _burn_notice(one: Notice, query: Query) -> dict[str, Any]:
    found = one.burn
    if found is None:
        raise ValueError("a notice of failed requests carries how many")
    hours = found.pace.long_us // HOUR_US
    used_up = f"{max(1, round(found.hours))} h" if found.hours < 48 else f"{round(found.hours / 24)} days"
    return {
        "what": f"{figures.share(found.share)} of the requests of the last {'hour' if hours == 1 else f'{hours} hours'} failed.",
        "why": f"At this pace the {figures.share(burn.ALLOWED)} that may fail in a month are used up in {used_up}.",
        "link": ("Show them", query.url("/console/requests", split=None, range="1h" if hours == 1 else "24h", outcome="failed")),
    }
