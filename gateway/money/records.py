"""What the journal and the ledger carry: one intent and one end per attempt, one usage record per accepted request.

Money is integer nano-USD. Times are integer microseconds since 1970 by the database's clock.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from providers.types import Usage


class Intent(Struct, frozen=True, kw_only=True, tag="I", array_like=True):
    """Written before an attempt is dispatched. worst: nano-USD reserved for this attempt; None = unpriced."""

    request_id: UUID
    n: int  # attempt number from 1
    started_at_us: int  # admission instant of the REQUEST
    team_id: int
    key_id: int
    org_id: int
    route: str
    backend: str
    vendor: str
    model: str
    price_id: str
    worst: int | None
    charges: tuple[int, ...]  # ids of the budget windows it draws on
    tag: str = ""


class AttemptEnd(Struct, frozen=True, kw_only=True, tag="A", array_like=True):
    """How one attempt ended. outcome: completed | failed | cancelled | lost (a hedge that lost)."""

    request_id: UUID
    n: int
    backend: str
    vendor: str
    model: str
    price_id: str
    outcome: str
    cost: int | None  # None = unpriced
    worst: int | None
    usage: Usage
    error: str = ""  # code of the error; without one a remark: cut_at_reservation | over_reserved | lost_race
    status: int = 0  # HTTP status upstream, 0 when there was none
    ttft_ms: int | None = None
    duration_ms: int = 0
    provider_id: str = ""
    began_ms: int | None = None  # after the request was admitted; None = not known


class UsageRecord(Struct, frozen=True, kw_only=True, tag="S", array_like=True):
    """The settlement of one accepted request: its ledger row with all attempts.

    outcome: completed | failed | cancelled | cached | refused | unknown. cost: sum over attempts; None = unpriced somewhere.
    backend, vendor, model, price_id, provider_id: of the attempt that answered, else of the last one, else "".
    """

    id: UUID  # UUIDv7
    started_at_us: int
    ended_at_us: int
    team_id: int
    key_id: int
    org_id: int
    route: str
    backend: str
    vendor: str
    model: str
    price_id: str
    outcome: str
    cost: int | None
    usage: Usage
    charges: tuple[int, ...]
    attempts: tuple[AttemptEnd, ...]
    streamed: bool = False
    surface: str = "openai_chat"
    tag: str = ""
    provider_id: str = ""
    error: str = ""
    status: int = 200  # HTTP status the client was told
    saved: int = 0  # nano-USD a cache hit did not cost
    ttft_ms: int | None = None
    duration_ms: int = 0
    kind: str = ""  # "" = answered at once | batch, which a vendor bills at its batch discount
    marks: int = 0  # bits of money/marks.py that only its settlement knows
