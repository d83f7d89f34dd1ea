from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec
import pytest

from gateway.catalog import Price
from gateway.routing.choose import Knobs, choose, differences
from gateway.routing.decision import Asked, Hedge, decode, encode, explain
from gateway.routing.features import Features
from gateway.routing.filters import STATIC
from gateway.routing.state import BackendState
from providers.errors import ServerFailed

Make = Callable[..., BackendState]
MakeFeatures = Callable[..., Features]


def test_eight_candidates_fit_in_a_kilobyte_and_a_half(state: Make, features: MakeFeatures) -> None:
    states = []
    for i in range(8):
        price = Price(
            id=f"genai-prices:0.2.3:anthropic/claude-sonnet-4-5-20260101-{i}", input=15 * 10**9 + i, output=75 * 10**9, cache_read=10**10
        )
        s = state(f"production-backend-{i:02d}", price=price, labels={"residency": "eu", "retention": "none"}, ttft_prior_ms=99_000.0)
        for k in range(70):
            call = s.started(k * 0.1, features(input_tokens=100_000 + 1000 * k))
            call.first_token(k * 0.1 + 30 + k * (0.5 + 0.0137 * i))
        for _ in range(3):
            s.started(50.0, features()).failed(50.0, ServerFailed("500", answered=True))
        states.append(s)
    asked = features(
        labels=(("residency", "eu"), ("retention", "none")),
        input_tokens=180_000,
        expected_output_tokens=60_000,
        ttft_ms=1500.0,
        tpot_ms=60.0,
        deadline_ms=60_000.0,
    )
    _, decision = choose(asked, states, 51.0, 0.123456789, Knobs("sha256:0123456789abcdef", 0.8, 0.03))
    decision.hedge = Hedge(900_000, 901_234, "sent", 7, 1_400_000, 2)
    usual = (("temperature", 0.3), ("max_tokens", 1024), ("tools", 2), ("top_p", 0.95), ("tool_choice", "auto"), ("seed", 1234567890))
    decision.asked = Asked(usual, ("logit_bias", "messages.cache_control"), 512, "temperature")
    assert len(decision.candidates) == 8 and not any(c.reason in STATIC for c in decision.candidates)
    stored = encode(decision)
    assert len(stored) <= 1536 and decode(stored) == decision


def test_a_record_of_before_is_read(state: Make, features: MakeFeatures) -> None:
    _, decision = choose(features(), [state()], 0.0, 0.5, Knobs())
    decision.asked = Asked((("temperature", 0.3),), ("logit_bias",))
    text = explain(decision)
    assert "asked for: temperature 0.3" in text and "sent without: logit_bias" in text and differences(decision) == []
    before = msgspec.msgpack.encode(msgspec.to_builtins(decision)[:-1])
    assert decode(before).asked is None and decode(before).candidates == decision.candidates


def test_text_for_people(state: Make, features: MakeFeatures) -> None:
    states = [
        state("cheap"),
        state("dear", price=Price(id="config:dear", input=9 * 10**9, output=10**10)),
        state("small", dialect="gemini"),
    ]
    _, decision = choose(features(unknown=("x",), ttft_ms=1500.0), states, 0.0, 0.25, Knobs("cat-7"))
    text = explain(decision, differences(decision))
    assert "1. cheap: cost 0.001200000 USD [config:cheap: in 1000000000 out 2000000000" in text
    assert "2. dear: cost 0.010000000 USD" in text
    assert "- small" in text and "set aside: dialect" in text
    assert "ttft 1500 ms" in text and "catalog cat-7" in text
    assert text.endswith("recomputed: agrees")
    assert explain(decision, ["cheap cost: recorded 1, recomputed 2"]).endswith("recomputed: DIFFERS: cheap cost: recorded 1, recomputed 2")


def test_text_when_nobody_could_be_asked(state: Make, features: MakeFeatures) -> None:
    _, decision = choose(features(allowed=frozenset()), [state()], 0.0, 0.5, Knobs())
    assert "no backend could be asked" in explain(decision)


def test_bytes_that_are_no_record_are_refused() -> None:
    for bytes_ in (b"\x93\x01\x02\x03", b"", b"\x78\x01 nonsense", zlib.compress(b"\x93\x01\x02\x03")):
        with pytest.raises(msgspec.MsgspecError):
            decode(bytes_)
