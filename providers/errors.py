"""What can go wrong with a backend, by kind, so that one table can decide what to do about it.

ProviderError
├── Unreachable        nothing was sent: refused, unknown host, connect timeout, pool full
├── TimedOut           first byte, idle or total limit passed after the request was written
├── Cut                the connection or stream ended before its end
├── BadAnswer          an answer we cannot read
├── RateLimited        429 for rate
├── QuotaExhausted     the account upstream is out of money
├── ServerFailed       500, 502, 504, 529 …
├── Unavailable        503: overloaded, loading, draining
├── Unauthorized       our credential was refused (the operator's fault, not the client's)
├── Rejected           400-class: the request is at fault
│   ├── ContextTooLong
│   ├── ContentFiltered
│   └── Unsupported    this backend cannot carry the request (found before or after sending)
"""

from __future__ import annotations

from providers.limit_headers import Limits


class ProviderError(Exception):
    """status: the HTTP status a client should see. sent: the request was written, tokens may have been spent.

    answered: the backend answered with an HTTP error, so the attempt costs nothing. retry_after_s: seconds, None when not said.
    """

    status = 502
    retryable = True  # another try, here or elsewhere, may help
    elsewhere = True  # a different backend may answer
    unhealthy = True  # counts against the backend's health
    code = "upstream_error"
    limits: Limits | None = None  # what the answer's headers say is left of the vendor's rate limits

    def __init__(  # noqa: PLR0913 - named values of a record
        self,
        message: str,
        *,
        status: int | None = None,
        sent: bool = True,
        answered: bool = False,
        retry_after_s: float | None = None,
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent
        self.answered = answered
        self.retry_after_s = retry_after_s
        self.param = param
        if status is not None:
            self.status = status
        if code is not None:
            self.code = code


class Unreachable(ProviderError):
    code = "upstream_unreachable"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message, sent=False, retry_after_s=retry_after_s)


class TimedOut(ProviderError):
    status = 504
    code = "upstream_timeout"


class Cut(ProviderError):
    code = "upstream_cut"


class BadAnswer(ProviderError):
    code = "upstream_bad_answer"


class RateLimited(ProviderError):
    status = 429
    unhealthy = False
    code = "rate_limit_exceeded"


class QuotaExhausted(ProviderError):
    status = 429
    retryable = False
    unhealthy = False
    code = "insufficient_quota"


class ServerFailed(ProviderError):
    code = "upstream_error"


class Unavailable(ProviderError):
    status = 503
    code = "upstream_unavailable"


class Unauthorized(ProviderError):
    status = 502
    retryable = False
    code = "upstream_unauthorized"


class Rejected(ProviderError):
    status = 400
    retryable = False
    elsewhere = False
    unhealthy = False
    code = "invalid_request_error"


class ContextTooLong(Rejected):
    elsewhere = True  # another backend may have a longer context
    code = "context_length_exceeded"


class ContentFiltered(Rejected):
    code = "content_filter"


class Unsupported(Rejected):
    elsewhere = True
    code = "unsupported_value"
