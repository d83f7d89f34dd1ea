"""`tollway route`: what would happen to a request, and why, without calling anybody."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Annotated

import msgspec
from cyclopts import Parameter
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import prices
from gateway.catalog import Route
from gateway.cli.database import fail, run
from gateway.labels import required
from gateway.routing import choose, decision
from gateway.routing.features import Features
from gateway.routing.router import Router
from gateway.settings import Settings
from providers import tokens
from providers.dialects import DIALECTS

DRAW = 0.5  # nothing is explored and ties are broken in the middle: the same question has the same answer


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


def route(
    prompt: str,
    *,
    route: Annotated[str, Parameter(name=["--route"])],
    max_tokens: int | None = None,
    goals: Annotated[Goals, Parameter(name="*")] = NONE,
    labels: str = "",
) -> None:
    """Where a request would go and why, by configuration, prices and priors. What a running gateway has learnt: GET /admin/backends.

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
    """

    async def work(engine: AsyncEngine, settings: Settings) -> str:
        catalog = await prices.catalog(engine, settings)
        named = catalog.routes.get(route)
        if named is None:
            fail(f"there is no route '{route}'; there are: {', '.join(sorted(catalog.routes))}")
        router = Router(settings.routing, settings.server.workers)
        features = _features(prompt, named, router, max_tokens, labels)
        features = msgspec.structs.replace(features, **{name: goal for name, goal in asdict(goals).items() if goal is not None})
        choice = router.plan(features, named, catalog, time.monotonic(), DRAW)
        told = decision.explain(choice.decision, choose.differences(choice.decision))
        return told if choice.refusal is None else f"{told}\nthe client would be told: {choice.refusal.message}"

    print(run(work))


def _features(prompt: str, route: Route, router: Router, max_tokens: int | None, labels: str) -> Features:
    """Of the request that an OpenAI client would send."""
    body = {"model": route.name, "messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": max_tokens}
    request = DIALECTS["openai_chat"].decode_request(
        msgspec.json.encode({name: value for name, value in body.items() if value is not None})
    )
    output, high = router.outputs.expected(route.name, 0, request.max_tokens)
    return Features(
        route=route.name,
        dialect=request.dialect,
        input_tokens=tokens.estimate_input(request),
        input_tokens_upper=tokens.input_upper(request),
        expected_output_tokens=output,
        output_high_tokens=high,
        max_tokens=request.max_tokens,
        stream=True,
        needs=request.needs,
        labels=required(route.labels, (), labels.encode() or None),
        ttft_ms=route.ttft_ms,
        tpot_ms=route.tpot_ms,
        deadline_ms=route.deadline_ms,
    )
