"""Settings: frozen structs read from tollway.toml and the environment. An unknown key is an error that names it.

Knows no backend's meaning (catalog.py) and reads no secret's value: those stay references, env:NAME or file:PATH. Standard library and
msgspec only: the supervisor imports it. Checked once, here; published.py carries them to the workers.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from msgspec import Meta, Struct, field

from gateway.settings_text import PREFIX, explain, nearest, override, read, refuse_unknown
from gateway.settings_text import ConfigError as ConfigError  # noqa: PLC0414 - everybody else finds it here

EXIT_CONFIG = 78  # sysexits' EX_CONFIG: starting again will not help
EXIT_NOT_YET = 75  # sysexits' EX_TEMPFAIL: the same may work later
MAX_SOCKET_PATH = 100  # bytes; the kernel takes 107 on Linux, 103 on macOS

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
CountOrZero = Annotated[int, Meta(ge=0, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=1024, le=1024**4)]
Seconds = Annotated[float, Meta(gt=0, le=604_800)]
WholeSeconds = Annotated[int, Meta(ge=1, le=31_536_000)]
Milliseconds = Annotated[float, Meta(gt=0, le=86_400_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Usd = Annotated[str, Meta(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?$")]  # money is text until it is integer nano-USD
Part = Annotated[str, Meta(pattern=r"^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$")]  # a share of money, 0 to 1
Labels = Annotated[dict[str, str], Meta(max_length=64)]


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: Port = 4000  # 0: a free one, which is logged
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    server: Literal["granian", "uvicorn"] = "granian"
    secret: tuple[str, ...] = ()  # references; the first signs, all are accepted; empty: state_dir/tollway.secret
    drain_s: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    silent_worker_s: Seconds = 10.0  # a worker without a heartbeat for this long is killed and restarted
    max_body_bytes: Bytes = 20 * 1024 * 1024
    body_s: Seconds = 60.0  # for a request's body to arrive; then 408
    max_in_flight: Count = 2000  # requests per worker; beyond it 503
    keep_alive_s: Seconds = 10.0  # a comment into a stream that is silent this long
    stalled_client_s: Seconds = 60.0  # a client that does not read for this long is cut
    over_budget_status: Literal[402, 429] = 402
    stale_keys_s: Seconds = 3600.0  # without a database for this long, known keys get 503 too
    api_references: tuple[str, ...] = ("env:*", "file:/run/secrets/*")  # that a backend made over the API may name as its credential


class Storage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state_dir: Name = ".tollway"
    models_dir: str = ""  # empty: TOLLWAY_MODELS, else state_dir/models
    database_url: str = ""  # empty: SQLite in state_dir
    redis_url: str = ""  # empty: in-process
    pool_size: Annotated[int, Meta(ge=1, le=1000)] = 5

    @property
    def models_path(self) -> Path:
        """Where model folders lie."""
        return Path(self.models_dir) if self.models_dir else Path(self.state_dir) / "models"


class Money(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tick_s: Seconds = 0.25
    near_coalesce_s: Seconds = 0.005
    recall_wait_s: Seconds = 0.6
    refusal_memory_s: Seconds = 0.1
    idle_return_s: Seconds = 5.0
    heartbeat_s: Seconds = 5.0
    adopt_scan_s: Seconds = 5.0
    batch_rows: Annotated[int, Meta(ge=1, le=10_000)] = 500
    queue_rows: Count = 10_000
    fsync: Literal["process", "power"] = "process"
    segment_bytes: Bytes = 16 * 1024 * 1024
    journal_max_bytes: Bytes = 1024 * 1024 * 1024
    retain_s: Seconds = 600.0


class AlertSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    every_s: Seconds = 5.0  # how often budgets are looked at
    webhook_url: str = ""  # or a reference; empty: alerts are told in the log and the metrics alone
    webhook_secret: str = ""  # a reference
    timeout_s: Seconds = 5.0  # of one delivery
    attempts: Annotated[int, Meta(ge=1, le=30)] = 10
    backoff_s: Seconds = 2.0  # after the first failed delivery; doubled with each further one
    backoff_cap_s: Seconds = 600.0


class CacheSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: bool = True
    ttl_s: WholeSeconds = 3600
    max_entries: Count = 10_000  # in-process form
    max_bytes: Bytes = 64 * 1024 * 1024  # in-process form
    max_answer_bytes: Bytes = 1024 * 1024  # a larger answer is not stored
    redis_timeout_s: Seconds = 0.05


class Routing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    margin: Annotated[float, Meta(gt=0, le=1)] = 0.91
    explore_share: Share = 0.03
    hedge_share: Share = 0.05
    window_s: Seconds = 120.0
    retry_budget_share: Share = 0.2
    retry_budget_floor: CountOrZero = 30
    eject_after: Count = 3
    eject_s: Seconds = 5.0
    eject_cap_s: Seconds = 80.0
    decisions_keep_days: Annotated[int, Meta(ge=1, le=3650)] = 14
    decisions_queue: Count = 10_000


class FigureSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What engines of one's own say of themselves: queue, KV cache, prefix hits."""

    every_s: Seconds = 2.0
    timeout_s: Seconds = 1.0
    max_age_s: Seconds = 10.0  # older ones are not used
    max_bytes: Bytes = 1024 * 1024  # of one page
    max_backends: Count = 64
    absent_s: Seconds = 60.0  # a server that publishes nothing, or is in trouble, is asked this rarely


