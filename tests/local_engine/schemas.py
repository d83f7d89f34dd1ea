"""Fifty JSON schemas of many shapes, as applications send them: what a constrained answer is held against."""

from __future__ import annotations

from typing import Any

INTEGER: dict[str, Any] = {"type": "integer"}
SHORT: dict[str, Any] = {"type": "string", "maxLength": 12}


def made(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def several(items: Any, least: int = 0, most: int = 4) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


_NODE = made(value=INTEGER, next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})
_TREE = made(name=SHORT, children=several({"$ref": "#/$defs/tree"}, 0, 1))
_SHAPE = {"anyOf": [made(kind={"const": "circle"}, r=INTEGER), made(kind={"const": "box"}, w=INTEGER, h=INTEGER)]}

SCHEMAS: list[dict[str, Any]] = [
    {"type": "boolean"},
    {"type": "null"},
    {"type": "integer", "minimum": 0, "maximum": 100},
    {"type": "integer", "minimum": -7, "exclusiveMaximum": 0},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 5000},
    {"enum": ["red", "green", "blue"]},
    {"enum": [1, 2, "three", None, True]},
    {"const": "yes"},
    {"const": {"a": [1, 2]}},
    SHORT,
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "string", "pattern": "^[A-Z]{2}[0-9]{3}$"},
    {"type": "string", "pattern": "^(ab|cd)+$", "maxLength": 8},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "time"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
    {"type": ["boolean", "string"], "maxLength": 4},
    several(INTEGER),
    several({"type": "boolean"}, 3, 3),
    several(SHORT, 1, 3),
    several(several(INTEGER, 0, 2), 0, 2),
    {"type": "array", "prefixItems": [{"type": "boolean"}, INTEGER], "items": False, "minItems": 2},
    {"type": "array", "prefixItems": [SHORT], "items": {"type": "null"}, "maxItems": 3},
    made(),
    made(a=INTEGER),
    made(name=SHORT, age={"type": "integer", "minimum": 0, "maximum": 150}),
    made([], a=INTEGER, b={"type": "boolean"}, c={"type": "null"}),
    made(["b"], a=INTEGER, b={"type": "boolean"}),
    made(tags=several({"enum": ["x", "y"]}), ok={"type": "boolean"}),
    made(at=made(lat={"type": "number", "minimum": -90, "maximum": 90}, lon={"type": "number", "minimum": -180, "maximum": 180})),
    made(a=made(b=made(c=made(d={"type": "boolean"})))),
    made(items=several(made(id=INTEGER, on={"type": "boolean"}), 1, 2)),
    made(choice={"anyOf": [INTEGER, {"type": "null"}, SHORT]}),
    {"anyOf": [INTEGER, {"type": "boolean"}]},
    {"anyOf": [made(a=INTEGER), made(b={"type": "boolean"})]},
    _SHAPE,
    made(shapes=several(_SHAPE, 1, 2)),
    {"$ref": "#/$defs/node", "$defs": {"node": _NODE}},
    {"$ref": "#/$defs/tree", "$defs": {"tree": _TREE}},
    {"allOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 8}]},
    {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2},
    {"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
    {"type": "object", "patternProperties": {"^x[0-9]$": {"type": "boolean"}}, "additionalProperties": False, "maxProperties": 2},
    made(**{"späte Größe": INTEGER, 'a "quoted" key': {"type": "boolean"}}),
    made(text={"enum": ["日本語", "line\nbreak", 'quo"te', "😀"]}),
    made(
        title=SHORT,
        status={"enum": ["open", "closed"]},
        score={"type": ["number", "null"], "minimum": 0, "maximum": 5},
        owner=made(["id"], id=INTEGER, mail={"type": "string", "pattern": "^[a-z]{1,5}@[a-z]{1,5}\\.org$"}),
        history=several(made(on={"type": "string", "format": "date"}, by=SHORT), 0, 2),
    ),
]
