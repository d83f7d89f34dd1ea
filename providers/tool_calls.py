"""Tool calls as many open models write them: JSON between <tool_call> tags in the text (Hermes, Qwen, SmolLM2). Both ways: what a model is
told and bound to, and its text read back into events as it streams. Knows no model and no engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from providers.errors import Rejected
from providers.types import Call, Event, TextDelta, Tool, ToolCallDelta

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALL_CHARS = 256 * 1024  # of a call that is not read yet; a longer one is text
WHITESPACE = " ?"  # between JSON's marks: a weak model that may write any goes on writing it
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
INSTRUCTIONS = (
    "You may call these functions, given as JSON within <tools></tools>:\n<tools>\n{tools}\n</tools>\n"
    'For each call answer with its JSON within tags, and nothing else:\n<tool_call>\n{{"name": NAME, "arguments": OBJECT}}\n</tool_call>'
)


# ---- what the model is told and bound to -----------------------------------------------------------------------------------------------
def described(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as chat templates want them."""
    found = []
    for tool in tools:
        function = {"name": tool.name, "description": tool.description or "", "parameters": parameters_of(tool)}
        found.append({"type": "function", "function": function})
    return found


def instructions(tools: Sequence[Tool]) -> str:
    """For a model whose chat template has no place for tools."""
    return INSTRUCTIONS.format(tools="\n".join(json.dumps(one, ensure_ascii=False) for one in described(tools)))


def written(call: Call) -> str:
    """A call of an earlier turn, as the model would have written it."""
    return f'{OPEN}\n{{"name": {json.dumps(call.name, ensure_ascii=False)}, "arguments": {call.arguments.strip() or "{}"}}}\n{CLOSE}'


def parameters_of(tool: Tool) -> dict[str, Any]:
    """Its JSON schema, of an object. Raises Rejected."""
    schema = ANY_OBJECT if tool.parameters is None else msgspec.json.decode(tool.parameters)
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise Rejected(f"`tools`: the parameters of {tool.name} must be a JSON schema of an object", sent=False, param="tools")
    return {**schema, "type": "object"}


def guided(schema: Mapping[str, Any], strict: bool) -> dict[str, Any]:
    """A schema for the grammar. Not strict: keywords that the grammar has no form for are left out instead of refused."""
    return {**schema, "x-guidance": {"whitespace_pattern": WHITESPACE, "lenient": not strict}}


def grammar(tools: Sequence[Tool], *, forced: bool, several: bool, otherwise: Mapping[str, Any] | None = None) -> str:
    """The lark grammar of an answer that calls tools. forced: it does nothing else; several: more than one call. Not forced: it is text in
    which whatever begins as a call is one, or with `otherwise` JSON of that schema (`guided`) in place of text.
    """
    free = not forced and otherwise is None
    rules = ["%llguidance {}"]
    if free:
        rules += [f"start: {'call* TEXT' if several else 'call | TEXT'}", "TEXT: /(.|\\n)*/", f"head[lazy]: TEXT {json.dumps(OPEN)}"]
    else:
        calls = 'call ("\\n" call)*' if several else "call"
        rules += [f"start: {calls}" if otherwise is None else f"start: {calls} | %json {json.dumps(otherwise)}"]
    begin = "head" if free else json.dumps(OPEN)
    rules.append("call: " + " | ".join(f"call_{number}" for number in range(len(tools))))
    for number, tool in enumerate(tools):
        lead = json.dumps(f'\n{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": ')
        schema = json.dumps(guided(parameters_of(tool), tool.strict is True))
        rules.append(f"call_{number}: {begin} {lead} %json {schema} {json.dumps('}' + chr(10) + CLOSE)}")
    return "\n".join(rules) + "\n"


