"""A model folder's chat template: messages -> the text that the model continues. Sandboxed: a template is data of the folder.

Knows Hugging Face's conventions for templates, no engine and no wire format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.meta
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment
from msgspec import Struct

from providers.control_tokens import ControlTokens, unmarked
from providers.dialects.functions import arguments_of
from providers.errors import Unsupported
from providers.tool_calls import described, instructions, written
from providers.types import Message, RedactedThinking, Refusal, Text, Thinking, Tool


class TemplateError(Exception):
    """The folder has no template that can be used; the message says what is wrong."""


class Defaults(Struct, frozen=True, kw_only=True):
    """The sampling that the model's authors recommend (generation_config.json), for requests that do not say."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None


class Prompt(Struct, frozen=True):
    """Text for the model. breaks: offsets that no control token may span, since a client's own text looks like one there."""

    text: str
    breaks: tuple[int, ...] = ()


class ChatTemplate:
    """Loaded once per folder. Raises TemplateError."""

    def __init__(self, folder: Path) -> None:
        config = _read(folder / "tokenizer_config.json")
        self._tokens = {name: _token(config.get(name)) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        source = _source(folder, config)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
            self.takes_tools = "tools" in jinja2.meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template of {folder} cannot be read: {error}") from None
        try:
            self._controls = ControlTokens.of(folder)
        except msgspec.MsgspecError as error:
            raise TemplateError(f"{folder / 'tokenizer.json'} cannot be read: {error}") from None
        generation = folder / "generation_config.json"
        self.defaults = _defaults(_read(generation)) if generation.exists() else Defaults()

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Prompt:
        """The prompt, with the opening of the answer. Tools stand where the template has a place for them, else in the system message.
        Control tokens are the template's alone: in what the messages and tools say they are text.

        Unsupported for what this model cannot take, in the template's own words.
        """
        found: list[dict[str, Any]]
        if self.takes_tools:
            found = plain(messages, native=True)
        else:
            found = plain([Message(role="system", content=instructions(tools)), *messages] if tools else messages)
        given: dict[str, Any] = {"tools": described(tools)} if tools and self.takes_tools else {}
        try:
            (found, given), mark = self._controls.marked((found, given))
        except ValueError as error:
            raise Unsupported(str(error), sent=False, param="messages") from None
        try:
            rendered = self._template.render(messages=found, add_generation_prompt=True, **given, **self._tokens)
            return Prompt(*unmarked(rendered, mark))
        except jinja2.TemplateError as error:
            message = f"the model's chat template refuses these messages: {error}"
            if "system" in str(error).lower():
                message += "; say in the first user message what the system message says"
            raise Unsupported(message, sent=False, param="messages") from None


def plain(messages: Sequence[Message], *, native: bool = False) -> list[dict[str, Any]]:
    """Role and text of each message, system and developer texts merged into one that leads, as strict templates demand.

    native: calls and their results as members that a template for tools knows; else as the text that the model itself would write.
    """
    system: list[str] = []
    rest: list[dict[str, Any]] = []
    names: dict[str, str] = {}  # of called functions, by the id of their call
    for message in messages:
        text = _text(message)
        if message.role in ("system", "developer"):
            system.append(text)
        elif message.calls:
            names |= {call.id: call.name for call in message.calls}
            rest.append(_calling(message, text, native))
        elif message.role != "tool":
            rest.append({"role": message.role, "content": text})
        elif native:
            rest.append({"role": "tool", "content": text, "tool_call_id": message.call_id, "name": names.get(message.call_id or "", "")})
        else:
            _answer(rest, text)
    return [{"role": "system", "content": "\n\n".join(system)}, *rest] if system else rest


def _calling(message: Message, text: str, native: bool) -> dict[str, Any]:
    if not native:
        return {"role": message.role, "content": "\n".join(filter(None, [text, *map(written, message.calls)]))}
    calls = []
    for call in message.calls:
        function = {"name": call.name, "arguments": msgspec.json.decode(arguments_of(call, "messages.tool_calls"))}
        calls.append({"id": call.id, "type": "function", "function": function})
    return {"role": message.role, "content": text, "tool_calls": calls}


def _answer(rest: list[dict[str, Any]], text: str) -> None:
    """A call's result as the user's: several that belong together as one message, since many templates want turns."""
    said = f"<tool_response>\n{text}\n</tool_response>"
    if rest and rest[-1]["role"] == "user" and rest[-1]["content"].endswith("</tool_response>"):
        rest[-1]["content"] += "\n" + said
    else:
        rest.append({"role": "user", "content": said})


def _text(message: Message) -> str:
    """Thinking of earlier turns is left out, as models' own templates do."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    texts = []
    for part in message.content:
        if isinstance(part, Thinking | RedactedThinking):
            continue
        if not isinstance(part, Text | Refusal):
            raise Unsupported("this model takes text only: a message has a part of another kind", sent=False, param="messages")
        texts.append(part.text)
    return "\n".join(texts)


def _source(folder: Path, config: Mapping[str, Any]) -> str:
    own = folder / "chat_template.jinja"
    template = own.read_text(encoding="utf-8") if own.exists() else config.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = next((one["template"] for one in template if one.get("name") == "default"), None)
    if not isinstance(template, str):
        raise TemplateError(f"{folder} has no chat template: this model cannot chat")
    return template


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TemplateError(f"{path} is missing") from None
    except ValueError as error:
        raise TemplateError(f"{path} is not JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _defaults(generation: Mapping[str, Any]) -> Defaults:
    if generation.get("do_sample") is not True:
        return Defaults()
    return Defaults(**{name: generation[name] for name in Defaults.__struct_fields__ if isinstance(generation.get(name), int | float)})


def _token(value: Any) -> str:
    """A token of tokenizer_config.json: text, or a table with its `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None, sort_keys: bool = False
) -> str:
    """As Hugging Face's: jinja's own escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
