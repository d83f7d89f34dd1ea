"""Composition root of a worker: Settings -> parts -> Litestar app. Only worker.py imports it; nothing here is decided per request."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import structlog
from litestar import Litestar, asgi
from litestar.exceptions import HTTPException, SerializationException
from litestar.openapi import OpenAPIConfig
from litestar.response import Response
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway import console, errors, reloads
from gateway.alerting import Alerting
from gateway.api import admin, openapi, plain
from gateway.api.count_tokens import CountTokens
from gateway.api.endpoint import Endpoint, error_headers
from gateway.api.limits import Limits
from gateway.attempts import Attempts
from gateway.auth import Keyring, load_secrets
from gateway.backend_watch import BackendWatch
from gateway.board import Board
from gateway.cache.flights import Flights
from gateway.cache.store import open_store
from gateway.catalog_build import build as build_catalog
from gateway.catalog_build import vendor_of
from gateway.db.engine import make_engine
from gateway.decision_log import EXPIRE_S, DecisionLog
from gateway.engine_figures import EngineFigures
from gateway.exchange import Exchange
from gateway.log import setup_logging
from gateway.money import settling
from gateway.money.accounts import Accounts
from gateway.money.keeper import BEAT_S, CLOSE_S, Keeper
from gateway.money.limits import Limits as RateLimits
from gateway.money.limits_redis import RedisLimits
from gateway.money.owned import Owned
from gateway.money.shares import EVERY_S, BudgetShares
from gateway.parts import Parts, Standing
from gateway.pipeline import Pipeline
from gateway.readings import gauges, histograms, totals
from gateway.routing.router import Router
from gateway.settings import AlertSettings, BackendSettings, Settings
from gateway.snapshot import Snapshot
from gateway.takeover import Takeover
from gateway.telemetry import Telemetry
from gateway.ticker import TICK_S, Ticker
from gateway.traces import open_traces
from gateway.views.attention import EVERY_S as LOOK_S
from gateway.views.attention import Attention
from gateway.views.backends import told
from gateway.webhook import Webhook
from providers import tokens
from providers.dialects import DIALECTS
from providers.http import Upstream
from providers.local import LocalProvider
from providers.remote import RemoteProvider
from providers.scripted import ScriptedProvider, parse
from providers.signers import resolve
from providers.types import Provider

log = structlog.get_logger("tollway.app")
SHARE_S = 5.0  # how often the live workers are counted, among whom a vendor's rate limits are divided
SURFACES = {  # path -> dialect it is served with
    "/v1/chat/completions": "openai_chat",
    "/v1/responses": "openai_responses",
    "/v1/messages": "anthropic_messages",
    "/v1/completions": "openai_completions",
    "/v1/embeddings": "openai_embeddings",
}
COUNTING = {"/v1/messages/count_tokens": "anthropic_messages"}


class Application:
    """One worker's parts and its ASGI callable, with the steps of its life: start, reload, begin_drain, finish."""

    def __init__(
        self, parts: Parts, ticker: Ticker, decisions: DecisionLog, takeover: Takeover, keeper: Keeper, alerting: Alerting
    ) -> None:
        self.parts = parts
        self.ticker = ticker
        self.decisions = decisions
        self.keeper = keeper
        self.alerting = alerting
        self.in_flight: set[Exchange] = parts.pipeline.in_flight
        self.takeover = takeover
        self.litestar = litestar_app(parts)
        self.asgi: ASGIApp = cast(ASGIApp, self.litestar)

    async def start(self) -> None:
        """Begin to poll, tick and write. Call once, on the loop that serves."""
        tokens.warm()
        self.parts.router.states(self.parts.catalog)
        self.parts.snapshot.start()
        await self.parts.store.start()
        await self.parts.pipeline.limits.start()
        self.ticker.every("decisions", 1.0, self.decisions.flush)
        await self.keeper.beat()  # before the first request that draws on it
        self.ticker.every("owned hardware", BEAT_S, self.keeper.beat)
        self.ticker.every("owned hours", CLOSE_S, self.keeper.close_hours)
        self.ticker.every("roll-ups", settling.EVERY_S, settling.Settler(self.parts.engine).settle)
        self.ticker.every("budget alerts", self.parts.settings.alerts.every_s, self.alerting.look)
        self.ticker.every("budget shares", EVERY_S, self.parts.budget_shares.look)
        self.ticker.every("alert deliveries", 1.0, self.alerting.deliver)
        self.ticker.every("what needs a hand", LOOK_S, self.parts.attention.look)
        self.ticker.every("engine figures", min(TICK_S, self.parts.settings.figures.every_s), self.parts.figures.look)
        self.ticker.every("live workers", SHARE_S, self._share)
        self.ticker.every("word to other workers", 1.0, self._leave_word)
        self.ticker.every("expire decisions", EXPIRE_S, lambda: self.decisions.expire(self.parts.accounts.now_us()))
        self.ticker.start()

    async def _share(self) -> None:
        """Rate limits of vendors are shared by the workers that live now, of other machines too."""
        self.parts.router.share(live_workers(self.parts.settings, self.parts.accounts))

    async def _leave_word(self) -> None:
        """How the backends are, for the other workers and for this one's memory of the last hour."""
        parts, now = self.parts, time.time()
        outcome = reloads.read(parts.file.state)
        parts.standing.newer_refused = bool(parts.standing.refused or (outcome is not None and outcome.refused))
        views = parts.router.snapshot(time.monotonic())
        parts.watch.look(views, now)
        parts.board.leave(told(parts, views, now), parts.watch)

    async def reload(self, settings: Settings) -> None:
        """Take over new routes, backends and prices for requests to come. Raises ValueError and changes nothing when they are bad."""
        await self.takeover.file(settings)
        await self._leave_word()  # whoever asks another worker is not to hear of the old ones

    def begin_drain(self) -> None:
        """Not ready, and no new request is taken."""
        self.parts.limits.draining = True

    async def finish(self) -> None:
        """After the last request: write what waits, give leases back, close."""
        await self.ticker.stop()
        await self.parts.snapshot.stop()
        await self.keeper.close()
        await self.parts.accounts.close()
        await self.decisions.flush()
        await self.alerting.close()
        await self.takeover.close()
        await self.parts.pipeline.flights.close()
        await self.parts.store.close()
        await self.parts.pipeline.limits.close()
        self.parts.telemetry.tick()
        if self.parts.pipeline.traces is not None:
            await asyncio.to_thread(self.parts.pipeline.traces.close)
        await self.parts.engine.dispose()


