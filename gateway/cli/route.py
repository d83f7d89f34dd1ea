"""`tollway route`: what would happen to a request, and why, without calling anybody; asked of the running gateway where there is one."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from typing import Annotated

import msgspec
from cyclopts import Parameter
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import prices
from gateway.cli import settings
from gateway.cli.database import fail, run
from gateway.cli.hello import base_url
from gateway.errors import InvalidRequest
from gateway.labels import HEADER, mapping
from gateway.routing.router import Router
from gateway.settings import Settings
from gateway.trial import Asked, Told, tell

ANSWER_S = 5.0  # for the running gateway to answer
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy is to see the key


@dataclass(frozen=True)
class Goals:
    """What a client would ask for by headers, instead of the route's own."""

    ttft_ms: float | None = None
    "As x-tollway-ttft-ms would."
    tpot_ms: float | None = None
    "As x-tollway-tpot-ms would."
    deadline_ms: float | None = None
    "As x-tollway-deadline-ms would."


NONE = Goals()


def _named(said: str) -> str:
    """What a value should have been, by the name of its option."""
    what, _, path = said.partition(" - at `$.")
    return f"--{path.rstrip('`').replace('_', '-')}: {what[:1].lower()}{what[1:]}" if path else said


def route(
    prompt: str,
    *,
    route: Annotated[str, Parameter(name=["--route"])],
    max_tokens: int | None = None,
    goals: Annotated[Goals, Parameter(name="*")] = NONE,
    labels: str = "",
    key: Annotated[str, Parameter(env_var="TOLLWAY_ADMIN_KEY")] = "",
) -> None:
    """Where a request would go and why: by what the running gateway has learnt, else by configuration, prices and priors.

    Parameters
    ----------
    prompt
        The user's message.
    route
        The route that the client would name as its model.
    max_tokens
        As the request would set it.
    labels
        As x-tollway-labels would, beside the route's: residency=eu,retention=none.
    key
        A key with the admin scope, for the gateway that runs at the configured address. Its variable keeps it out of a shell's history.
    """

    async def work(engine: AsyncEngine, settings: Settings) -> Told:
        catalog = await prices.catalog(engine, settings)
        router = Router(settings.routing, settings.server.workers)
        try:
            router.judges.load({name: one for name, one in catalog.routes.items() if name == route})
        except ValueError as error:
            fail(str(error))
        return tell(asked, catalog, router, time.monotonic())

    given = {"route": route, "prompt": prompt, "max_tokens": max_tokens, **asdict(goals)}
    try:
        asked = msgspec.convert({**given, "labels": mapping(labels, HEADER.decode())}, Asked)
    except msgspec.ValidationError as error:
        fail(_named(str(error)))
    except InvalidRequest as error:
        fail(error.message)
    live, why = _of_the_gateway(asked, key)
    told = run(work) if live is None else live
    print(why)
    print(told.explanation)
    if told.refusal is not None:
        print(f"the client would be told: {told.refusal}")


def _of_the_gateway(asked: Asked, key: str) -> tuple[Told | None, str]:
    """What the running gateway says, None where it is not asked; and a line on whose word this is."""
    url = base_url(settings().server)
    if not key:
        return None, f"by priors; for what a gateway at {url} has learnt, name an admin key by --key or TOLLWAY_ADMIN_KEY"
    request = urllib.request.Request(f"{url}/admin/route", msgspec.json.encode(asked), {"content-type": "application/json"})
    request.add_header("authorization", f"Bearer {key}")
    try:
        with DIRECT.open(request, timeout=ANSWER_S) as answer:
            return msgspec.json.decode(answer.read(), type=Told), f"by what the gateway at {url} has learnt; nobody was called"
    except urllib.error.HTTPError as error:
        with error:
            fail(f"the gateway at {url} answered {error.code}: {_message(error.read())}")
    except (OSError, msgspec.MsgspecError):
        return None, f"by priors; no gateway answers at {url}"


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["error"]["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
