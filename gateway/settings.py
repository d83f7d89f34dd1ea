"""Settings: frozen structs read from tollway.toml and the environment. An unknown key is an error that names it.

Knows no backend's meaning (catalog.py) and reads no secret's value: those stay references, env:NAME or file:PATH.
"""

from __future__ import annotations

from msgspec import Struct, field


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = 4000
    workers: int = 1
    server: str = "granian"  # granian | uvicorn
    secret: tuple[str, ...] = ()  # references; the first signs, all are accepted; empty: state_dir/tollway.secret
    drain_s: float = 30.0
    max_body_bytes: int = 20 * 1024 * 1024
    max_in_flight: int = 2000  # requests per worker; beyond it 503
    keep_alive_s: float = 10.0  # a comment into a stream that is silent this long
    stalled_client_s: float = 60.0  # a client that does not read for this long is cut
    over_budget_status: int = 402


class Storage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state_dir: str = ".tollway"
    database_url: str = ""  # empty: SQLite in state_dir
    redis_url: str = ""  # empty: in-process
    pool_size: int = 5


class Money(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tick_s: float = 0.25
    near_coalesce_s: float = 0.005
    recall_wait_s: float = 0.6
    refusal_memory_s: float = 0.1
    idle_return_s: float = 5.0
    heartbeat_s: float = 5.0
    adopt_scan_s: float = 5.0
    batch_rows: int = 500
    queue_rows: int = 10_000
    fsync: str = "process"  # process | power
    segment_bytes: int = 16 * 1024 * 1024
    journal_max_bytes: int = 1024 * 1024 * 1024
    retain_s: float = 600.0


class CacheSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: bool = True
    ttl_s: int = 3600
    max_entries: int = 10_000  # in-process form
    max_bytes: int = 64 * 1024 * 1024  # in-process form
    max_answer_bytes: int = 1024 * 1024  # a larger answer is not stored
    redis_timeout_s: float = 0.05


class Routing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    margin: float = 0.8
    explore_share: float = 0.03
    retry_budget_share: float = 0.2
    retry_budget_floor: int = 30
    eject_after: int = 3
    eject_s: float = 5.0
    eject_cap_s: float = 80.0
    decisions_keep_days: int = 14
    decisions_queue: int = 10_000


class Upstream(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_connections: int = 1000
    max_answer_bytes: int = 64 * 1024 * 1024
    max_event_bytes: int = 4 * 1024 * 1024
    keepalive_s: float = 30.0


class LocalEngine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    threads: int = 0  # 0: cores - 1, at least 1
    max_sequences: int = 16
    max_waiting: int = 256
    precision: str = "f32"


class Logging(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: str = "info"
    format: str = "json"  # json | text


class PriceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per million tokens, as decimal strings; missing is not zero."""

    input: str
    output: str
    cache_read: str | None = None
    cache_write_5m: str | None = None
    cache_write_1h: str | None = None
    reasoning: str | None = None
    input_audio: str | None = None
    output_audio: str | None = None
    per_request: str | None = None  # USD


class BackendSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    vendor: str
    model: str
    api_key: str = ""
    base_url: str = ""
    price: PriceSettings | None = None
    hourly_usd: str | None = None
    capabilities: tuple[str, ...] | None = None  # None: the vendor row's
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    token_factor: float | None = None
    parallel: int | None = None
    labels: dict[str, str] = {}
    ttft_prior_ms: float | None = None
    tpot_prior_ms: float | None = None
    connect_s: float = 5.0
    first_byte_s: float = 60.0
    idle_s: float = 60.0
    script: str = ""  # vendor "scripted" only: the script's text or file:PATH


class RouteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    backends: tuple[str, ...]
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    deadline_ms: float | None = None
    cache: str = "deterministic"
    cache_ttl_s: int | None = None
    max_attempts: int = 3
    labels: dict[str, str] = {}


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: Server = field(default_factory=Server)
    storage: Storage = field(default_factory=Storage)
    money: Money = field(default_factory=Money)
    cache: CacheSettings = field(default_factory=CacheSettings)
    routing: Routing = field(default_factory=Routing)
    upstream: Upstream = field(default_factory=Upstream)
    local_engine: LocalEngine = field(default_factory=LocalEngine)
    logging: Logging = field(default_factory=Logging)
    backends: tuple[BackendSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()
