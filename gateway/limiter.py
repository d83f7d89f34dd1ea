"""Rate limits of requests: what one reserves, what a refusal says, what the answer's headers tell.

A request counts as one and reserves its prompt (counted, each image a bounded number) and the most it may generate; its settlement puts
right what it used. An answer from the cache, or from another request's call, is a request without tokens. Knows no counting.
"""

from __future__ import annotations

import math
import time

from gateway.errors import GatewayError, InvalidRequest, RateLimited
from gateway.exchange import Exchange
from gateway.money.limits import NONE, Ask, LimitRow, Limits, Refused, Rule, Ticket, rules_of
from gateway.money.worst_case import Bound, output_tokens
from providers import tokens

SLOT_EXTRA_S = 60  # a slot outlives its request's deadline by this, where its process dies
WINDOW_S = 60


async def admit(limits: Limits, x: Exchange) -> None:
    """Count a request; RateLimited, or InvalidRequest where no waiting would help. Call it while `limits.active`."""
    rows = limits.rows(x.scope)
    if not rows:
        return
    least, reserved = await _tokens(x) if any(row.tpm is not None for row in rows) else (0, 0)
    left_s = 0.0 if x.deadline_at is None else max(0.0, x.deadline_at - time.monotonic())
    ask = Ask(id=x.id.hex, tokens=reserved, least=least, slot_s=math.ceil(left_s) + SLOT_EXTRA_S, rules=rules_of(rows))
    got = await limits.admit(ask)
    if isinstance(got, Refused):
        raise _refusal(got, next(row for row in rows if row.id == got.verdict.rule), x)
    x.ticket = got


def settle(limits: Limits, x: Exchange, ticket: Ticket) -> None:
    """Give back the slot and what was reserved but not used, over all attempts."""
    limits.settle(ticket, sum(end.usage.prompt_tokens + end.usage.completion_tokens for end in x.ends))


def headers(ticket: Ticket) -> list[tuple[bytes, bytes]]:
    """x-ratelimit-…: the smallest limit and the least that is left, over the key, its team and its organisation."""
    verdict = ticket.verdict
    return [
        (name.encode(), value.encode()) for name, value in _told(ticket.ask.rules, verdict.requests_left, verdict.tokens_left, WINDOW_S)
    ]


async def _tokens(x: Exchange) -> tuple[int, int]:
    """(what must fit, what is reserved): the prompt and the most output of any backend of the route. Without max_tokens all of the output
    may be less: then what is reserved is at most the limit itself."""
    request = x.request
    backends = [x.catalog.backends[name] for name in x.route.backends]
    prompt = await tokens.count_input(request, 1.0, backends[0].model if backends else "")
    output = max(
        (
            output_tokens(
                Bound(
                    input_tokens=0,
                    max_tokens=request.max_tokens,
                    n=request.n,
                    context_tokens=one.context_tokens,
                    max_output_tokens=one.max_output_tokens,
                )
            )
            for one in backends
        ),
        default=request.n,
    )
    return prompt + (request.n if request.max_tokens is None else output), prompt + output


def _refusal(refused: Refused, row: LimitRow, x: Exchange) -> GatewayError:
    verdict, rule = refused.verdict, refused.rule
    who = f"{row.scope_kind} '{_name(row, x)}'" + ("" if row.model is None else f" on {row.model}")
    limit = {"requests": rule.rpm, "tokens": rule.tpm, "parallel": rule.parallel}[verdict.kind]
    whole = {"requests": row.rpm, "tokens": row.tpm, "parallel": row.parallel}[verdict.kind]
    unit = "requests at once" if verdict.kind == "parallel" else f"{verdict.kind} per minute"
    share = "" if limit == whole else f", of which this process holds {limit}"
    told = f"The {who} may use {whole} {unit}{share}"
    if verdict.retry_after_ms == NONE:
        asked = f" and this request needs {refused.ask.tokens}; ask for less (max_tokens)" if verdict.kind == "tokens" else ""
        return InvalidRequest(f"{told}{asked}.", code="request_exceeds_limit")
    wait_s = verdict.retry_after_ms / 1000
    needs = f" This request may use {refused.ask.tokens}." if verdict.kind == "tokens" else ""
    return RateLimited(
        f"{told}.{needs} Try again in {math.ceil(wait_s)} s.",
        retry_after_s=wait_s,
        headers=tuple(_told(refused.ask.rules, verdict.requests_left, verdict.tokens_left, math.ceil(wait_s))),
    )


def _name(row: LimitRow, x: Exchange) -> str:
    who = x.principal
    return {"key": who.key_public, "team": who.team, "organisation": who.org}[row.scope_kind]


def _told(rules: tuple[Rule, ...], requests_left: int, tokens_left: int, reset_s: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    limits = (("requests", [rule.rpm for rule in rules], requests_left), ("tokens", [rule.tpm for rule in rules], tokens_left))
    for name, limited, left in limits:
        limit = min((one for one in limited if one >= 0), default=NONE)
        if limit != NONE:
            found.append((f"x-ratelimit-limit-{name}", str(limit)))
            found.append((f"x-ratelimit-remaining-{name}", str(left)))
            found.append((f"x-ratelimit-reset-{name}", f"{reset_s}s"))
    return found
