"""Routes: which there are and whose, an editor for those of the API, and what would happen to a prompt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.enums import RequestEncodingType
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, FromPath

from gateway import access, operations, trial
from gateway.console import decision_drawing, shell
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.views import decided, routes

Req = Request[Any, Any, Any]
Form = Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)]
NUMBERS = ("ttft_ms", "tpot_ms", "deadline_ms")
NEW = "-"  # no route is named so: the path of the form for a new one
CACHES = (("deterministic", "Deterministic ones"), ("always", "All"), ("never", "None"))


def handlers(parts: Any) -> list[BaseRouteHandler]:
    @get("/routes", access=access.WATCH)
    async def all_routes(request: Req) -> Response[str]:
        rows = routes.rows(parts)
        admin = access.actor(request).role == access.ADMIN
        return await shell.page(
            request, access.actor(request), "routes.html", title="Routes", rows=rows, admin=admin, query=shell.query(request)
        )

    @get("/routes/{name:path}", access=access.WATCH)
    async def one_route(request: Req, name: FromPath[str]) -> Response[str]:
        return await _page(request, parts, name.removeprefix("/"))

    @post("/trial/{name:path}", status_code=200, access=access.WATCH)
    async def try_out(request: Req, name: FromPath[str], data: Form) -> Response[str]:
        return await _tried(request, parts, name.removeprefix("/"), data)

    @post("/routes/{name:path}", status_code=200, access=access.ADMINS)
    async def save(request: Req, name: FromPath[str]) -> Response[str]:
        return await _saved(request, parts, name.removeprefix("/"))

    return [all_routes, one_route, try_out, save]


async def _page(request: Req, parts: Any, name: str, **more: Any) -> Response[str]:
    """A route, or the form for a new one."""
    who = access.actor(request)
    row = next((one for one in routes.rows(parts) if one.name == name), None)
    if row is None and (name != NEW or who.role != access.ADMIN):
        raise NotFound(f"There is no route '{name[:80]}'.")
    values: dict[str, Any] = {
        "admin": who.role == access.ADMIN,
        "row": row,
        "form": _filled({} if row is None else row.settings),
        "backends": list(parts.settings.backends),
        "caches": CACHES,
        "errors": {},
        "wrong": "",
        "prompt": "",
        "given": {},
        "drawing": None,
        "decision": None,
        "models": {},
        "told": None,
        "refusal": None,
        "query": shell.query(request),
    }
    return await shell.page(request, who, "route.html", title="New route" if row is None else name, **(values | more))


async def _tried(request: Req, parts: Any, name: str, data: Mapping[str, str]) -> Response[str]:
    """What would happen to the prompt; nobody is called."""
    given = {key: data.get(key, "").strip() for key in ("within_ms", "max_tokens")}
    numbers = {"ttft_ms" if key == "within_ms" else key: _number(value) for key, value in given.items() if value}
    try:
        asked = msgspec.convert({"route": name, "prompt": data.get("prompt", ""), **numbers}, trial.Asked)
        choice = trial.choose_now(asked, parts.catalog, parts.router, time.monotonic())
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].rstrip("`") if "$." in str(error) else "prompt"
        return await _page(
            request, parts, name, prompt=data.get("prompt", ""), given=given, errors={field: _sentence(str(error))}, status=400
        )
    told = decided.tell(choice.decision)
    return await _page(
        request,
        parts,
        name,
        prompt=asked.prompt,
        given=given,
        told=told,
        decision=choice.decision,
        drawing=decision_drawing.draw(choice.decision, told),
        refusal=None if choice.refusal is None else choice.refusal.message,
    )


async def _saved(request: Req, parts: Any, name: str) -> Response[str]:
    """Make, change or delete; what is wrong stands beside its field."""
    form, who = await request.form(), access.actor(request)
    named = str(form.get("name", "")).strip() if name == NEW else name
    raw = _raw(form)
    unread = {key: "Write a number." for key in (*NUMBERS, "max_attempts") if isinstance(raw.get(key), str)}
    if unread:
        return await _page(request, parts, name, form=_filled(raw) | {"name": named}, errors=unread, status=400)
    try:
        if form.get("do") == "delete":
            await operations.delete_route(parts.engine, who, parts.file, named)
        else:
            now = next((one for one in parts.standing.made.routes if one.name == named), None)
            if name == NEW and now is not None:
                raise InvalidRequest(f"routes.{named}.name: there is a route of this name; open it to change it.", status=409)
            kept = {} if now is None else operations.brief(now)
            await operations.put_route(parts.engine, who, parts.file, named, kept | raw)
    except GatewayError as error:
        field = (error.param or "").rpartition(".")[2] or "name"
        errors, message = {field: error.message.removeprefix(f"{error.param}: ")}, error.message
        filled = _filled({key: value for key, value in raw.items() if value is not None}) | {"name": named}
        return await _page(request, parts, name, form=filled, errors=errors, wrong=message, status=error.status)
    await parts.snapshot.load()
    return shell.redirect("/console/routes" if form.get("do") == "delete" else f"/console/routes/{named}", request)


def _raw(form: Any) -> dict[str, Any]:
    """The fields of the form as a [[routes]] table; an empty number is none."""
    raw: dict[str, Any] = {"backends": [str(one) for one in form.getall("backends", [])], "cache": str(form.get("cache", "deterministic"))}
    raw |= {key: _number(str(form.get(key, ""))) for key in NUMBERS}
    attempts = _number(str(form.get("max_attempts", "")))
    raw["labels"] = _labels(str(form.get("labels", "")))
    return raw | ({} if attempts is None else {"max_attempts": attempts})


def _number(text: str) -> int | float | str | None:
    """What is no number stays text, so that the check of the settings refuses it by name."""
    text = text.strip()
    if not text:
        return None
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


def _labels(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the fields hold."""
    labels = settings.get("labels") or {}
    return {
        "name": settings.get("name", ""),
        "backends": tuple(settings.get("backends", ())),
        "cache": settings.get("cache", "deterministic"),
        "max_attempts": settings.get("max_attempts", 3),
        "labels": ", ".join(f"{name}={value}" for name, value in labels.items()),
        **{key: _shown(settings.get(key)) for key in NUMBERS},
    }


def _shown(number: float | str | None) -> str:
    """900 of 900.0; what is no number as it was written."""
    return "" if number is None else str(number) if isinstance(number, str) else f"{number:g}"


def _sentence(error: str) -> str:
    said = error.partition(" - at")[0].replace("`", "")
    return f"{said[:1].upper()}{said[1:]}."
