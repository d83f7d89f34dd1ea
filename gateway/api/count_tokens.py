"""How many tokens a prompt has, without asking a model: the same key, limits, body and errors as the surface that would infer.

Counted here, so an estimate: no vendor is called, nothing is charged and no row is written.
"""

from __future__ import annotations

from typing import cast

import msgspec
from litestar.types import HTTPScope, Receive, Scope, Send

from gateway import errors
from gateway.api.endpoint import ClientLeft, Endpoint, Headers, Reply
from gateway.errors import GatewayError
from providers import tokens
from providers.dialects import DecodeError
from providers.types import Request


class CountTokens(Endpoint):
    """The counting route beside one surface."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(send, self.dialect)
        try:
            headers: Headers = dict(cast(HTTPScope, scope)["headers"])
            principal, body = await self._received(cast(HTTPScope, scope), headers, receive)
            request = self._decode(body)
            route = self.pipeline.route_of(principal, request)
            model = self.pipeline.catalog().backends[route.backends[0]].model if route.backends else ""
            counted = await tokens.count_input(request, 1.0, model)
        except DecodeError as error:
            self.telemetry.refusal(error.code)
            await reply.refuse(errors.InvalidRequest(error.message, code=error.code, param=error.param))
        except GatewayError as error:
            self.telemetry.refusal(error.code or error.type)
            await reply.refuse(error)
        except ClientLeft:
            return
        else:
            await reply.whole(msgspec.json.encode({"input_tokens": counted}), None)

    def _decode(self, body: bytes) -> Request:
        assert self.dialect.decode_count is not None  # only such a dialect has this route
        return self.dialect.decode_count(body)
