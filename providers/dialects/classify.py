"""What a backend's error is, by its status and words: one table of wordings for all dialects.

A refused credential is told in our own words, since vendors repeat keys in theirs; other texts are kept, bounded and with anything
that is or looks like a key taken out; codes and names of parameters are kept where they look like such. Knows no wire format
(error_bodies.py reads them).
"""

from __future__ import annotations

import re

from msgspec import Struct

from providers import signers
from providers.errors import (
    ContentFiltered,
    ContextTooLong,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    Rejected,
    ServerFailed,
    TimedOut,
    Unauthorized,
    Unavailable,
    Unsupported,
)

MAX_MESSAGE = 500  # characters of a vendor's text that go on
MAX_NAME = 64  # of a code
MAX_PARAM = 128  # of a parameter's path

_CONTEXT_CODES = {"context_length_exceeded", "exceed_context_size_error", "too_many_prompt_tokens", "too_many_tokens"}
_CONTEXT = re.compile(
    r"context (length|size|window)|context_length|(prompt|input|request|messages) (is )?too (long|large)|too many (input |prompt )?tokens"
    r"|(exceeds?|exceeding|longer than|larger than|over) (the )?(model'?s? )?(max\w*|limit)[^.]{0,60}tokens|max_model_len"
    r"|input token count|reduce the length of (the|your|either)|maximum (prompt|input) length",
    re.IGNORECASE,
)
_FILTER_CODES = {
    "content_filter",
    "content_policy_violation",
    "responsibleaipolicyviolation",
    "moderation_blocked",
    "data_inspection_failed",
}
_FILTER = re.compile(r"content (management )?polic|content[ _]filter|flagged (by|for|as)|requires moderation|safety system", re.IGNORECASE)
_KEY_CODES = {"invalid_api_key", "api_key_invalid", "authentication_error", "invalid_authentication", "permission_error"}
_KEY = re.compile(
    r"(incorrect|invalid|wrong|missing|expired)[^.]{0,20}(api[ _-]?key|credential|auth|token)|api[ _]key (not valid|not found|expired)",
    re.IGNORECASE,
)
_QUOTA_CODES = {
    "insufficient_quota",
    "billing_hard_limit_reached",
    "insufficient_credits",
    "insufficient_balance",
    "billing_not_active",
    "billing_error",
}
_QUOTA = re.compile(
    r"insufficient (quota|credit|balance|funds)|billing|out of credits|credit balance|more credits|payment required", re.IGNORECASE
)
_EMPTY_ACCOUNT = "credit balance"  # said with status 400 by one vendor
_CLIENTS_OWN = re.compile(
    r"--jinja|mmproj|batch size|does not support|not supported|unsupported|cannot make GET request|failed to parse", re.IGNORECASE
)
_UNSUPPORTED_CODES = {"unsupported_value", "unsupported_parameter", "not_supported_error", "unsupported_model", "model_not_supported"}
_SECRET = re.compile(
    r"(?i)\b(?:sk|pk|gsk|xai|hf|tw|key|rk|r8|nvapi|pplx)[-_][A-Za-z0-9*_.\-]{6,}|\bAIza[\w\-]{10,}|\bbearer\s+\S+"
    r"|((?:api[-_ ]?key|token|secret|key)\s*[=:]\s*)[^\s&,;\"']+"
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*")
_PARAM = re.compile(r"[A-Za-z0-9_$][\w.$\[\]'\"-]*", re.ASCII)

_UNAUTHORIZED = "The backend refused the gateway's credential. Whoever operates the gateway must check the backend's api_key."


class Stated(Struct):
    """What a body says, whatever its shape."""

    message: str = ""
    type: str = ""
    code: str = ""
    param: str | None = None
    status: int | None = None
    retry_s: float | None = None

    def named(self, codes: set[str]) -> bool:
        return self.code.lower() in codes or self.type.lower() in codes


def classify(status: int, said: Stated) -> ProviderError:
    """One kind per error. The order matters: what the words prove goes before what the status suggests."""
    text = f"{said.message} {said.type} {said.code}"
    if status == 401 or (status in (400, 403) and (said.named(_KEY_CODES) or _KEY.search(text))):
        return Unauthorized(_UNAUTHORIZED)
    if said.named(_CONTEXT_CODES) or (status in (400, 413, 422, 500) and _CONTEXT.search(text) and not said.named({"rate_limit_exceeded"})):
        return ContextTooLong(_told(said, "The prompt is longer than the backend's context."))
    if said.named(_FILTER_CODES) or (status in (400, 403) and _FILTER.search(text)):
        return ContentFiltered(_told(said, "The backend's content filter refused the request."))
    empty = status == 400 and _EMPTY_ACCOUNT in said.message
    if status == 402 or empty or said.named(_QUOTA_CODES) or (status in (403, 429) and _QUOTA.search(text) and said.retry_s is None):
        return QuotaExhausted("The backend's account is out of quota. Whoever operates the gateway must look at its billing.")
    if status == 403:
        return Unauthorized(_UNAUTHORIZED)
    return _by_status(status, said)


def _by_status(status: int, said: Stated) -> ProviderError:
    if status == 429 or said.named({"rate_limit_exceeded", "rate_limit_error"}):
        return RateLimited(_told(said, "The backend's rate limit is reached."))
    if status == 408:
        return TimedOut(_told(said, "The backend timed out."))
    if status == 404:
        return Unsupported(
            _told(said, "The backend does not know the model or the path."),
            status=404,
            code=_code(said) or "model_not_found",
            param=_param(said),
        )
    if status in (405, 413, 501) or said.named(_UNSUPPORTED_CODES):
        return Unsupported(
            _told(said, "The backend cannot carry this request."), status=400 if status > 499 else status, param=_param(said)
        )
    if status == 503 or said.named({"overloaded_error"}):
        return Unavailable(_told(said, "The backend is overloaded or not ready."))
    if status >= 500:
        if _CLIENTS_OWN.search(said.message):  # some servers answer 500 for a request that they cannot carry
            return Unsupported(_told(said, ""), status=400, param=_param(said))
        return ServerFailed(_told(said, f"The backend failed with status {status}."), status=status)
    return Rejected(
        _told(said, f"The backend refused the request with status {status}."), status=status, code=_code(said), param=_param(said)
    )


def _told(said: Stated, default: str) -> str:
    """The vendor's words without secrets, bounded; ours where there are none."""
    return _redacted(said.message.strip())[:MAX_MESSAGE] or default


def _redacted(text: str) -> str:
    for secret in signers.secrets():
        text = text.replace(secret, "[redacted]")
    return _SECRET.sub(lambda match: (match.group(1) or "") + "[redacted]", text)


def _code(said: Stated) -> str | None:
    """The vendor's code, where it is one: it becomes a metric's label and a column of the ledger."""
    code = said.code
    return code if len(code) <= MAX_NAME and _NAME.fullmatch(code) and _redacted(code) == code else None


def _param(said: Stated) -> str | None:
    param = said.param
    if param is None or len(param) > MAX_PARAM or _PARAM.fullmatch(param) is None:
        return None
    return param if _redacted(param) == param else None
