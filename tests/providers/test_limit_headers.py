"""What headers say of rate limits: every vendor's form, in values that were recorded or that its documentation gives."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.limit_headers import NAMES, UNSAID_S, Limits, told
from providers.retry_after import MAX_RETRY_AFTER_S
from tests.conformance.recordings import FOLDER, needed


def read(**headers: str) -> Limits | None:
    return told([(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()])


def in_s(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_openai() -> None:
    assert read(
        x_ratelimit_limit_requests="100",
        x_ratelimit_remaining_requests="98",
        x_ratelimit_reset_requests="14m24s",
        x_ratelimit_limit_tokens="150000",
        x_ratelimit_remaining_tokens="149977",
        x_ratelimit_reset_tokens="9ms",
    ) == Limits(requests=(98.0, 864.0), tokens=(149977.0, 0.009))


@pytest.mark.parametrize(
    ("reset", "seconds"), [("6m0s", 360.0), ("1s", 1.0), ("12ms", 0.012), ("2m59.56s", 179.56), ("17", 17.0), ("0", 0.0)]
)
def test_the_forms_of_a_reset(reset: str, seconds: float) -> None:
    assert read(x_ratelimit_remaining_tokens="5", x_ratelimit_reset_tokens=reset) == Limits(tokens=(5.0, pytest.approx(seconds)))


def test_the_reset_of_what_is_spent() -> None:
    assert Limits(requests=(14.0, 480.0), tokens=(0.0, 11.5), output=(0.0, 4.0)).reset_s == 11.5
    assert Limits(requests=(14.0, 480.0)).reset_s is None


def test_instants_as_a_reset() -> None:
    said = read(x_ratelimit_remaining="0", x_ratelimit_reset=str(int((time.time() + 30) * 1000)))  # OpenRouter: Unix milliseconds
    assert said is not None and said.requests is not None
    assert said.requests[0] == 0.0 and 0.0 < said.requests[1] <= 30.0
    said = read(x_ratelimit_remaining_requests="1", x_ratelimit_reset_requests=str(int(time.time()) + 30))  # DigitalOcean: Unix seconds
    assert said is not None and said.requests is not None and 0.0 < said.requests[1] <= 30.0


def test_anthropic_tells_prompt_and_answer_apart() -> None:
    said = read(
        anthropic_ratelimit_requests_limit="4000",
        anthropic_ratelimit_requests_remaining="3999",
        anthropic_ratelimit_requests_reset=in_s(20),
        anthropic_ratelimit_tokens_limit="2400000",
        anthropic_ratelimit_tokens_remaining="1999000",
        anthropic_ratelimit_tokens_reset=in_s(20),
        anthropic_ratelimit_input_tokens_limit="2000000",
        anthropic_ratelimit_input_tokens_remaining="1999000",
        anthropic_ratelimit_input_tokens_reset=in_s(20),
        anthropic_ratelimit_output_tokens_limit="400000",
        anthropic_ratelimit_output_tokens_remaining="0",
        anthropic_ratelimit_output_tokens_reset=in_s(40),
    )
    assert said is not None
    found = [said.requests, said.tokens, said.input, said.output]
    assert [one and one[0] for one in found] == [3999.0, 1999000.0, 1999000.0, 0.0]
    assert said.output is not None and said.input is not None
    assert 35.0 < said.output[1] <= 40.0 and 15.0 < said.input[1] <= 20.0


def test_azure_counts_seconds_or_milliseconds() -> None:
    """120 requests in 60 s are one in half a second, which it calls 500; with grok it calls 1.2 s 1."""
    said = read(
        x_ratelimit_limit_requests="120",
        x_ratelimit_remaining_requests="0",
        x_ratelimit_renewalperiod_requests="60",
        x_ratelimit_reset_requests="500",
    )
    assert said == Limits(requests=(0.0, 0.5))
    said = read(x_ratelimit_remaining_requests="49", x_ratelimit_renewalperiod_requests="60", x_ratelimit_reset_requests="1")
    assert said == Limits(requests=(49.0, 1.0))


def test_the_tightest_of_several_spans_counts() -> None:
    assert read(
        x_ratelimit_limit_req_minute="60",
        x_ratelimit_remaining_req_minute="51",
        x_ratelimit_limit_tokens_minute="500000",
        x_ratelimit_remaining_tokens_minute="499384",
        x_ratelimit_limit_tokens_month="1000000000",
        x_ratelimit_remaining_tokens_month="120",
        x_ratelimit_tokens_query_cost="128",
    ) == Limits(requests=(51.0, UNSAID_S), tokens=(120.0, UNSAID_S))
    cerebras = read(
        x_ratelimit_remaining_requests_day="1432",
        x_ratelimit_reset_requests_day="33011.382867",
        x_ratelimit_remaining_tokens_minute="0",
        x_ratelimit_reset_tokens_minute="11.382867",
    )
    assert cerebras == Limits(requests=(1432.0, MAX_RETRY_AFTER_S), tokens=(0.0, pytest.approx(11.382867)))


def test_relatives() -> None:
    assert read(x_ratelimit_remaining_tokens_prompt="7", x_ratelimit_remaining_tokens_generated="9") == Limits(
        input=(7.0, UNSAID_S), output=(9.0, UNSAID_S)
    )  # Fireworks
    assert read(x_ratelimit_limit="2", x_ratelimit_remaining="0", x_ratelimit_reset="1") == Limits(requests=(0.0, 1.0))  # Together
    assert read(ratelimitbysize_remaining="307190", ratelimitbysize_reset="46") == Limits(tokens=(307190.0, 46.0))  # Mistral, older
    assert read(x_ratelimit_remaining_requests="1800", x_ratelimit_limit_requests="1800") == Limits(requests=(1800.0, UNSAID_S))  # xAI


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "40", "RateLimit-Reset": "30"}, (40.0, 30.0)),
        ({"ratelimit-limit": "400", "ratelimit-remaining": "399", "ratelimit-reset": "19"}, (399.0, 19.0)),
        ({"RateLimit": "limit=100, remaining=50, reset=5"}, (50.0, 5.0)),
        ({"RateLimit": '"default";r=50;t=30', "RateLimit-Policy": '"default";q=100;w=60'}, (50.0, 30.0)),
        ({"RateLimit": '"minute";r=3;t=20, "day";r=900;t=3000'}, (3.0, 20.0)),
        ({"RateLimit": '"day"; r=0'}, (0.0, UNSAID_S)),
        ({"RateLimit": '"r=7";q=5'}, None),
        ({"RateLimit": "soon"}, None),
    ],
)
def test_the_internet_standards_forms(headers: dict[str, str], said: tuple[float, float] | None) -> None:
    assert read(**{name.replace("-", "_"): value for name, value in headers.items()}) == (None if said is None else Limits(requests=said))


@pytest.mark.parametrize("value", ["", "-1", "many", "nan", "inf", "1e999", "0x10", "٣".encode().decode("latin-1"), "1" * 9000])
def test_what_cannot_be_meant_says_nothing(value: str) -> None:
    assert read(x_ratelimit_remaining_requests=value, x_ratelimit_reset_requests="60") is None


def test_a_limit_of_nothing_is_no_limit() -> None:
    assert read(x_ratelimit_limit_requests="0", x_ratelimit_remaining_requests="0", x_ratelimit_reset_requests="60") is None


def test_headers_without_a_word_on_limits_make_nothing() -> None:
    assert told([]) is None
    assert read(content_type="text/event-stream", retry_after="30", x_request_id="r", x_ratelimit_key="gpt") is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(NAMES)), st.binary(max_size=40) | st.from_regex(rb"[0-9mshrt=;,\"Z:.T-]{0,30}", fullmatch=True))
    )
)
def test_hostile_values_are_bounded(headers: list[tuple[bytes, bytes]]) -> None:
    said = told(headers)
    for left in () if said is None else (said.requests, said.tokens, said.input, said.output):
        if left is not None:
            assert 0.0 <= left[0] < float("inf") and 0.0 <= left[1] < 1e19


@needed
def test_recorded_headers_are_understood() -> None:
    """Wherever a vendor says what is left of requests or tokens, something is read of it, never more than its limit."""
    seen = 0
    for path in sorted(Path(FOLDER).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            headers = json.loads(line)["response"]["headers"] if line else {}
            spoken = {name: value for name, value in headers.items() if "ratelimit" in name and "remaining" in name}
            if not spoken:
                continue
            seen += 1
            said = told([(name.encode(), str(value).encode()) for name, value in headers.items()])
            assert said is not None, headers
            least = min(float(value) for name, value in spoken.items() if "image" not in name)
            assert min(left[0] for left in (said.requests, said.tokens, said.input, said.output) if left is not None) == least
    assert seen >= 30
