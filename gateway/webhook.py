"""Telling another program of something: one signed POST to the address of the settings. Knows nothing of what is told.

The signature is HMAC-SHA256 under the shared secret over the timestamp, a dot and the body, so that neither can be changed nor an old
message be sent again later. Redirects are not followed: a new address is the operator's to set.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable

from msgspec import Struct

from providers.errors import ProviderError
from providers.http import Endpoint, Upstream
from providers.types import Deadline

SIGNATURE, TIMESTAMP, DELIVERY = "x-tollway-signature", "x-tollway-timestamp", "x-tollway-delivery"


class _Limits(Struct, frozen=True):
    max_connections: int = 2
    max_answer_bytes: int = 64 * 1024
    keepalive_s: float = 5.0


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """The value of SIGNATURE: `v1=` and the hexadecimal HMAC-SHA256. timestamp: as in TIMESTAMP, Unix seconds."""
    return "v1=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """One per worker. `close` ends its connections."""

    def __init__(self, url: str, secret: bytes, timeout_s: float, clock: Callable[[], float] = time.time) -> None:
        self._url = url
        self._secret = secret
        self._deadline = Deadline(connect_s=timeout_s, first_byte_s=timeout_s, idle_s=timeout_s, total_s=timeout_s)
        self._clock = clock
        self._upstream = Upstream(_Limits())

    async def post(self, delivery: str, body: bytes) -> str:
        """Empty when the receiver took it (any 2xx), else what went wrong. delivery: the same for every try of one message."""
        timestamp = str(int(self._clock()))
        headers = {
            "content-type": "application/json",
            DELIVERY: delivery,
            TIMESTAMP: timestamp,
            SIGNATURE: sign(self._secret, timestamp, body),
        }
        try:
            answer = await self._upstream.open(Endpoint("POST", self._url, headers), body, self._deadline)
        except ProviderError as error:
            return error.message
        await answer.close()  # what it says besides its status does not matter
        return "" if 200 <= answer.status < 300 else f"status {answer.status}"

    async def close(self) -> None:
        await self._upstream.close()