class Upstream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_connections: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    max_answer_bytes: Bytes = 64 * 1024 * 1024
    keepalive_s: Seconds = 30.0


class LocalEngine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0  # 0: cores - 1, at least 1
    max_sequences: Annotated[int, Meta(ge=1, le=4096)] = 16
    max_waiting: Count = 256
    max_step_tokens: Annotated[int, Meta(ge=16, le=1_000_000)] = 256
    kv_bytes: Annotated[int, Meta(ge=0, le=1024**4)] = 0  # 0: 1 GiB on a CPU, kv_fraction of what is free on a CUDA device
    kv_fraction: Annotated[float, Meta(gt=0, le=1)] = 0.8
    precision: str = "auto"  # bf16 on CUDA, f32 on a CPU
    silent_s: Seconds = 60.0  # an engine whose step loop has not turned for this long is killed and restarted
    fetch: bool = True  # download a known model that is not there yet, while the gateway serves


class ConsoleSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pages under /console."""

    enabled: bool = True
    secure_cookies: bool = False  # cookies for TLS alone, also where the proxy that ends TLS does not say so
    session_hours: Annotated[float, Meta(gt=0, le=8760)] = 12.0


class Logging(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "text"] = "json"


class TraceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Spans of requests, sent to a collector; wants the extra `otel`."""

    endpoint: str = ""  # of OTLP over HTTP, such as http://collector:4318/v1/traces; empty: no traces
    headers: str = ""  # a reference to name=value,…, for a collector that wants a credential
    service: Name = "tollway"
    sample: Share = 1.0  # of the requests that bring no trace of their own
    content: bool = False  # prompts and answers in the spans
    pass_to: tuple[str, ...] = ()  # backends that are told the trace
    timeout_s: Seconds = 10.0  # of one export


class TierSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per million tokens of a whole request whose prompt has more than `above` tokens."""

    above: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    input: Usd
    output: Usd
    cache_read: Usd | None = None
    cache_write_5m: Usd | None = None
    cache_write_1h: Usd | None = None
    reasoning: Usd | None = None
    input_audio: Usd | None = None
    output_audio: Usd | None = None
    input_image: Usd | None = None
    output_image: Usd | None = None


class PriceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per million tokens, as decimal strings; missing is not zero."""

    input: Usd
    output: Usd
    cache_read: Usd | None = None
    cache_write_5m: Usd | None = None
    cache_write_1h: Usd | None = None
    reasoning: Usd | None = None
    input_audio: Usd | None = None
    output_audio: Usd | None = None
    input_image: Usd | None = None
    output_image: Usd | None = None
    per_request: Usd | None = None  # USD
    batch_discount: Part | None = None
    tiers: Annotated[tuple[TierSettings, ...], Meta(max_length=16)] = ()


class TraitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a backend's model takes, where the data of its family and vendor do not fit it."""

    token_limit: Literal["", "max_tokens", "max_completion_tokens"] = ""
    take: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    system: Literal["", "anywhere", "first"] = ""
    developer: Literal["", "developer", "system"] = ""
    thinking: Literal["", "none", "budget", "adaptive", "adaptive_only", "always"] = ""


class BackendSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    vendor: Name
    model: Name
    known_as: Annotated[str, Meta(max_length=128)] = ""  # the model's public name, where `model` is a deployment's or a file
    dialect: str = ""  # empty: the first language of the vendor's row
    api_key: str = ""
    base_url: str = ""
    metrics_url: str = ""  # of the engine's figures; empty: /metrics beside base_url
    account: Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$", max_length=253)] = ""
    api_version: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]*$", max_length=64)] = ""
    price: PriceSettings | None = None
    hourly_usd: Usd | None = None
    capabilities: tuple[str, ...] | None = None  # None: the vendor row's, as far as the model's family has them
    unsupported: Literal["refuse", "drop"] = "refuse"  # of a parameter that the model does not take
    traits: TraitSettings | None = None
    context_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    token_factor: Annotated[float, Meta(gt=0, le=100)] | None = None
    parallel: Count | None = None
    rpm: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    tpm: Annotated[int, Meta(ge=1, le=10**12)] | None = None
    labels: Labels = {}
    prompt_cache_s: Seconds = 300.0  # how long after its last use the vendor keeps a prompt
    ttft_prior_ms: Milliseconds | None = None
    tpot_prior_ms: Milliseconds | None = None
    connect_s: Seconds = 5.0
    first_byte_s: Seconds = 60.0
    idle_s: Seconds = 60.0
    script: str = ""  # vendor "scripted" only: the script's text or file:PATH


class QualitySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Backends in `weak` get only the prompts that they are predicted to do well. Exactly one of floor and strong_share."""

    weak: tuple[str, ...]
    floor: Share | None = None
    strong_share: Share | None = None
    model: str = ""  # a file of `tollway quality train`; empty: the one that ships


class RouteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    backends: tuple[str, ...]
    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    deadline_ms: Milliseconds | None = None
    cache: Literal["deterministic", "always", "never"] = "deterministic"
    cache_ttl_s: WholeSeconds | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    free_when_spent: bool = True  # a backend of price 0 may be asked when the budget has nothing left
    labels: Labels = {}
    quality: QualitySettings | None = None


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: Server = field(default_factory=Server)
    storage: Storage = field(default_factory=Storage)
    money: Money = field(default_factory=Money)
    alerts: AlertSettings = field(default_factory=AlertSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    routing: Routing = field(default_factory=Routing)
    figures: FigureSettings = field(default_factory=FigureSettings)
    upstream: Upstream = field(default_factory=Upstream)
    local_engine: LocalEngine = field(default_factory=LocalEngine)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    logging: Logging = field(default_factory=Logging)
    traces: TraceSettings = field(default_factory=TraceSettings)
    backends: tuple[BackendSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()

    @property
    def state(self) -> Path:
        return Path(self.storage.state_dir)

    def socket(self, backend: str) -> Path:
        """The Unix socket of a local backend's engine."""
        return self.state / f"engine-{backend}.sock"

    @property
    def hash(self) -> str:
        """Names this content: the same settings have the same hash."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """The checked settings of a file (None: ./tollway.toml where there is one) and the environment. Raises ConfigError."""
    raw = read(path)
    if "backends" not in raw and "routes" not in raw:
        raw |= default_backends()
    refuse_unknown(raw, Settings, "")
    for name in sorted(environ):
        if name.startswith(PREFIX) and "__" in name:
            override(raw, name, environ[name], Settings)
    if environ.get("TOLLWAY_MODELS"):
        raw.setdefault("storage", {}).setdefault("models_dir", environ["TOLLWAY_MODELS"])
    try:
        settings = msgspec.convert(raw, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(explain(str(error), raw, Settings)) from None
    check(settings)
    return settings


def default_backends() -> dict[str, Any]:
    """What serves when no backend is configured: the small local model where its libraries are installed, else a scripted stand-in."""
    price = {"input": "0.02", "output": "0.06"}
    if has_local_libraries():
        backend = {"name": "smol", "vendor": "local", "model": "smollm2-135m", "price": price}
    else:
        backend = {"name": "scripted", "vendor": "scripted", "model": "scripted", "price": price}
    return {"backends": [backend], "routes": [{"name": "assistant", "backends": [backend["name"]]}]}


def has_local_libraries() -> bool:
    """Whether the extra `local` is installed; found without importing it, which takes seconds."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))


def check_vendors(backends: Collection[BackendSettings], known: Collection[str]) -> None:
    """Raises ConfigError for a backend whose vendor is not among `known`."""
    for backend in backends:
        if backend.vendor not in known:
            raise ConfigError(f'backends.{backend.name}.vendor: "{backend.vendor}" is unknown.{nearest(backend.vendor, known)}')


def _refuse(key: str, message: str) -> NoReturn:
    raise ConfigError(f"{key}: {message}")


