"""A model of random weights is the hardest writer there is: what it writes under a grammar is valid, or the grammar was not kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import BadRequest
from local_engine.grammar import KEPT, Grammars
from local_engine.loader import load
from local_engine.tokenizer import Tokenizer
from local_engine.wire import MAX_GRAMMAR_BYTES, Grammar, Params
from tests.local_engine.schemas import SCHEMAS

PROMPT = [5, 6, 7]
TIME = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"
RFC3339 = {"time": re.compile(TIME), "date-time": re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]" + TIME)}


class Writer:
    """An engine with its grammars, driven by hand."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer(folder)
        self.engine = Engine(load(folder), EngineConfig(model_dir=str(folder), threads=1, max_sequences=64).checked())
        self.grammars = Grammars(self.tokenizer.to_json(), self.engine.vocab, self.engine.eos_ids)
        self.keys = 0

    def add(self, kind: str, source: str, **params: Any) -> int:
        self.keys += 1
        grammar = Grammar(kind, source)
        params = {"max_tokens": 400, "seed": self.keys, **params}
        self.engine.add(self.keys, PROMPT, Params(grammar=grammar, **params), matcher=self.grammars.matcher(grammar))
        return self.keys

    def write(self) -> dict[int, tuple[str, str]]:
        """Text and reason of every open request."""
        ids: dict[int, list[int]] = {}
        reasons: dict[int, str] = {}
        while self.engine.busy:
            for output in self.engine.step():
                ids.setdefault(output.id, []).append(output.token)
                if output.reason is not None:
                    reasons[output.id] = output.reason
        return {key: (self.tokenizer.decode(ids[key]), reasons[key]) for key in ids}

    def one(self, kind: str, source: str, **params: Any) -> tuple[str, str]:
        key = self.add(kind, source, **params)
        return self.write()[key]


@pytest.fixture(scope="module")
def writer(tiny: Path) -> Writer:
    return Writer(tiny)


def test_fifty_schemas_are_kept_in_one_batch(writer: Writer) -> None:
    assert len(SCHEMAS) == 50
    quote = dict.fromkeys(writer.tokenizer.encode('"'), 3.0)  # else a text of random tokens hardly ends
    keys = [writer.add("json_schema", json.dumps(schema), logit_bias=quote) for schema in SCHEMAS]
    written = writer.write()
    for key, schema in zip(keys, SCHEMAS, strict=True):
        text, reason = written[key]
        assert reason == "stop", (schema, text)
        jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        if schema.get("format") in ("time", "date-time"):  # which it does not look at
            assert RFC3339[schema["format"]].fullmatch(json.loads(text)), text
    assert len({text for text, _ in written.values()}) > 40


def test_what_comes_out_of_json_mode_is_an_object(writer: Writer) -> None:
    keys = [writer.add("json_schema", '{"type":"object"}', logit_bias=dict.fromkeys(writer.tokenizer.encode('"}'), 3.0)) for _ in range(6)]
    written = writer.write()
    ended = [written[key][0] for key in keys if written[key][1] == "stop"]
    assert ended and all(isinstance(json.loads(text), dict) for text in ended)


@pytest.mark.parametrize("pattern", [r"[0-9]{3}-[0-9]{4}", r"(yes|no|may be)", r"[a-zé]{2,6}@[^x]{2,6}\.org", r"日本(語)?"])
def test_regular_expressions_are_kept(writer: Writer, pattern: str) -> None:
    keys = [writer.add("regex", pattern) for _ in range(5)]
    written = writer.write()
    for text, reason in map(written.__getitem__, keys):
        assert reason == "stop"
        assert re.fullmatch(pattern, text), text


def test_lark_grammars_are_kept(writer: Writer) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"], "additionalProperties": False}
    text, reason = writer.one("lark", f'start: "<a>" %json {json.dumps(schema | {"x-guidance": {"whitespace_pattern": " ?"}})} "</a>"')
    assert reason == "stop"
    assert re.fullmatch(r'<a>\{ ?"x" ?: ?(true|false) ?\}</a>', text)


def test_temperature_zero_and_penalties_and_bias_stay_within_the_grammar(writer: Writer) -> None:
    schema = json.dumps({"type": "array", "items": {"type": "integer", "maximum": 99, "minimum": 0}, "minItems": 4, "maxItems": 4})
    for params in ({"temperature": 0}, {"temperature": 3.0, "frequency_penalty": 2.0}, {"logit_bias": {9: 100.0}}, {"min_p": 0.5}):
        text, reason = writer.one("json_schema", schema, **params)
        assert reason == "stop" and len(json.loads(text)) == 4


def test_the_end_is_the_grammar_s_whatever_was_asked_about_ends(writer: Writer) -> None:
    for params in ({"min_tokens": 50}, {"ignore_eos": True}, {"min_tokens": 50, "temperature": 0}):
        assert writer.one("json_schema", '{"enum":[true]}', **params) == ("true", "stop")
    text, _ = writer.one("regex", "a*", min_tokens=20, ignore_eos=True, max_tokens=30)
    assert len(text) >= 20 and set(text) == {"a"}


def test_a_grammar_in_a_batch_leaves_its_neighbours_as_they_are(writer: Writer) -> None:
    def plain() -> list[int]:
        writer.keys += 1
        writer.engine.add(writer.keys, PROMPT, Params(temperature=0, max_tokens=12, ignore_eos=True))
        return [output.token for output in _until_idle(writer) if output.id == writer.keys]

    alone = plain()
    for _ in range(3):
        writer.add("json_schema", json.dumps(SCHEMAS[-1]))
    assert plain() == alone


def _until_idle(writer: Writer) -> list[Any]:
    found: list[Any] = []
    while writer.engine.busy:
        found += writer.engine.step()
    return found


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("json_schema", "{"),
        ("json_schema", '{"type":"objekt"}'),
        ("json_schema", '{"$ref":"#/nowhere"}'),
        ("json_schema", '{"type":"string","pattern":"("}'),
        ("json_schema", '{"not":{}}'),
        ("json_schema", "[]"),
        ("regex", "("),
        ("lark", "start: nothing"),
        ("wish", "x"),
        ("regex", "a" * (MAX_GRAMMAR_BYTES + 1)),
    ],
)
def test_what_cannot_be_used_is_refused_by_the_client_s_name(writer: Writer, kind: str, source: str) -> None:
    with pytest.raises(BadRequest, match="tools") as refused:
        writer.grammars.matcher(Grammar(kind, source, "tools"))
    assert refused.value.param == "tools"


def test_compiled_grammars_are_kept_and_bounded(writer: Writer) -> None:
    grammars = Grammars(writer.tokenizer.to_json(), writer.engine.vocab, writer.engine.eos_ids)
    for number in range(KEPT + 5):
        grammars.matcher(Grammar("regex", f"a{{{number + 1}}}"))
    assert len(grammars._compiled) == KEPT
    first, second = (grammars.matcher(Grammar("regex", "ab")) for _ in range(2))
    token = writer.tokenizer.encode("a")[0]
    assert first.take(token) and not second.forbidden()[token]  # each has its own place in it
    assert first.forbidden()[token]
