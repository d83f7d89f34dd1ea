"""One request: what happened to it, and why it went where it went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import Request, Response, get
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from msgspec import Struct

from gateway import access
from gateway.console import cookies, decision_drawing, shell, timeline_drawing
from gateway.console.requests import OUTCOMES
from gateway.errors import NotFound
from gateway.money.bill import Line
from gateway.money.marks import FAILED_OVER, HEDGED, MISSED
from gateway.money.windows import to_datetime, zone
from gateway.routing.decision import Decision
from gateway.views import asked, figures, under_way
from gateway.views import request as view
from gateway.views.decided import Told, tell
from gateway.views.request import Found, Tried
from gateway.views.under_way import UnderWay

CLASSES = {
    "input": "Input",
    "cache_read": "Prompt-cache read",
    "cache_write_5m": "Prompt-cache write, 5 min",
    "cache_write_1h": "Prompt-cache write, 1 h",
    "input_audio": "Audio in",
    "input_image": "Images in",
    "output": "Output",
    "reasoning": "Reasoning",
    "output_audio": "Audio out",
    "output_image": "Images out",
    "per_request": "Per request",
    "batch_discount": "Batch discount",
    "rounding": "Rounding to a nano-USD",
}
SURFACES = {
    "openai_chat": "Chat Completions",
    "openai_responses": "Responses",
    "anthropic_messages": "Messages",
    "openai_completions": "Completions",
    "openai_embeddings": "Embeddings",
}
REMARKS = {
    "cut_at_reservation": "cut where its reservation ended",
    "over_reserved": "it cost more than was reserved",
    "lost_race": "another attempt answered first, so this call was cancelled",
}


LIVE_MS = 2000  # between two looks at a request that is not settled
DECISION_WAIT_US = 10_000_000  # decisions are written about a second after the row; later ones are lost

Req = Request[Any, Any, Any]


class Charge(Struct, frozen=True, kw_only=True):
    """One line of the money table; nanousd with its millionths is exact. rate: nano-USD per million tokens."""

    what: str
    tokens: int | None
    rate: int | None
    nanousd: int


def handlers(parts: Any) -> list[BaseRouteHandler]:
    @get("/requests/{request_id:str}", access=access.WATCH)
    async def request(request: Req, request_id: FromPath[str]) -> Response[str]:
        shown = await _shown(parts, request, request_id)
        title = f"Request {short(request_id)}"
        return await shell.page(request, access.actor(request), "request.html", title=title, tick=LIVE_MS if shown["open"] else 0, **shown)

    @get("/requests/{request_id:str}/-/live", access=access.WATCH)
    async def live(request: Req, request_id: FromPath[str]) -> Response[str]:
        try:
            shown = await _shown(parts, request, request_id)
        except NotFound as error:  # its worker ended before it wrote anything down: nothing more will come
            shown = {"gone": error.message, "open": False}
        return await shell.fragment(request, "request.html", "live", **shown)

    return [request, live]


async def _shown(parts: Any, request: Req, request_id: str) -> dict[str, Any]:
    """What the page shows of a request as it is now. NotFound where nobody knows it, or whoever asks may not see it."""
    actor, wanted = access.actor(request), view.wanted_id(request_id)
    shared = {"gone": "", "request_id": wanted, "models": {one.name: one.model for one in parts.catalog.backends.values()}}
    tz = cookies.zone_of(request)
    try:
        found = await view.find(parts.engine, actor, wanted, parts.catalog)
    except NotFound:
        under = await under_way.find(parts, actor, wanted)
        if under is None:
            raise
        return shared | {"stamp": moment(under.started_at_us, tz)} | running(under, parts.accounts.now_us())
    return shared | {"stamp": moment(found.row["started_at_us"], tz)} | values(found, parts.accounts.now_us())


def running(under: UnderWay, now_us: int) -> dict[str, Any]:
    """What the page shows of a request without a row; it asks again until there is one."""
    made = under.decision
    told = None if made is None else tell(made)
    return {
        "under": under,
        "open": True,
        "short": short(str(under.id)),
        "since_ms": max(0, now_us - under.started_at_us) // 1000,
        "doing": doing(under),
        "told": told,
        "drawing": None if made is None or told is None else decision_drawing.draw(made, told, {}, ""),
    }


def doing(under: UnderWay) -> str:
    """What is going on, in a few words."""
    if under.state == under_way.WRITES:
        return f"it ended as {under.outcome}"
    calls = [one for one in under.calls if not one.outcome]
    if not calls:
        return "no backend is called at the moment"
    names = " and ".join(dict.fromkeys(one.backend for one in calls))
    if any(one.ttft_ms is not None for one in calls):
        return f"{names} answers"
    return f"{names} was asked" if under.pieces is None else f"waits for the first token of {names}"


def values(found: Found, now_us: int) -> dict[str, Any]:
    """What the page shows, from what the tables hold. It asks again while its decision may still be on its way."""
    row = found.row
    made = found.decision
    told = None if made is None else tell(made)
    answered = next((one.row["backend"] for one in reversed(found.tried) if one.row["outcome"] == "completed"), "")
    seen = {one.row["backend"]: one.row["ttft_ms"] for one in found.tried if one.row["ttft_ms"] is not None}
    return {
        "found": found,
        "under": None,
        "open": made is None and bool(found.tried) and now_us - row["ended_at_us"] < DECISION_WAIT_US,
        "row": row,
        "short": short(str(found.id)),
        "kind": OUTCOMES.get(row["outcome"], ("", "info")),
        "tokens_in": sum(row[name] for name in row if name.endswith("_tokens") and not name.startswith(("output", "reasoning"))),
        "tokens_out": sum(row[name] for name in row if name.endswith("_tokens") and name.startswith(("output", "reasoning"))),
        "told": told,
        "decision": made,
        "drawing": None if made is None or told is None else decision_drawing.draw(made, told, seen, answered),
        "then": what_then(found, told),
        "timeline": timeline_drawing.draw(row, [one.row for one in found.tried]),
        "attempts": [(one, happened(found.tried, place)) for place, one in enumerate(found.tried)],
        "charges": charges(found),
        "reserved": sum(one.row["worst"] or 0 for one in found.tried),
        "spent": row["cost"] or 0,
        "surface": SURFACES.get(row["surface"], row["surface"]),
        "objectives": objectives(made),
        "asked": None if made is None else made.asked,
        "parameters": [] if made is None or made.asked is None else asked.parameters(made.asked),
        "cache": asked.cache_words(None if made is None else made.asked, row),
        "missed": bool(row["marks"] & MISSED),
        "hedged": bool(row["marks"] & HEDGED),
        "failed_over": bool(row["marks"] & FAILED_OVER),
    }


def short(request_id: str) -> str:
    """An id for headings: its ends."""
    return f"{request_id[:8]}…{request_id[-4:]}" if len(request_id) > 16 else request_id


def moment(at_us: int, tz: str) -> tuple[str, str]:
    """An instant for machines and, to the millisecond and with its zone, for people."""
    at = to_datetime(at_us).astimezone(zone(tz))
    return figures.rfc3339(at_us, zone(tz)), f"{at.day} {at:%b %Y %H:%M:%S}.{at.microsecond // 1000:03d}, {tz}"


def objectives(made: Decision | None) -> list[str]:
    if made is None:
        return []
    named = (("first token", made.ttft_ms), ("per token", made.tpot_ms), ("end", made.deadline_ms))
    return [f"{name} {figures.duration(ms)}" for name, ms in named if ms is not None]


def what_then(found: Found, told: Told | None) -> str:
    """What became of the choice: the second sentence over the drawing."""
    tried = [one.row for one in found.tried]
    if told is None or not told.rows or not tried:
        return ""
    said = [_hedge(found)] if found.row["marks"] & HEDGED else []
    failed = [one for one in tried if one["outcome"] == "failed"]
    for one in failed:
        said.append(f"{one['backend']} answered {_failure(one)} after {figures.duration(one['duration_ms'])}.")
    last = tried[-1]
    if failed and last["outcome"] == "completed" and last["backend"] != failed[0]["backend"]:
        said.append(f"So the next in the plan, {last['backend']}, answered. {_difference(told, failed[0]['backend'], last['backend'])}")
    elif failed and found.row["outcome"] == "failed":
        said.append("Nobody was left to ask.")
    if found.row["marks"] & MISSED:
        said.append("An objective was missed.")
    return " ".join(one.strip() for one in said if one)


def _failure(one: Any) -> str:
    return " ".join(str(part) for part in (one["status"] or "", one["error"]) if part) or "with an error"


def _hedge(found: Found) -> str:
    hedge = None if found.decision is None else found.decision.hedge
    if hedge is None or found.decision is None or hedge.second < 0:
        return "A second backend was asked beside the first."
    second = found.decision.candidates[hedge.second].backend
    won = ("Neither answered.", "The first answered first.", f"{second} answered first.")[hedge.won]
    return f"It was late after {figures.duration(hedge.waited_us / 1000)}, so {second} was asked beside it. {won}"


def _difference(told: Told, first: str, second: str) -> str:
    """What the failover was expected to cost."""
    costs = {row.backend: row.cost for row in told.rows}
    before, after = costs.get(first), costs.get(second)
    if before is None or after is None or after == before:
        return ""
    return f"It was expected to cost {figures.money(abs(after - before))} {'more' if after > before else 'less'} than the first choice."


def happened(tried: Sequence[Tried], place: int) -> str:
    """What an attempt led to, in words."""
    one = tried[place].row
    following = tried[place + 1].row if place + 1 < len(tried) else None
    if one["error"] in REMARKS:
        return f"{REMARKS[one['error']][0].upper()}{REMARKS[one['error']][1:]}."
    if one["outcome"] == "failed":
        if one["ttft_ms"] is not None:
            return "The answer had begun: no failover any more."
        if following is None:
            return "Nobody else was asked."
        again = following["backend"] == one["backend"]
        return "Nothing sent yet: tried again." if again else f"Nothing sent yet: failed over to {following['backend']}."
    if one["outcome"] == "cancelled":
        return "The client left: the call was cancelled and what was generated is charged."
    if one["outcome"] == "unknown":
        return "Its gateway stopped before the end was written down: booked at its worst case."
    first = one["ttft_ms"]
    return "Answered." if first is None else f"First good event after {figures.duration(first)}, then committed."


def charges(found: Found) -> list[Charge]:
    """How the cost comes about. Lines of attempts that are alike in price and class are those of the one that answered; others by name."""
    lines: list[Charge] = []
    for one in found.tried:
        cost = one.row["cost"]
        named = "" if len(found.tried) == 1 or one.row["outcome"] == "completed" else f", attempt {one.row['n']}"
        if one.bill is not None and one.bill.lines:
            lines += [_charge(line, named) for line in one.bill.lines]
        elif cost is not None and (cost or len(found.tried) > 1):
            what = "Share of owned hardware" if one.share and cost else "Failed attempt" if one.row["outcome"] == "failed" else "Attempt"
            lines.append(Charge(what=f"{what} {one.row['n']}", tokens=None, rate=None, nanousd=cost))
    lines += [Charge(what=f"Later: {one.reason}", tokens=None, rate=None, nanousd=one.delta) for one in found.corrections]
    return lines


def _charge(line: Line, named: str) -> Charge:
    what = CLASSES.get(line.what, line.what) + named
    rounded = figures.half_up(line.millionths, 1_000_000)
    return Charge(what=what, tokens=None if line.rate is None else line.tokens, rate=line.rate, nanousd=rounded)