def check(settings: Settings) -> None:
    """What types cannot say: references between tables, and secrets that must not stand in a file. Raises ConfigError."""
    for position, reference in enumerate(settings.server.secret):
        _check_reference(f"server.secret[{position}]", reference)
    _check_alerts(settings.alerts)
    _unique("backends", [backend.name for backend in settings.backends])
    _unique("routes", [route.name for route in settings.routes])
    for backend in settings.backends:
        check_backend(backend, settings.socket(backend.name))
    names = {backend.name for backend in settings.backends}
    _check_traces(settings.traces, names)
    for route in settings.routes:
        check_route(route, names)


def check_route(route: RouteSettings, names: Collection[str]) -> None:
    """One route against the backends there are. Raises ConfigError."""
    if not route.name.isprintable():
        _refuse("routes.name", f"{route.name[:80]!a} has characters that cannot be printed.")
    if not route.backends:
        _refuse(f"routes.{route.name}.backends", "name at least one backend.")
    _unique(f"routes.{route.name}.backends", list(route.backends))
    for name in route.backends:
        if name not in names:
            _refuse(f"routes.{route.name}.backends", f'"{name}" is not a backend.{nearest(name, names)}')
    if route.quality is not None:
        _check_quality(f"routes.{route.name}.quality", route.quality, route.backends)


def _check_quality(key: str, quality: QualitySettings, backends: tuple[str, ...]) -> None:
    if not quality.weak:
        _refuse(f"{key}.weak", "name at least one backend.")
    for name in quality.weak:
        if name not in backends:
            _refuse(f"{key}.weak", f'"{name}" is not a backend of this route.{nearest(name, backends)}')
    if set(quality.weak) == set(backends):
        _refuse(f"{key}.weak", "leave at least one backend of the route for prompts that need a strong one.")
    if (quality.floor is None) == (quality.strong_share is None):
        _refuse(key, "set either floor or strong_share.")


def _check_alerts(alerts: AlertSettings) -> None:
    url = alerts.webhook_url
    if not re.match(r"(env:|file:)", url) and url and not re.match(r"https?://[^/\s]+", url):
        _refuse("alerts.webhook_url", "must begin with http:// or https:// and a host, or be a reference, env:NAME or file:PATH.")
    if alerts.webhook_secret:
        _check_reference("alerts.webhook_secret", alerts.webhook_secret)
    elif url:
        _refuse("alerts.webhook_secret", "is needed, so that the receiver can tell our messages from others': env:NAME or file:PATH.")


def _check_traces(traces: TraceSettings, backends: Collection[str]) -> None:
    if traces.endpoint:
        if not re.match(r"https?://[^/\s]+/", traces.endpoint):
            _refuse("traces.endpoint", "must begin with http:// or https://, a host and a path, such as http://collector:4318/v1/traces.")
        if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.exporter") is None:
            _refuse("traces.endpoint", "wants the extra otel: pip install 'tollway[otel]'.")
    if traces.headers:
        _check_reference("traces.headers", traces.headers)
    for name in traces.pass_to:
        if name not in backends:
            _refuse("traces.pass_to", f'"{name}" is not a backend.{nearest(name, backends)}')


def check_backend(backend: BackendSettings, socket: Path) -> None:
    """One backend. socket: that its engine would have. Raises ConfigError."""
    key = f"backends.{backend.name}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", backend.name):
        _refuse(f"{key}.name", "use letters, digits, dots, dashes and underscores.")
    for name, text in (("model", backend.model), ("known_as", backend.known_as)):
        _check_printable(f"{key}.{name}", text)
    if backend.api_key:
        _check_reference(f"{key}.api_key", backend.api_key)
    for name, url in (("base_url", backend.base_url), ("metrics_url", backend.metrics_url)):
        if url and not re.match(r"https?://[^/\s]+", url):
            _refuse(f"{key}.{name}", "must begin with http:// or https:// and a host.")
    if backend.vendor == "local" and len(os.fsencode(socket)) > MAX_SOCKET_PATH:
        _refuse("storage.state_dir", f"the engine's socket {socket} would be longer than {MAX_SOCKET_PATH} bytes; choose a shorter folder.")
    if backend.script and backend.vendor != "scripted":
        _refuse(f"{key}.script", 'is for backends of the vendor "scripted" only.')


def _check_printable(key: str, name: str) -> None:
    """A name stands in logs, tables, addresses and headers."""
    if not name.isprintable():
        _refuse(key, "use printable characters alone.")


def _check_reference(key: str, value: str) -> None:
    """The value itself is never repeated: it may be a secret."""
    if not re.fullmatch(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+", value):
        _refuse(key, "must be a reference, env:NAME or file:PATH, never the secret itself.")


def _unique(key: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            _refuse(key, f'"{name}" is named twice.')
