"""One request inside the engine: its tokens and how far they are computed. Holds state; decides nothing."""

from __future__ import annotations

from local_engine.kv_cache import Table
from local_engine.sampling import State
from local_engine.wire import Params


class Sequence:
    """tokens = prompt + generated. `computed` of them have keys and values; the rest is pending (1 = decode, more = prefill)."""

    __slots__ = (
        "added_at",
        "computed",
        "first_at",
        "id",
        "limit",
        "order",
        "params",
        "priority",
        "prompt_tokens",
        "salt",
        "sampling",
        "table",
        "tokens",
    )

    def __init__(self, key: int, prompt: list[int], params: Params, limit: int, salt: str = "", sampling: State | None = None) -> None:
        self.id = key
        self.tokens = list(prompt)
        self.prompt_tokens = len(prompt)
        self.params = params
        self.limit = limit  # most tokens to generate
        self.salt = salt  # the tenant
        self.priority = 0  # lower goes first
        self.order = 0  # of arrival; the scheduler's
        self.computed = 0
        self.added_at = 0.0  # monotonic seconds, when it was queued
        self.first_at = 0.0  # and when its first token came
        self.table = Table(salt)
        self.sampling = sampling or State(params)

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_tokens
