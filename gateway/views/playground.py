"""The playground: whose keys somebody may try a call with, what the call is, and what would happen to it. Knows no page and no stream.

A call goes out as the chosen key's, whose secret nobody needs to know: its allow-list, budgets, limits and ledger are the call's.
"""

from __future__ import annotations

import json
import shlex
import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from sqlalchemy import Select, or_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access import MONEY, Actor
from gateway.auth import Principal, present_keys, principal_from
from gateway.catalog import Backend, Catalog
from gateway.db.engine import reading
from gateway.db.tables import api_keys
from gateway.errors import InvalidRequest, NotFound
from gateway.money.accounts import Accounts
from gateway.money.budgets import Scope
from gateway.money.worst_case import Bound, worst
from gateway.pipeline import may_use
from gateway.routing.decision import Decision
from gateway.routing.router import Router
from gateway.trial import Asked, choose_now
from gateway.views.decided import Told
from gateway.views.decided import tell as in_words
from gateway.views.explorer_filter import sight
from providers import tokens
from providers.dialects import DIALECTS

KEYS_SHOWN = 200
TEXT_MOST = 200_000  # characters of a prompt
SECRET = "$TOLLWAY_KEY"

Text = Annotated[str, Meta(max_length=TEXT_MOST)]


class Play(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call as the form has it, numbers as text: empty is the route's or the vendor's own. key: its public part."""

    route: Annotated[str, Meta(max_length=200)]
    key: Annotated[str, Meta(max_length=64)]
    system: Text = ""
    message: Text = ""
    temperature: Annotated[str, Meta(max_length=20)] = ""
    max_tokens: Annotated[str, Meta(max_length=20)] = ""
    ttft_ms: Annotated[str, Meta(max_length=20)] = ""


class Usable(Struct, frozen=True):
    """A key that may be chosen."""

    public: str
    name: str
    team: str


class Would(Struct, frozen=True, kw_only=True):
    """What would happen: the plan's first, or why nobody would be asked. reserve: nano-USD, None = no price is known. left: of the budgets
    that apply, None = none does."""

    refusal: str
    decision: Decision | None
    told: Told | None
    first: str
    cost: int | None
    ttft95_us: int
    input_tokens: int
    reserve: int | None
    left: int | None


async def keys(engine: AsyncEngine, actor: Actor) -> list[Usable]:
    """Keys for inference that the actor may try a call with, by team and name."""
    async with reading(engine).connect() as connection:
        rows = await connection.execute((await _seen(connection, actor)).add_columns(api_keys.c.name.label("key_name")))
        found = [Usable(row.public, row.key_name, row.name) for row in rows if "inference" in row.scopes.split() and not _expired(row)]
    return sorted(found, key=lambda one: (one.team, one.name, one.public))[:KEYS_SHOWN]


async def principal(engine: AsyncEngine, actor: Actor, public: str) -> Principal:
    """Who a call with this key would be. NotFound also for a key that the actor may not use."""
    async with reading(engine).connect() as connection:
        row = (await connection.execute((await _seen(connection, actor)).where(api_keys.c.public == public))).one_or_none()
    if row is None or _expired(row):
        raise NotFound(f"There is no key '{public[:40]}' that you may use here.", param="key")
    return principal_from(row)[1]


async def _seen(connection: AsyncConnection, actor: Actor) -> Select[Any]:
    """Live keys of the teams that it sees whole, and its own."""
    if actor.role in MONEY:
        return present_keys()
    sees = await sight(connection, actor)
    return present_keys().where(or_(api_keys.c.team_id.in_(sorted(sees.teams or ())), api_keys.c.id.in_(sorted(sees.keys))))


def _expired(row: Any) -> bool:
    return row.expires_at_us is not None and time.time_ns() >= row.expires_at_us * 1000


def checked(given: dict[str, Any]) -> Play:
    """InvalidRequest names a field that is no such thing."""
    try:
        return msgspec.convert(given, Play)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error}.") from error


def body_of(play: Play, *, stream: bool) -> bytes:
    """The Chat Completions call. InvalidRequest names a number that is none."""
    return msgspec.json.encode(call_of(play, stream=stream))


def call_of(play: Play, *, stream: bool) -> dict[str, Any]:
    if not play.message:
        raise InvalidRequest("message: write something to send.", param="message")
    messages = [{"role": "system", "content": play.system}] if play.system else []
    body: dict[str, Any] = {"model": play.route, "messages": [*messages, {"role": "user", "content": play.message}]}
    if play.temperature:
        body["temperature"] = _number("temperature", play.temperature)
    if play.max_tokens:
        body["max_tokens"] = _whole("max_tokens", play.max_tokens)
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def headers_of(play: Play) -> dict[bytes, bytes]:
    return {b"x-tollway-ttft-ms": str(_whole("ttft_ms", play.ttft_ms)).encode()} if play.ttft_ms else {}


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise InvalidRequest(f"{name}: '{text}' is no number from 0 on.", param=name)
    return value


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise InvalidRequest(f"{name}: '{text}' is no whole number from 1 on.", param=name)
    return int(text)


# ---- what would happen
def would(play: Play, who: Principal, catalog: Catalog, router: Router, accounts: Accounts) -> Would:
    """The choice that would be made now, and what would be reserved. Changes nothing. NotFound for an unknown route."""
    route = catalog.routes.get(play.route)
    if route is None or not may_use(who, route, catalog):
        raise NotFound(f"This key may not use a route '{play.route[:80]}'.", param="route")
    call = call_of(play, stream=True)
    asked = Asked(
        route=play.route,
        prompt="\n".join(part for part in (play.system, play.message) if part),
        max_tokens=call.get("max_tokens"),
        ttft_ms=_whole("ttft_ms", play.ttft_ms) if play.ttft_ms else None,
        labels=dict(who.labels),
    )
    choice = choose_now(asked, catalog, router, time.monotonic())
    upper = tokens.input_upper(DIALECTS["openai_chat"].decode_request(msgspec.json.encode(call)))
    made = choice.decision
    first = choice.plan[0] if choice.plan else None
    chosen = made.candidates[made.order[0]] if made.order else None
    budgeted = accounts.budgeted(who.org_id, who.team_id, who.key_id, play.route)
    now_us = accounts.now_us()
    return Would(
        refusal="" if choice.refusal is None else choice.refusal.message,
        decision=made,
        told=in_words(made),
        first="" if first is None else first.name,
        cost=None if chosen is None else chosen.cost,
        ttft95_us=0 if chosen is None else chosen.ttft95_us,
        input_tokens=made.input_tokens,
        reserve=None if first is None else _reserve(first, upper, call.get("max_tokens")),
        left=accounts.obtainable(Scope(who.org_id, who.team_id, who.key_id, play.route), now_us) if budgeted else None,
    )


def _reserve(backend: Backend, input_upper: int, max_tokens: int | None) -> int | None:
    bound = Bound(
        input_tokens=input_upper,
        max_tokens=max_tokens,
        context_tokens=backend.context_tokens,
        max_output_tokens=backend.max_output_tokens,
    )
    return worst(backend.price, bound)


# ---- the same call elsewhere
def as_curl(play: Play, base: str) -> str:
    """For a shell; the key's secret is the reader's."""
    told = [f"curl {base}/chat/completions", f'-H "authorization: Bearer {SECRET}"', "-H 'content-type: application/json'"]
    told += [f"-H '{name.decode()}: {value.decode()}'" for name, value in headers_of(play).items()]
    return " \\\n  ".join([*told, f"-d {shlex.quote(json.dumps(call_of(play, stream=False), ensure_ascii=False))}"])


def as_python(play: Play, base: str) -> str:
    """With the official client."""
    call = call_of(play, stream=False)
    if play.ttft_ms:
        call["extra_headers"] = {name.decode(): value.decode() for name, value in headers_of(play).items()}
    arguments = "".join(f"    {name}={value!r},\n" for name, value in call.items())
    return (
        "import os\nfrom openai import OpenAI\n\n"
        f'client = OpenAI(base_url={base!r}, api_key=os.environ["TOLLWAY_KEY"])\n'
        f"answer = client.chat.completions.create(\n{arguments})\nprint(answer.choices[0].message.content)\n"
    )
