"""The meter of an attempt: when more output has come than was reserved for."""

from __future__ import annotations

import pytest

from gateway.exchange import Meter
from providers import tokens
from providers.types import Frame, TextDelta

MODEL = "m"


@pytest.fixture(autouse=True)
def loaded() -> None:
    tokens._load("o200k_base")


def fed(text: str, most: int, factor: float) -> int:
    """After how many events of this text it is too much; 0 = never within 5000."""
    meter = Meter()
    for number in range(1, 5001):
        meter.feed(Frame(events=[TextDelta(text)]), 0.0)
        if meter.beyond(most, factor, MODEL):
            assert meter.beyond(most, factor, MODEL), "asked again, the same"
            return number
    return 0


@pytest.mark.parametrize(
    ("text", "most", "factor", "cut"),
    [
        (" x", 50, 1.5, 51),  # an event is a token at least: the first one beyond
        (" internationalisation", 50, 4.0, 51),  # however little our own count may be trusted
        (" x" * 10, 100, 1.0, 11),  # several tokens an event: by our count
        (" x" * 10, 100, 1.5, 16),  # which a foreign tokenizer may undercut
        ("", 50, 1.0, 0),
    ],
)
def test_it_is_too_much_at_the_first_token_beyond(text: str, most: int, factor: float, cut: int) -> None:
    assert fed(text, most, factor) == cut


def test_a_long_text_is_not_counted_at_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    real = tokens.count_output
    monkeypatch.setattr("gateway.exchange.count_output", lambda *told: counted.append(1) or real(*told))
    assert fed(" four words an event", 4000, 1.0) in range(1000, 1070)
    assert len(counted) < 20
