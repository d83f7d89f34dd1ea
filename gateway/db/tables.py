"""The tables. One representation on SQLite and Postgres: instants are BIGINT microseconds since 1970, money is BIGINT nano-USD,
UUIDs are native on Postgres and BLOB(16) on SQLite. Plain functions in the rooms that own a table do the queries.

Roll-ups are in rollup_tables.py.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from gateway.db.columns import Id, Uid, count, metadata, usage_classes, word

HEAD = "0012"  # the migration this program is made for; a test compares it with the scripts

# one row, read every second by every worker: a change of anything below the line is seen when `version` moved
catalog_version = Table(
    "catalog_version", metadata, Column("id", SmallInteger, primary_key=True), Column("version", BigInteger, nullable=False)
)

organisations = Table(
    "organisations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created_at_us", BigInteger, nullable=False),
)

teams = Table(
    "teams",
    metadata,
    Column("id", Id, primary_key=True),
    Column("org_id", BigInteger, ForeignKey("organisations.id"), nullable=False),
    Column("name", Text, nullable=False, unique=True),
    Column("salt", Text, nullable=False),  # separates prefix caches of tenants
    Column("labels", Text, nullable=False, server_default=""),  # name=value,… that a backend must carry
    Column("created_at_us", BigInteger, nullable=False),
    Column("deleted_at_us", BigInteger),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Id, primary_key=True),
    Column("team_id", BigInteger, ForeignKey("teams.id"), nullable=False),
    Column("public", Text, nullable=False, unique=True),  # the 12 characters that may be shown
    Column("digest", LargeBinary, nullable=False, unique=True),  # HMAC-SHA256 of the whole key under server.secret
    Column("name", Text, nullable=False, server_default=""),
    Column("scopes", Text, nullable=False),  # space-separated: inference, admin, finance, team_admin
    Column("models", Text),  # JSON list of route or upstream names; NULL = all
    Column("tag", Text, nullable=False, server_default=""),
    Column("labels", Text, nullable=False, server_default=""),  # beside its team's
    Column("created_at_us", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger),
    Column("blocked_at_us", BigInteger),  # refused until it is unblocked
    Column("revoked_at_us", BigInteger),
    Column("member_id", BigInteger),  # whose it is; NULL = the team's
    Index(None, "team_id"),
    Index(None, "member_id"),
)

# what a key was before it was rotated: works beside the new secret until its day
former_secrets = Table(
    "former_secrets",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("public", Text, nullable=False, unique=True),
    Column("key_id", BigInteger, ForeignKey("api_keys.id"), nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Index(None, "key_id"),
)

# people who sign in to the console
members = Table(
    "members",
    metadata,
    Column("id", Id, primary_key=True),
    Column("email", Text, nullable=False, unique=True),  # in small letters
    Column("name", Text, nullable=False, server_default=""),
    Column("role", Text, nullable=False, server_default=""),  # admin | finance: of everything; else what the memberships say
    Column("password", Text),  # scrypt with its parameters; NULL = none is set
    Column("link_digest", LargeBinary, unique=True),  # SHA-256 of a one-time link to set the password
    Column("link_expires_at_us", BigInteger),
    Column("created_at_us", BigInteger, nullable=False),
    Column("deleted_at_us", BigInteger),
)

memberships = Table(
    "memberships",
    metadata,
    Column("member_id", BigInteger, ForeignKey("members.id"), primary_key=True, autoincrement=False),
    Column("team_id", BigInteger, ForeignKey("teams.id"), primary_key=True, autoincrement=False),
    Column("role", Text, nullable=False),  # team_admin | member
    Index(None, "team_id"),
)

# of the console; the cookie holds the token, the table its digest
sessions = Table(
    "sessions",
    metadata,
    Column("digest", LargeBinary, primary_key=True),  # SHA-256 of the token
    Column("member_id", BigInteger, ForeignKey("members.id")),  # one of the two
    Column("key_id", BigInteger, ForeignKey("api_keys.id")),
    Column("created_at_us", BigInteger, nullable=False),
    Column("seen_at_us", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger, nullable=False),
    Index(None, "member_id"),
    Index(None, "expires_at_us"),
)

# failed sign-ins of the last minutes, by account and by address
login_failures = Table(
    "login_failures",
    metadata,
    Column("subject", LargeBinary, primary_key=True),  # SHA-256, so that what somebody mistyped is not kept
    Column("since_us", BigInteger, nullable=False),
    count("failures"),
    Index(None, "since_us"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Id, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    *(Column(name, Text, nullable=False) for name in ("actor", "role")),
    Column("member_id", BigInteger),
    Column("key_id", BigInteger),
    *(Column(name, Text, nullable=False) for name in ("action", "kind", "ident")),
    Column("team_id", BigInteger),  # whose admins may read it; NULL = admins alone
    Column("before", Text),  # JSON objects
    Column("after", Text),
    Index(None, "team_id", "id"),
    Index(None, "at_us"),
)

budgets = Table(
    "budgets",
    metadata,
    Column("id", Id, primary_key=True),
    Column("scope_kind", Text, nullable=False),  # organisation | team | key
    Column("scope_id", BigInteger, nullable=False),
    Column("model", Text),  # NULL = every route
    Column("period", Text, nullable=False),  # day | week | month | total
    Column("timezone", Text, nullable=False, server_default="UTC"),
    Column("limit_nanousd", BigInteger, nullable=False),
    Column("override_nanousd", BigInteger),
    Column("override_until_us", BigInteger),
    Column("created_at_us", BigInteger, nullable=False),
    Column("deleted_at_us", BigInteger),
    Index(None, "scope_kind", "scope_id"),
)

limits = Table(
    "limits",
    metadata,
    Column("id", Id, primary_key=True),
    Column("scope_kind", Text, nullable=False),  # organisation | team | key
    Column("scope_id", BigInteger, nullable=False),
    Column("model", Text),  # NULL = every route
    Column("rpm", BigInteger),  # NULL = not limited, as below
    Column("tpm", BigInteger),
    Column("parallel", BigInteger),
    Column("created_at_us", BigInteger, nullable=False),
    Column("deleted_at_us", BigInteger),
    Index(None, "scope_kind", "scope_id"),
)

budget_windows = Table(
    "budget_windows",
    metadata,
    Column("id", Id, primary_key=True),
    Column("budget_id", BigInteger, ForeignKey("budgets.id"), nullable=False),
    Column("starts_at_us", BigInteger, nullable=False),
    Column("ends_at_us", BigInteger),
    count("spent"),
    count("leased"),
    Column("wanted_at_us", BigInteger),
    UniqueConstraint("budget_id", "starts_at_us"),
    postgresql_with={"fillfactor": 50},
)

# percents of a budget whose crossing is told
budget_thresholds = Table(
    "budget_thresholds",
    metadata,
    Column("budget_id", BigInteger, ForeignKey("budgets.id"), primary_key=True, autoincrement=False),
    Column("percent", SmallInteger, primary_key=True, autoincrement=False),
)

# each threshold once per window; with `due_at_us` it waits for its delivery
budget_alerts = Table(
    "budget_alerts",
    metadata,
    Column("window_id", BigInteger, primary_key=True, autoincrement=False),
    Column("percent", SmallInteger, primary_key=True, autoincrement=False),
    Column("id", Uid, nullable=False),
    Column("reason", Text, nullable=False),  # spent | refused
    Column("at_us", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("cap", BigInteger, nullable=False),
    count("tries"),
    Column("due_at_us", BigInteger),  # NULL = nothing is to be delivered (any more)
    Column("delivered_at_us", BigInteger),
    Index(None, "due_at_us"),
)

gateway_processes = Table(
    "gateway_processes",
    metadata,
    Column("id", Uid, primary_key=True),
    Column("host", Text, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("journal_dir", Text, nullable=False),
    Column("started_at_us", BigInteger, nullable=False),
    Column("heartbeat_at_us", BigInteger, nullable=False),
    count("sync_seq"),
    Column("state", Text, nullable=False),  # live | closed
)

budget_leases = Table(
    "budget_leases",
    metadata,
    Column("process_id", Uid, primary_key=True),
    Column("window_id", BigInteger, primary_key=True),
    Column("amount", BigInteger, nullable=False),
    count("idle"),
    Index(None, "window_id"),
)


usage = Table(
    "usage",
    metadata,
    Column("id", Uid, primary_key=True),  # UUIDv7 made at admission
    Column("started_at_us", BigInteger, nullable=False),
    Column("ended_at_us", BigInteger, nullable=False),
    Column("org_id", BigInteger, nullable=False),
    Column("team_id", BigInteger, nullable=False),
    Column("key_id", BigInteger, nullable=False),
    *(word(name) for name in ("route", "backend", "vendor", "model", "price_id", "surface", "kind", "tag", "provider_id", "error")),
    Column("outcome", Text, nullable=False),
    Column("status", SmallInteger, nullable=False, server_default=text("0")),
    Column("cost", BigInteger),  # NULL = unpriced, which is not zero
    count("saved"),
    *usage_classes(),
    Column("stated", BigInteger),  # the vendor's own figure of the cost
    Column("estimated", Boolean, nullable=False, server_default=false()),
    Column("streamed", Boolean, nullable=False, server_default=false()),
    Column("ttft_ms", Integer),
    count("duration_ms"),
    Column("charges", Text, nullable=False, server_default="[]"),  # JSON list of budget window ids
    Column("process_id", Uid, nullable=False),
    Column("marks", SmallInteger, nullable=False, server_default=text("0")),  # bits of money/marks.py
    Index(None, "started_at_us"),
    Index(None, "team_id", "started_at_us"),
    # the few rows that somebody looks for among all
    Index("ix_usage_marked", "started_at_us", "team_id", "marks", sqlite_where=text("marks <> 0"), postgresql_where=text("marks <> 0")),
)

attempts = Table(
    "attempts",
    metadata,
    Column("request_id", Uid, primary_key=True),
    Column("n", SmallInteger, primary_key=True),
    *(word(name) for name in ("backend", "vendor", "model", "price_id", "error", "provider_id")),
    Column("outcome", Text, nullable=False),
    Column("status", SmallInteger, nullable=False, server_default=text("0")),
    Column("cost", BigInteger),
    Column("worst", BigInteger),
    *usage_classes(),
    Column("estimated", Boolean, nullable=False, server_default=false()),
    Column("ttft_ms", Integer),
    count("duration_ms"),
    Column("began_ms", Integer),  # after the request was admitted; NULL = not known
)

adjustments = Table(
    "adjustments",
    metadata,
    Column("id", Uid, primary_key=True),
    Column("window_id", BigInteger),
    Column("usage_id", Uid),
    Column("delta", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Index(None, "window_id"),
    Index(None, "usage_id"),
)

# one row: what the ledger no longer holds
retention = Table(
    "retention",
    metadata,
    Column("id", SmallInteger, primary_key=True),
    Column("pruned_until_us", BigInteger, nullable=False),  # rows before it are gone; the roll-ups of their time stay
)

# when a gateway process had a backend whose hardware is paid for by the hour, and when that was seen to be no more than starting
owned_spans = Table(
    "owned_spans",
    metadata,
    Column("process_id", Uid, primary_key=True),
    Column("backend", Text, primary_key=True),
    Column("kind", Text, primary_key=True),  # present | warm_up
    Column("from_us", BigInteger, primary_key=True),
    Column("until_us", BigInteger, nullable=False),
    Column("machine", Text, nullable=False),  # which of several that one backend's name stands for
    Column("rate", BigInteger, nullable=False),  # nano-USD per hour
    count("load"),  # mean tokens that the process had in flight there
    Index(None, "backend", "until_us"),
)

# hours of such hardware: open, then closed by a row of what nobody paid for
owned_hours = Table(
    "owned_hours",
    metadata,
    Column("backend", Text, primary_key=True),
    Column("hour_us", BigInteger, primary_key=True),
    *(word(name) for name in ("vendor", "model")),
    Column("owed", BigInteger),  # hours × rate in nano-USD; NULL = open
    Column("covered_us", BigInteger),
    Column("written", SmallInteger, nullable=False, server_default=text("0")),  # rows that were booked for it
    Column("check_at_us", BigInteger),  # when it is to be closed, or to be looked at again; NULL = nothing to do
    Index(None, "check_at_us"),
)


decisions = Table(
    "decisions",
    metadata,
    Column("request_id", Uid, primary_key=True),
    Column("made_at_us", BigInteger, nullable=False),
    Column("team_id", BigInteger, nullable=False),
    Column("record", LargeBinary, nullable=False),  # msgpack of routing.decision.Decision
    Index(None, "made_at_us"),
)

price_book = Table(
    "price_book",
    metadata,
    Column("id", Text, primary_key=True),
    Column("vendor", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("source", Text, nullable=False),  # seed | api
    Column("record", Text, nullable=False),  # JSON of catalog.Price
    Column("from_us", BigInteger, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("withdrawn_at_us", BigInteger),  # a mistake: it never held
    Index(None, "vendor", "model"),
)

# backends and routes that were made over the API, beside those of the settings file
made_entries = Table(
    "made_entries",
    metadata,
    Column("kind", Text, primary_key=True),  # backend | route
    Column("name", Text, primary_key=True),
    Column("record", Text, nullable=False),  # JSON of its settings
    Column("made_at_us", BigInteger, nullable=False),
    Column("changed_at_us", BigInteger, nullable=False),
)

# what an operator asked of a backend while it runs, wherever it is named
backend_orders = Table(
    "backend_orders",
    metadata,
    Column("backend", Text, primary_key=True),
    Column("drained_at_us", BigInteger),  # NULL = it takes requests
    word("drained_by"),
    word("note"),
    Column("probe_at_us", BigInteger),  # the last time that somebody would not wait for the end of an ejection
)