def live_workers(settings: Settings, accounts: Accounts) -> int:
    """Of all gateways on this database, as the last look at it saw them; while it is away at least our own."""
    return max(settings.server.workers, accounts.processes)


async def build(settings: Settings, worker_id: str) -> Application:
    """Make every part of one worker. Opens the journal and the database; ValueError for settings that cannot work."""
    setup_logging(settings.logging.level, settings.logging.format)
    state_dir = Path(settings.storage.state_dir)
    engine = make_engine(settings.storage, power=settings.money.fsync == "power")
    catalog = build_catalog(settings, {})
    router = Router(settings.routing, settings.server.workers)
    router.judges.load(catalog.routes)
    upstream = Upstream(settings.upstream)
    providers = {one.name: make_provider(one, settings, upstream) for one in settings.backends}
    keyring = Keyring(load_secrets(settings), engine)
    accounts = await Accounts.open(engine, settings.money, state_dir / "journal")
    shared = RedisLimits(settings.storage.redis_url, settings.cache.redis_timeout_s) if settings.storage.redis_url else None
    rates = RateLimits(shared, lambda: live_workers(settings, accounts))
    snapshot = Snapshot(
        engine,
        keyring,
        accounts,
        limiter=rates,
        max_age_s=settings.server.stale_keys_s,
        on_load=lambda prices, made: takeover.loaded(prices, made),  # noqa: PLW0108 - it is made below
    )
    telemetry, watch, board = Telemetry(state_dir / "metrics", worker_id), BackendWatch(), Board(state_dir / "board", worker_id)
    store = open_store(settings.cache, settings.storage.redis_url)
    decisions = DecisionLog(engine, settings.routing.decisions_queue, settings.routing.decisions_keep_days, telemetry.numbers.add)
    owned, flights = Owned(), Flights(settings.cache.max_answer_bytes)
    attempts = Attempts(accounts, router, providers, settings.server.over_budget_status, owned)
    attempts.traces = traces = open_traces(settings.traces)
    parts = Parts(
        settings=settings,
        file=settings,
        engine=engine,
        catalog=catalog,
        providers=providers,
        keyring=keyring,
        snapshot=snapshot,
        accounts=accounts,
        router=router,
        store=store,
        pipeline=Pipeline(
            catalog=lambda: parts.catalog,
            accounts=accounts,
            attempts=attempts,
            store=store,
            flights=flights,
            telemetry=telemetry,
            watch=watch,
            decisions=decisions,
            limits=rates,
            caching=settings.cache.enabled,
            max_answer_bytes=settings.cache.max_answer_bytes,
            traces=traces,
        ),
        telemetry=telemetry,
        limits=Limits(settings.server.max_body_bytes, settings.server.max_in_flight, settings.server.body_s),
        figures=EngineFigures(settings.figures, router, lambda: parts.catalog, lambda: parts.providers),
        budget_shares=BudgetShares(engine),
        watch=watch,
        board=board,
        attention=Attention(engine, board),
        standing=Standing(settings.hash),
    )
    takeover = Takeover(parts, upstream, lambda one, settings: make_provider(one, settings, upstream))
    _wire(parts)
    await snapshot.load()
    ticker = Ticker(parts.pipeline.in_flight, settings.server.keep_alive_s, settings.server.stalled_client_s, telemetry)
    keeper = Keeper(engine, accounts.process_id, owned, accounts.now_us, lambda: parts.catalog.backends, lambda name: is_ready(parts, name))
    alerting = Alerting(engine, settings.alerts, make_webhook(settings.alerts), accounts.take_refused, telemetry.numbers.add)
    return Application(parts, ticker, decisions, takeover, keeper, alerting)