# ---- what the model wrote ---------------------------------------------------------------------------------------------------------------
class CallReader:
    """Text of one choice in pieces -> text and calls. A call's arguments stream as they come once its name is known; what looks like a
    call and is none stays text. White space around calls is dropped.
    """

    def __init__(self, choice: int = 0) -> None:
        self.calls = 0
        self._choice = choice
        self._held = ""  # outside: what may still become a tag; inside: the call so far
        self._inside = False
        self._depth: _Depth | None = None  # of arguments that stream
        self._space = ""  # that stood before the tag, for a call that is none
        self._said = False  # text has gone out

    def push(self, text: str) -> list[Event]:
        events: list[Event] = []
        self._held += text
        while self._step(events):
            pass
        return events

    @property
    def cut(self) -> bool:
        """The last call's arguments have no end: a limit or a stop string came first."""
        return self._depth is not None and not self._depth.closed

    def finish(self) -> list[Event]:
        """The end of the answer: a call without its closing tag, or with a part of it, counts when it is whole."""
        events: list[Event] = []
        if self._inside and self._depth is None:
            self._whole(self._held, self._space + OPEN + self._held, events)
        elif self._inside and CLOSE.startswith(self._held.lstrip().removeprefix("}").lstrip()):
            pass
        elif self._held.strip() or (self._held and self.calls == 0):
            self._say(self._held, events)
        self._held = ""
        return events

    def _step(self, events: list[Event]) -> bool:
        """As far as the next mark; False when more text is needed."""
        if not self._inside:
            return self._outside(events)
        if self._depth is not None:
            return self._argue(events)
        head = HEAD.match(self._held)
        if head is not None:
            self._begin(json.loads(head[1]), events)
            self._held = self._held[head.end() :]
            self._depth = _Depth()
            return True
        end = self._held.find(CLOSE)
        if end >= 0:
            inner, self._held = self._held[:end], self._held[end + len(CLOSE) :]
            self._inside = False
            self._whole(inner, self._space + OPEN + inner + CLOSE, events)
            return True
        if len(self._held) > MAX_CALL_CHARS:
            self._say(self._space + OPEN + self._held, events)
            self._held, self._inside = "", False
        return False

    def _outside(self, events: list[Event]) -> bool:
        at = self._held.find(OPEN)
        if at >= 0:
            before = self._held[:at].rstrip()
            self._space = self._held[len(before) : at]
            self._held = self._held[at + len(OPEN) :]
            if before:
                self._say(before, events)
            self._inside = True
            return True
        cut = len(self._held) - _overlap(self._held)
        shown = self._held[:cut].rstrip()  # white space before a call is no text
        if shown:
            self._say(shown, events)
            self._held = self._held[len(shown) :]
        return False

    def _argue(self, events: list[Event]) -> bool:
        """Arguments, to the end of their object; behind it the call's closing tag."""
        assert self._depth is not None
        if not self._depth.closed:
            size = self._depth.take(self._held)
            if size:
                events.append(ToolCallDelta(self.calls - 1, self._held[:size], choice=self._choice))
                self._held = self._held[size:]
        if not self._depth.closed:
            return False
        end = self._held.find(CLOSE)
        if end < 0:
            return False
        self._held, self._inside, self._depth = self._held[end + len(CLOSE) :], False, None
        return True

    def _whole(self, inner: str, raw: str, events: list[Event]) -> None:
        """A call, or a list of calls, that is there at once."""
        try:
            found = json.loads(inner)
        except ValueError:
            found = None
        calls = found if isinstance(found, list) else [found]
        if not calls or not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in calls):
            self._say(raw, events)
            return
        for one in calls:
            arguments = one.get("arguments", one.get("parameters", {}))
            said = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            self._begin(one["name"], events, said)

    def _begin(self, name: str, events: list[Event], arguments: str = "") -> None:
        events.append(ToolCallDelta(self.calls, arguments, f"call_{uuid4().hex[:24]}", name, self._choice))
        self.calls += 1

    def _say(self, text: str, events: list[Event]) -> None:
        if self.calls and not self._said:
            text = text.lstrip()
        self._said = True
        events.append(TextDelta(text, self._choice))


class _Depth:
    """How deep in a JSON object a text is that comes in pieces."""

    def __init__(self) -> None:
        self.closed = False
        self._depth = 0
        self._quoted = self._escaped = False

    def take(self, text: str) -> int:
        """How many characters of `text` belong to the object."""
        for at, char in enumerate(text):
            if self._quoted:
                self._quoted = self._escaped or char != '"'
                self._escaped = char == "\\" and not self._escaped
            elif char == '"':
                self._quoted = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self.closed = True
                    return at + 1
        return len(text)


def _overlap(text: str) -> int:
    """Length of the longest end of the text that begins a tag."""
    return next((size for size in range(min(len(OPEN) - 1, len(text)), 0, -1) if OPEN.startswith(text[-size:])), 0)
