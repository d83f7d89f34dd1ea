"""What would happen to a request, without calling anybody: the choice, by whatever a router knows. For the command line and admin API.

Knows no key: no allow-list, no team's labels and no budget narrow the choice. Knows no HTTP.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.catalog import Catalog, Route
from gateway.errors import NotFound
from gateway.labels import checked, required
from gateway.routing import choose, decision
from gateway.routing.features import PRIORITIES, Features
from gateway.routing.router import Choice, Router
from gateway.settings import Milliseconds
from providers import tokens
from providers.dialects import DIALECTS

DRAW = 0.5  # nothing is explored and ties are broken in the middle: the same question has the same answer
PROMPT_MOST = 1024 * 1024  # characters
TOKENS_MOST = 2**31 - 1


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user's message and the route that the client would name as its model; the rest as the request, or its headers, would say."""

    route: str
    prompt: Annotated[str, Meta(max_length=PROMPT_MOST)]
    max_tokens: Annotated[int, Meta(ge=1, le=TOKENS_MOST)] | None = None
    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    deadline_ms: Milliseconds | None = None
    labels: dict[str, str] = {}
    priority: Literal["low", "normal", "high"] = "normal"


class Told(Struct, frozen=True, kw_only=True):
    """plan: backends in the order in which they would be asked; empty where `refusal` is what the client would be told. explanation: the
    record for people, computed again. decision: the record itself."""

    plan: tuple[str, ...]
    refusal: str | None
    explanation: str
    decision: dict[str, Any]


def choose_now(asked: Asked, catalog: Catalog, router: Router, now: float) -> Choice:
    """The choice that `router` would make now. Changes nothing. NotFound for an unknown route, InvalidRequest for labels that are none."""
    route = catalog.routes.get(asked.route)
    if route is None:
        raise NotFound(f"there is no route '{asked.route}'; there are: {', '.join(sorted(catalog.routes))}", param="route")
    return router.plan(_features(asked, route, router), route, catalog, now, DRAW)


def tell(asked: Asked, catalog: Catalog, router: Router, now: float) -> Told:
    """The same for programs and people."""
    choice = choose_now(asked, catalog, router, now)
    made = choice.decision
    return Told(
        plan=tuple(backend.name for backend in choice.plan),
        refusal=None if choice.refusal is None else choice.refusal.message,
        explanation=decision.explain(made, choose.differences(made)),
        decision=decision.plain(made),
    )


def _features(asked: Asked, route: Route, router: Router) -> Features:
    """Of the request that an OpenAI client would send."""
    body = {"model": route.name, "messages": [{"role": "user", "content": asked.prompt}], "stream": True, "max_tokens": asked.max_tokens}
    request = DIALECTS["openai_chat"].decode_request(
        msgspec.json.encode({name: value for name, value in body.items() if value is not None})
    )
    prompt = tokens.estimate_input(request)
    output, high = router.outputs.expected(route.name, 0, request.max_tokens, prompt)
    labels = checked(asked.labels, "labels") if asked.labels else ""
    return Features(
        route=route.name,
        dialect=request.dialect,
        input_tokens=prompt,
        input_tokens_upper=tokens.input_upper(request),
        expected_output_tokens=output,
        output_high_tokens=high,
        max_tokens=request.max_tokens,
        stream=True,
        needs=request.needs,
        labels=required(route.labels, (), labels.encode() or None),
        priority=PRIORITIES[asked.priority],
        ttft_ms=route.ttft_ms if asked.ttft_ms is None else asked.ttft_ms,
        tpot_ms=route.tpot_ms if asked.tpot_ms is None else asked.tpot_ms,
        deadline_ms=route.deadline_ms if asked.deadline_ms is None else asked.deadline_ms,
        quality=None if route.quality is None else router.judges.now(route, route.quality, request),
    )
