"""What completions ask for, in the neutral model: chat's meanings, and by name what only a continued prompt can have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from providers.dialects.openai_completions.parameters import decode_parameters
from providers.dialects.openai_completions.requests import decode_request
from providers.types import Parameters


def asked(**members: Any) -> Parameters:
    return decode_parameters(decode_request(json.dumps({"model": "m", "prompt": "p", **members}).encode()))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, Parameters()),
        ({"top_p": 0.5, "stop": "END", "user": "u"}, Parameters(top_p=0.5, stop=("END",), user="u")),
        ({"logprobs": 0}, Parameters(refused={"logprobs": Raw(b"true"), "top_logprobs": Raw(b"0")})),
        ({"echo": True}, Parameters()),
        (
            {"echo": True, "logprobs": 1},
            Parameters(refused={"logprobs": Raw(b"true"), "top_logprobs": Raw(b"1"), "echo": Raw(b"true")}),
        ),
        ({"best_of": 2, "n": 2}, Parameters()),
        ({"best_of": 3, "n": 2}, Parameters(refused={"best_of": Raw(b"3")})),
        ({"suffix": "x", "presence_penalty": 0, "seed": 3}, Parameters(refused={"suffix": Raw(b'"x"')}, dropped={"seed": Raw(b"3")})),
    ],
)
def test_parameters(members: dict[str, Any], expected: Parameters) -> None:
    assert asked(**members) == expected
