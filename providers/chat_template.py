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
from jinja2.sandbox import ImmutableSandboxedEnvironment
from msgspec import Struct

from providers.errors import Unsupported
from providers.types import Message, Refusal, Text


class TemplateError(Exception):
    """The folder has no template that can be used; the message says what is wrong."""


class Defaults(Struct, frozen=True, kw_only=True):
    """The sampling that the model's authors recommend (generation_config.json), for requests that do not say."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None


class ChatTemplate:
    """Loaded once per folder. Raises TemplateError."""

    def __init__(self, folder: Path) -> None:
        config = _read(folder / "tokenizer_config.json")
        self._tokens = {name: _token(config.get(name)) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(_source(folder, config))
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template of {folder} cannot be read: {error}") from None
        generation = folder / "generation_config.json"
        self.defaults = _defaults(_read(generation)) if generation.exists() else Defaults()

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt, with the opening of the answer. Unsupported for what this model cannot take, in the template's own words."""
        try:
            return self._template.render(messages=plain(messages), add_generation_prompt=True, **self._tokens)
        except jinja2.TemplateError as error:
            raise Unsupported(f"the model's chat template refuses these messages: {error}", sent=False, param="messages") from None


def plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Role and text of each message, system and developer texts merged into one that leads, as strict templates demand."""
    system: list[str] = []
    rest: list[dict[str, str]] = []
    for message in messages:
        if message.role == "tool" or message.calls:
            raise Unsupported("this model takes no tool calls in its messages", sent=False, param="messages")
        text = _text(message)
        if message.role in ("system", "developer"):
            system.append(text)
        else:
            rest.append({"role": message.role, "content": text})
    return [{"role": "system", "content": "\n\n".join(system)}, *rest] if system else rest


def _text(message: Message) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    texts = []
    for part in message.content:
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


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
