"""One body that is taken for each call of /admin that has one, and what can be wrong with any."""

from __future__ import annotations

from typing import Any

TEAM, EMAIL = "search", "anna@example.org"
PRICE = {"input": "1", "output": "2"}
RATES = ("cache_read", "cache_write_5m", "cache_write_1h", "reasoning", "input_audio", "output_audio", "input_image", "output_image")
MORE_OF_A_PRICE = dict.fromkeys(RATES, "1") | {"per_request": "1", "batch_discount": "0.5", "tiers": [], "starts": "2026-11-01"}
KEY: dict[str, Any] = {
    "name": "ci",
    "models": ["assistant"],
    "expires": "30d",
    "tag": "web",
    "labels": {"residency": "eu"},
    "member": EMAIL,
}
SCOPE = {"scope_kind": "team", "scope": TEAM, "model": "assistant"}
OBJECTIVES = {"ttft_ms": 500, "tpot_ms": 50, "deadline_ms": 9000, "labels": {"residency": "eu"}, "priority": "low"}
VALID: dict[str, dict[str, Any]] = {  # fields that may be left out are there too, so that a wrong value of each is tried
    "POST /admin/teams": {"name": "fresh", "org": "acme", "labels": {"residency": "eu"}},
    "PUT /admin/teams/{name}/labels": {"labels": {"residency": "eu"}},
    "POST /admin/keys": {"team": TEAM, "scopes": ["inference"], **KEY},
    "PATCH /admin/keys/{public}": KEY,
    "POST /admin/keys/{public}/rotate": {"overlap": "1h"},
    "POST /admin/members": {"email": "bert@example.org", "name": "Bert", "role": "", "teams": {TEAM: "member"}},
    "PUT /admin/members/{email}/role": {"role": ""},
    "PUT /admin/members/{email}/teams/{team}": {"role": "member"},
    "PUT /admin/budgets": {**SCOPE, "usd": "5", "per": "month", "timezone": "UTC", "alerts": [80]},
    "PUT /admin/budgets/{budget_id}/override": {"usd": "7", "until": "1d"},
    "POST /admin/ledger/unknowns/{request_id}": {"usd": "0.0123"},
    "PUT /admin/limits": {**SCOPE, "rpm": 5, "tpm": 5, "parallel": 5},
    "PUT /admin/prices": {"vendor": "openai", "model": "m", **PRICE, **MORE_OF_A_PRICE},
    "PUT /admin/backends/{name}": {"vendor": "scripted", "model": "m", "price": PRICE},
    "POST /admin/backends/{name}/drain": {"note": "a hand is needed", "empty_routes": True},
    "PUT /admin/routes/{name}": {"backends": ["near"]},
    "POST /admin/route": {"route": "assistant", "prompt": "hello", "max_tokens": 5, **OBJECTIVES},
}
UNREADABLE = (
    *(b"", b"null", b"[]", b'"x"', b"3", b"{", b"NaN", b"\xff\xfe", b"{}{}", b'{"a": "\\ud800"}'),
    *(b"[" * 100_000, b'{"a":' * 50_000),
)
OF_TYPES: dict[str, Any] = {
    "string": "text",
    "integer": 7,
    "number": 7.5,
    "boolean": True,
    "null": None,
    "array": [[]],
    "object": {"a": []},
}
WORDS = ("a\x00b", "a\nb", "\u202egnp.exe", "x" * 100_000, "<script>alert(1)</script>", "'; DROP TABLE teams; --", "../../x", "", "é" * 70)
AMOUNTS = ("1e999999", "1e99999", "-1", "NaN", "0.00000000001", "9" * 40)
NUMBERS = (-1, 1 << 63, 10**30, -(1 << 63))
IDS = ("0", "-1", "1.5", str(1 << 63), str(1 << 64), "9" * 5000, "x" * 5000, "%00", "%ff", "..%2f..", "%F0%9F%92%A5", "a%0ab", "'")
