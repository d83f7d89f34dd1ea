"""Keys and values of running sequences: one growing buffer a sequence, every byte accounted against one cap.

A buffer is [layers, 2, kv_heads, capacity, head_dim]; growing copies it, in steps that keep the copies amortised. Knows no scheduling.
"""

from __future__ import annotations

import torch

from local_engine.loader import Shape

GROWTH_TOKENS = 64  # capacities are multiples of this


class KvPool:
    """Whoever reserves frees. `used_bytes` never passes `cap_bytes`; while a buffer grows, its old copy exists beside it for a moment."""

    def __init__(self, shape: Shape, cap_bytes: int) -> None:
        self._shape = shape
        self._buffers: dict[int, torch.Tensor] = {}
        self.bytes_per_token = shape.layers * 2 * shape.kv_heads * shape.head_dim * 4
        self.cap_bytes = cap_bytes
        self.used_bytes = 0

    @property
    def capacity_tokens(self) -> int:
        """The longest sequence that fits when it is alone."""
        return self.cap_bytes // self.bytes_per_token // GROWTH_TOKENS * GROWTH_TOKENS

    def reserve(self, key: int, tokens: int) -> bool:
        """Room for `tokens` of sequence `key` in all; False when the cap forbids it, and nothing has changed then."""
        old = self._buffers.get(key)
        held = 0 if old is None else old.shape[3]
        if held >= tokens:
            return True
        for wanted in (max(tokens, held + held // 2), tokens):  # half as much again where there is room, else what is needed
            capacity = -(-wanted // GROWTH_TOKENS) * GROWTH_TOKENS
            more = (capacity - held) * self.bytes_per_token
            if self.used_bytes + more <= self.cap_bytes:
                self._grow(key, old, capacity)
                self.used_bytes += more
                return True
        return False

    def buffer(self, key: int) -> torch.Tensor:
        return self._buffers[key]

    def free(self, key: int) -> None:
        """Give back all of `key`; nothing happens if it holds nothing."""
        buffer = self._buffers.pop(key, None)
        if buffer is not None:
            self.used_bytes -= buffer.shape[3] * self.bytes_per_token

    def check(self) -> None:
        """The accounts equal what is held; an AssertionError otherwise. For idle moments and tests."""
        held = sum(buffer.shape[3] for buffer in self._buffers.values()) * self.bytes_per_token
        if held != self.used_bytes:
            raise AssertionError(f"KV accounts say {self.used_bytes} bytes, buffers hold {held}")

    def _grow(self, key: int, old: torch.Tensor | None, capacity: int) -> None:
        s = self._shape
        new = torch.empty(s.layers, 2, s.kv_heads, capacity, s.head_dim)
        if old is not None:
            new[:, :, :, : old.shape[3]] = old
        self._buffers[key] = new