def _wire(parts: Parts) -> None:
    """What is read of the parts once they are all there, and what the worker before this one had seen."""
    parts.telemetry.gauges = lambda: gauges(parts)
    parts.telemetry.totals = lambda: totals(parts)
    parts.telemetry.histograms = lambda: histograms(parts)
    parts.board.carried_on(parts.watch, time.time())


def make_webhook(alerts: AlertSettings) -> Webhook | None:
    """Where alerts are delivered, if anywhere. Raises ValueError for a reference without a value."""
    if not alerts.webhook_url:
        return None
    url = alerts.webhook_url
    if url.startswith(("env:", "file:")):
        url = resolve(url, what="alerts.webhook_url")
        if not url.startswith(("http://", "https://")):
            raise ValueError("alerts.webhook_url: what the reference names must begin with http:// or https://")
    return Webhook(url, resolve(alerts.webhook_secret, what="alerts.webhook_secret").encode(), alerts.timeout_s)


def make_provider(one: BackendSettings, settings: Settings, upstream: Upstream) -> Provider:
    """The provider of one backend; address and credential come from this one record."""
    state_dir = Path(settings.storage.state_dir)
    if one.vendor == "local":
        embeds = vendor_of(one).dialect == "openai_embeddings"
        return LocalProvider(state_dir / f"engine-{one.name}.sock", settings.storage.models_path / one.model, one.model, embeds=embeds)
    if one.vendor == "scripted":
        return ScriptedProvider(parse(one.script))
    credential = resolve(one.api_key, one.name) if one.api_key else ""
    vendor = vendor_of(one)
    return RemoteProvider(vendor, vendor.base_url, credential, upstream, one.metrics_url)


async def is_ready(parts: Parts, backend: str) -> bool:
    """Whether a backend's machine answers; asked of those alone that are paid for by the hour."""
    provider = parts.providers.get(backend)
    return provider is None or await provider.check() is None


def litestar_app(parts: Parts) -> Litestar:
    """The routes. The inferring ones are @asgi handlers behind one wrapper, documented by a twin that is never served."""
    app = Litestar(
        route_handlers=[
            *(inferring(Endpoint, path, dialect, parts) for path, dialect in SURFACES.items()),
            *(inferring(CountTokens, path, dialect, parts) for path, dialect in COUNTING.items()),
            *plain.handlers(parts),
            *admin.handlers(parts),
            *console.handlers(parts),
        ],
        exception_handlers={errors.GatewayError: tell, HTTPException: tell_http, Exception: lambda r, e: tell_fault(parts, r, e)},
        openapi_config=OpenAPIConfig(title="Tollway", version=openapi.version()),
        logging_config=None,
        debug=False,
    )
    openapi.document(app)
    return app


def inferring(kind: type[Endpoint], path: str, dialect: str, parts: Parts) -> Any:
    endpoint = kind(DIALECTS[dialect], parts.pipeline, parts.keyring, parts.telemetry, parts.limits)

    @asgi(path, copy_scope=False)
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await endpoint(scope, receive, send)

    return handler


def tell(_request: Any, error: errors.GatewayError) -> Response[bytes]:
    """A GatewayError in OpenAI's error shape, for every route that has no surface of its own."""
    body = DIALECTS["openai_chat"].error_body(error.status, error.message, error.type, error.code, error.param)
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return Response(body, status_code=error.status, media_type="application/json", headers=headers)


def tell_http(request: Any, error: HTTPException) -> Response[bytes]:
    """Litestar's own 400, 404, 405 …"""
    if isinstance(error.__cause__, SerializationException):
        told = f"The body cannot be read as JSON: {error.detail}. Send one JSON object in UTF-8."
        return tell(request, errors.InvalidRequest(told, code="invalid_json"))
    kind = {404: errors.NotFound, 405: errors.MethodNotAllowed}.get(error.status_code, errors.InvalidRequest)
    message = {404: f"There is no {request.scope.get('path', 'such path')} here.", 405: "This path does not take that method."}.get(
        error.status_code
    )
    allow = tuple((name, value) for name, value in (error.headers or {}).items() if name.lower() == "allow")
    return tell(request, kind(message or error.detail, status=error.status_code, headers=allow))


def tell_fault(parts: Parts, request: Any, error: Exception) -> Response[bytes]:
    parts.telemetry.fault(str(request.scope.get("path")), error)
    return tell(request, errors.Internal("An internal error; the gateway's log has it."))
