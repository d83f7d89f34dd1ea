"""What a request asked for, in words: a sentence for each thing that the response cache may say."""

from __future__ import annotations

import pytest

from gateway.cache import response
from gateway.routing.decision import Asked
from gateway.views.asked import CACHE_WORDS, cache_words, document, parameters

ROW = {"outcome": "completed", "saved": 0}


def test_parameters_read_as_one_says_them() -> None:
    asked = Asked((("temperature", 0.3), ("max_tokens", 1024), ("tools", 2), ("n", 1), ("stop", 1), ("echo", True)), ("logit_bias",), 99)
    assert parameters(asked) == [
        *("temperature 0.3", "max_tokens 1024", "2 tools", "1 answer", "1 stop sequence", "echo true", "max_tokens lowered to 99"),
    ]
    assert document(asked) == {
        "parameters": {"temperature": 0.3, "max_tokens": 1024, "tools": 2, "n": 1, "stop": 1, "echo": True},
        "dropped": ["logit_bias"],
        "max_tokens_lowered_to": 99,
        "cache": None,
    }
    assert document(None) is None and parameters(Asked()) == []
    assert parameters(Asked((("stop", "set"), ("reasoning_effort", "low")))) == ["stop set", "reasoning_effort low"]


def test_every_word_of_the_cache_has_a_sentence() -> None:
    of_policy = {response.OFF, response.ROUTE, response.TEMPERATURE, response.NO_STORE, response.TOO_LARGE, response.FRESH, response.ABSENT}
    assert set(CACHE_WORDS) == {*of_policy, response.PARTIAL, *response.STORED.values()}


@pytest.mark.parametrize(
    ("asked", "row", "words"),
    [
        (None, {"outcome": "cached", "saved": 7}, "hit: a stored answer"),
        (None, {"outcome": "cached", "saved": 0}, "hit: a stored answer, or that of the same request while it ran"),
        (None, ROW, "not kept"),
        (Asked(), ROW, "not asked"),
        (Asked(cache="temperature"), ROW, "bypassed: the temperature was not 0"),
        (Asked(cache="stored"), ROW, "miss: no such answer was stored; this one is now"),
    ],
)
def test_what_the_cache_said(asked: Asked | None, row: dict[str, object], words: str) -> None:
    assert cache_words(asked, row) == words
