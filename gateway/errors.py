"""Everything a client can be told. An error says what happened and what to do; the surface puts it in its own shape.

GatewayError
├── InvalidRequest      400  malformed, wrong type, unknown or steering field, unsupported value
├── InvalidKey          401  no key, wrong key, revoked or expired key
├── OverBudget          402  (configurable to 429) waiting does not help before the reset
├── Forbidden           403  the key may not use this route or call
├── NotFound            404  unknown route, unknown request id
├── MethodNotAllowed    405
├── ClientGone          499  the client left; never sent, kept for the ledger
├── BodyTooLarge        413
├── UnsupportedMedia    415  a content encoding or type we do not read
├── RateLimited         429  a limit of ours or of every backend
├── Internal            500  our own fault; the log has the trace under the request id
├── UpstreamFailed      502  every backend tried failed (the status of the last one where it says more)
├── NotReady            503  draining, no leasable money, journal full, database away, no backend ready
└── DeadlinePassed      504
"""

from __future__ import annotations

MESSAGE_MOST = 2000  # characters: what was sent may be a megabyte, and is not sent back


class GatewayError(Exception):
    """status: HTTP. type, code, param: as in OpenAI's error object. retry: False = tell official clients not to try again."""

    status = 500
    type = "server_error"
    code: str | None = None
    retry: bool | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        status: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message if len(message) <= MESSAGE_MOST else f"{message[: MESSAGE_MOST - 1]}…"
        self.param = param
        self.retry_after_s = retry_after_s
        self.headers = headers
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status


class InvalidRequest(GatewayError):
    status, type, retry = 400, "invalid_request_error", False


class InvalidKey(GatewayError):
    status, type, code, retry = 401, "authentication_error", "invalid_api_key", False


class OverBudget(GatewayError):
    status, type, code, retry = 402, "insufficient_quota", "insufficient_quota", False


class Forbidden(GatewayError):
    status, type, code, retry = 403, "permission_error", "permission_denied", False


class NotFound(GatewayError):
    status, type, code, retry = 404, "invalid_request_error", "not_found", False


class MethodNotAllowed(GatewayError):
    status, type, code, retry = 405, "invalid_request_error", "method_not_allowed", False


class ClientGone(GatewayError):
    status, type, code = 499, "client_closed_request", "client_closed_request"


class BodyTooLarge(GatewayError):
    status, type, code, retry = 413, "invalid_request_error", "body_too_large", False


class UnsupportedMedia(GatewayError):
    status, type, code, retry = 415, "invalid_request_error", "unsupported_media", False


class RateLimited(GatewayError):
    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class Internal(GatewayError):
    status, type, code = 500, "server_error", "internal_error"


class UpstreamFailed(GatewayError):
    status, type, code = 502, "upstream_error", "upstream_error"


class NotReady(GatewayError):
    status, type, code = 503, "service_unavailable", "not_ready"


class DeadlinePassed(GatewayError):
    status, type, code = 504, "timeout_error", "deadline_passed"
