"""The playground: does it work, what does it cost, where does it go. A call in process, as the chosen key's, by the ordinary surface."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from litestar import Request, Response, get, post
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from litestar.types import HTTPResponseStartEvent, Message, Send

from gateway import access
from gateway.access import Actor
from gateway.api.endpoint import Endpoint, Reply
from gateway.console import decision_drawing, shell
from gateway.console.streamed import Relayed
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.views import playground as view
from gateway.views.decided import tell
from gateway.views.request import find, wanted_id
from providers.dialects import DIALECTS

FIELDS = ("route", "key", "system", "message", "temperature", "max_tokens", "ttft_ms")
TOLD = ("x-tollway-request-id", "x-tollway-backend", "x-tollway-cache", "x-tollway-attempts", "x-tollway-cost-usd", "x-tollway-dropped")
WHOLE_MOST = 4 * 1024 * 1024  # bytes of an answer that is shown without a stream


def handlers(parts: Any) -> list[BaseRouteHandler]:
    endpoint = Endpoint(DIALECTS["openai_chat"], parts.pipeline, parts.keyring, parts.telemetry, parts.limits)

    @get("/playground", access=access.WATCH)
    async def playground(request: Request[Any, Any, Any]) -> Response[str]:
        asked = shell.query(request, more=dict.fromkeys(FIELDS, ()))
        return await _page(parts, request, dict(asked.more))

    @post("/playground", access=access.WATCH, status_code=200)
    async def submit(request: Request[Any, Any, Any]) -> Response[str]:
        """Without scripts: the whole answer, or what would happen."""
        form = await request.form()
        given = {name: str(form.get(name, "")) for name in FIELDS}
        if form.get("do") == "send":
            return await _page(parts, request, given, answer=await _whole(parts, endpoint, access.actor(request), given))
        return await _page(parts, request, given)

    @post("/playground/send", access=access.WATCH)
    async def send(request: Request[Any, Any, Any]) -> Relayed:
        """A JSON object of the form's fields; the answer is the surface's own: an event stream, or an error in its shape."""
        try:
            play = view.checked(_object(await request.body()))
            who = await view.principal(parts.engine, access.actor(request), play.key)
            body, headers = view.body_of(play, stream=True), view.headers_of(play)
        except GatewayError as error:
            refusal = error
            return Relayed(lambda _, send: Reply(_guarded(send), endpoint.dialect).refuse(refusal))
        return Relayed(lambda receive, send: endpoint.ask(who, body, headers, receive, _guarded(send)))

    @get("/playground/-/why/{request_id:str}", access=access.WATCH)
    async def why(request: Request[Any, Any, Any], request_id: FromPath[str]) -> Response[str]:
        """The decision of a call, small; 404 until it is stored."""
        found = await find(parts.engine, access.actor(request), wanted_id(request_id), parts.catalog)
        if found.decision is None:
            raise NotFound("No decision is stored yet.")
        told = tell(found.decision)
        drawing = decision_drawing.draw(found.decision, told)
        values = {"told": told, "decision": found.decision, "drawing": drawing, "models": {}}
        return await shell.fragment(request, "playground.html", "why", **values)

    return [playground, submit, send, why]


async def _page(parts: Any, request: Request[Any, Any, Any], given: dict[str, str], answer: Any = None) -> Response[str]:
    """The form with what would happen to what it holds."""
    actor = access.actor(request)
    keys = await view.keys(parts.engine, actor)
    routes = sorted(parts.catalog.routes)
    given = given | {
        "route": given.get("route") or (routes[0] if routes else ""),
        "key": given.get("key") or (keys[0].public if keys else ""),
    }
    would, problem = None, ""
    drawn, same = None, None
    if given.get("message"):
        try:
            play = view.checked({name: given.get(name, "") for name in FIELDS})
            who = await view.principal(parts.engine, actor, play.key)
            would = view.would(play, who, parts.catalog, parts.router, parts.accounts)
            drawn = None if would.decision is None or would.told is None else decision_drawing.draw(would.decision, would.told)
            base = f"{request.base_url.scheme}://{request.base_url.netloc}/v1"
            same = (view.as_curl(play, base), view.as_python(play, base))
        except GatewayError as error:
            problem = error.message
    return await shell.page(
        request,
        actor,
        "playground.html",
        title="Playground",
        given=given,
        keys=keys,
        routes=routes,
        objectives={name: route.ttft_ms for name, route in parts.catalog.routes.items()},
        would=would,
        problem=problem,
        drawing=drawn,
        told=None if would is None else would.told,
        decision=None if would is None else would.decision,
        same=same,
        answer=answer,
        models={one.name: one.model for one in parts.catalog.backends.values()},
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The body cannot be read as JSON.") from error
    if not isinstance(found, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return found


async def _whole(parts: Any, endpoint: Endpoint, actor: Actor, given: dict[str, str]) -> dict[str, Any]:
    """The answer of one call, read to its end: status, headers worth telling, text or what it was refused with."""
    try:
        play = view.checked(given)
        who = await view.principal(parts.engine, actor, play.key)
        body, headers = view.body_of(play, stream=False), view.headers_of(play)
    except GatewayError as error:
        return {"text": "", "error": error.message, "headers": {}}
    status, told, content = 0, {}, bytearray()

    async def receive() -> Any:
        await asyncio.Event().wait()  # a client that stays

    async def collect(message: Message) -> None:
        nonlocal status, told
        if message["type"] == "http.response.start":
            status = message["status"]
            told = {name.decode(): value.decode() for name, value in message["headers"] if name.decode() in TOLD}
        elif message["type"] == "http.response.body" and len(content) < WHOLE_MOST:
            content.extend(message["body"])

    await endpoint.ask(who, body, headers, receive, collect)
    return _read(status, bytes(content), told)


def _read(status: int, content: bytes, told: dict[str, str]) -> dict[str, Any]:
    try:
        found = json.loads(content)
        if status == 200:
            return {"text": found["choices"][0]["message"].get("content") or "", "error": "", "headers": told}
        return {"text": "", "error": found["error"]["message"], "headers": told}
    except (ValueError, KeyError, IndexError, TypeError):
        return {"text": "", "error": f"The answer cannot be shown (HTTP {status}).", "headers": told}


def _guarded(send: Send) -> Send:
    """The page's policy on what the surface answers."""
    extra = [(name.encode(), value.encode()) for name, value in shell.HEADERS.items() if name != "cache-control"]

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            started: HTTPResponseStartEvent = {**message, "headers": [*message["headers"], *extra]}
            await send(started)
        else:
            await send(message)

    return guarded
