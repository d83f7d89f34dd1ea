"""What every two languages do alike when a request passes from one to the other: messages, and fields without a counterpart.

A field or part is translated, refused by its name or dropped and named; never lost in silence. Knows no particular language: what one
can hold is its `Carries`, what a target takes beyond it stands in `Quirks.takes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from providers.dialects.base import Quirks
from providers.dialects.body import Field, says_something
from providers.dialects.quirks import unsupported
from providers.dialects.rawjson import NULL, base64_to_text, decode_any
from providers.dialects.sealed import is_sealed, unseal
from providers.types import (
    Audio,
    Document,
    Image,
    Message,
    Opaque,
    Parameters,
    Part,
    RedactedThinking,
    Refusal,
    Request,
    Text,
    Thinking,
    Tool,
)

_ERROR = "Error: "  # where a language has no mark for a failed call, its result says it


class Carries(Struct, frozen=True, kw_only=True):
    """What messages of a language can hold beside text, images and function calls.

    thinking: what a target must take for thinking to go there, empty = it always may. unsigned: the same for thinking without a
    signature. sealed: a signature says something only where it was sealed for this language. cache_control, result_cache: marks on
    parts, on tool results. result_media: images and documents in tool results. failed: a mark on the result of a failed call. names: of
    a message's author. detail: of an image. refusals: as parts of their own. document_url: documents by address. text_documents:
    plain-text documents as such, not as text. lone_text: a content that is one text is written as a string, which more servers take.
    document_name: what a file without a name is called.
    """

    language: str
    thinking: str = ""
    unsigned: str = ""
    sealed: bool = False
    cache_control: bool = False
    result_cache: bool = False
    result_media: bool = False
    failed: bool = False
    names: bool = False
    detail: bool = False
    audio: bool = False
    refusals: bool = False
    document_url: bool = False
    text_documents: bool = False
    lone_text: bool = False
    document_name: str = ""


class Crossing:
    """One request on its way from another language. dropped: names of what was left out, in order."""

    def __init__(self, carries: Carries, takes: frozenset[str] = frozenset()) -> None:
        self.carries = carries
        self.takes = takes
        self.dropped: list[str] = []

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """Raises Unsupported, naming the message, for what may not be left out."""
        found: list[Message] = []
        media: list[Part] = []  # of tool results, where they hold text alone: they follow the results as a message of the user
        for position, message in enumerate(messages):
            if media and message.role != "tool":
                found.append(Message(role="user", content=tuple(media)))
                media = []
            found.append(self._message(message, f"messages[{position}]", media))
        if media:
            found.append(Message(role="user", content=tuple(media)))
        return found

    def tools(self, tools: Sequence[Tool]) -> list[Tool]:
        for tool in tools:
            self.dropped += [f"tools.{name}" for name in tool.extra]
        return [replace(tool, extra={}, cache_control=self._cache(tool.cache_control, "tools")) for tool in tools]

    def _message(self, message: Message, path: str, media: list[Part]) -> Message:
        extra, refusal = self._extra(message)
        content = message.content
        if refusal is not None:
            content = (*((Text(content),) if isinstance(content, str) else content or ()), Refusal(refusal))
        if isinstance(content, tuple):
            kept = [self._part(part, path) for part in content]
            content = tuple(part for part in kept if part is not None)
        if message.role == "tool":
            content = self._result(message, content, media)
        calls = [replace(call, cache_control=self._cache(call.cache_control, "messages")) for call in message.calls]
        if self.carries.lone_text and isinstance(content, tuple) and len(content) <= 1:
            first = content[0] if content else Text("")
            if type(first) is Text and first.cache_control is None:
                content = first.text if content or not calls else None
        failed = message.is_error if self.carries.failed else None
        name = message.name if self.carries.names else None
        return replace(message, content=content, calls=tuple(calls), extra=extra, is_error=failed, name=name)

    def _extra(self, message: Message) -> tuple[dict[str, Raw], str | None]:
        """What stays of the members that only the message's own language knows, and the refusal that may stand among them."""
        rest = dict(message.extra)
        if "function_call" in rest or "tool_calls" in rest or message.role == "function":
            raise unsupported("`messages` has a call of a kind that only its own language has.", "messages")
        said = decode_any(rest.pop("refusal", b"null"))
        stays = {}
        if message.role == "tool" and self.carries.result_cache and "cache_control" in rest:
            stays["cache_control"] = rest.pop("cache_control")
        self.dropped += [f"messages.{name}" for name in rest]
        if message.name is not None and not self.carries.names:
            self.dropped.append("messages.name")
        return stays, said if isinstance(said, str) else None

    def _part(self, part: Part, path: str) -> Part | None:
        if isinstance(part, Text | Image | Document):
            part = replace(part, cache_control=self._cache(part.cache_control, "messages"))
        if isinstance(part, Text):
            return self._text(part)
        if isinstance(part, Image):
            return self._image(part)
        if isinstance(part, Document):
            return self._document(part, path)
        if isinstance(part, Thinking | RedactedThinking):
            return self._thinking(part)
        if isinstance(part, Refusal):
            return part if self.carries.refusals else Text(part.text)
        if isinstance(part, Opaque) and part.dialect != self.carries.language:
            raise unsupported(f"`{path}` has a part of type {part.type!r}, which has no counterpart in the language of this backend.", path)
        if isinstance(part, Audio) and not self.carries.audio:
            raise unsupported(f"`{path}` has audio, which this backend does not take.", path)
        return part

    def _text(self, part: Text) -> Text:
        if part.citations is None:
            return part
        self.dropped.append("messages.citations")
        return replace(part, citations=None)

    def _image(self, image: Image) -> Image:
        if image.detail is None or self.carries.detail:
            return image
        if image.detail != "auto":
            self.dropped.append("messages.image_url.detail")
        return replace(image, detail=None)

    def _thinking(self, part: Thinking | RedactedThinking) -> Part | None:
        told = part.signature if isinstance(part, Thinking) else part.data
        foreign = (is_sealed(told) or self.carries.sealed) and told is not None and unseal(told, self.carries.language) is None
        refused = bool(self.carries.thinking) and self.carries.thinking not in self.takes
        if refused and isinstance(part, Thinking) and part.text and "reasoning_content" in self.takes:
            if part.signature is not None:
                self.dropped.append("messages.thinking.signature")
            return replace(part, signature=None)
        needs_sign = bool(self.carries.unsigned) and self.carries.unsigned not in self.takes
        if refused or (foreign and (needs_sign or isinstance(part, RedactedThinking))):
            self.dropped.append("messages.thinking")
            return None
        if foreign and isinstance(part, Thinking):  # nobody here can read it, but its text
            part = replace(part, signature=None)
        unsigned = isinstance(part, Thinking) and part.signature is None
        if unsigned and self.carries.unsigned and self.carries.unsigned not in self.takes:
            self.dropped.append("messages.reasoning_content")  # without its signature it would be refused
            return None
        return part

    def _document(self, document: Document, path: str) -> Part:
        """Plain text becomes text where documents are files: every server takes it."""
        if document.data is None and (document.url is None or not self.carries.document_url):
            how = "id, which only the vendor that issued it knows" if document.url is None else "address, which this backend does not take"
            raise unsupported(f"`{path}` names a document by its {how}; send its data.", path)
        if document.data is None or document.media_type != "text/plain":
            default = self.carries.document_name if document.data is not None else ""
            return replace(document, name=document.name or default or None)
        plain = base64_to_text(document.data)
        if plain is None:
            raise unsupported(f"`{path}` has a text document that is not UTF-8 in base64.", path)
        if self.carries.text_documents:
            return document
        return Text(plain if document.name is None else f"{document.name}\n\n{plain}", document.cache_control)

    def _cache(self, marker: Raw | None, where: str) -> Raw | None:
        if marker is None or self.carries.cache_control or "cache_control" in self.takes:
            return marker
        self.dropped.append(f"{where}.cache_control")
        return None

    def _result(self, message: Message, content: str | tuple[Part, ...] | None, media: list[Part]) -> str | tuple[Part, ...] | None:
        """A tool's result as text, where results hold nothing else: its images and documents go to `media`. Marked where it failed."""
        failed, alone = bool(message.is_error) and not self.carries.failed, not self.carries.result_media
        if not (failed or alone):
            return content
        parts = (Text(content),) if isinstance(content, str) else content or ()
        others = [part for part in parts if not isinstance(part, Text)] if alone else []
        kept: list[Part] = [part for part in parts if isinstance(part, Text)] if alone else list(parts)
        if others:
            media += [Text(f"From the result of tool call {message.call_id}:"), *others]
        if failed:
            first = kept.pop(0) if kept and isinstance(kept[0], Text) else Text("")
            assert isinstance(first, Text)
            kept.insert(0, replace(first, text=_ERROR + first.text))
        return tuple(kept) or (Text("(see the next message)") if others else Text(""),)


def foreign_fields(
    request: Request,
    crossing: Crossing,
    messages: Callable[[Sequence[Message]], Mapping[str, Raw]],
    tools: Callable[[Sequence[Tool]], Raw],
    parameters: tuple[Mapping[str, Raw], Sequence[str]],
) -> tuple[dict[str, Raw], tuple[str, ...]]:
    """The slow lane: fields of a language from a request that came in another one, whose own dialect has decoded it, and what was dropped
    on the way. messages and tools write them; parameters: fields and what was dropped of them. Raises Unsupported or Rejected.
    """
    fields = {"model": NULL, **messages(crossing.messages(request.decoded or ()))}
    if request.decoded_tools:
        fields["tools"] = tools(crossing.tools(request.decoded_tools))
    found, dropped = parameters
    return {**fields, **found}, tuple(dict.fromkeys([*dropped, *crossing.dropped]))


# ---- fields -------------------------------------------------------------------------------------------------------------------------
Reader = tuple[str, Callable[[Raw], Any]]  # a member of Parameters, and what makes its value of a field; None says nothing


def read_parameters(request: Request, table: Mapping[str, Field], readers: Mapping[str, Sequence[Reader]]) -> Parameters:
    """What `readers` make of the request's fields; of several for one member the first counts. Raises DecodeError."""
    refused, dropped = without_counterpart(request, table)
    found: dict[str, Any] = {}
    for name, reads in readers.items():
        raw = request.fields.get(name, NULL)
        for member, read in reads if raw != NULL else ():
            value = None if member in found else read(raw)
            if value is not None:
                found[member] = value
    return Parameters(**found, refused=refused, dropped=dropped)


def without_counterpart(request: Request, table: Mapping[str, Field]) -> tuple[dict[str, Raw], dict[str, Raw]]:
    """(refused, dropped) of `Parameters`, by the table of the request's own language. A default value says nothing and is in neither."""
    refused: dict[str, Raw] = {}
    dropped: dict[str, Raw] = {}
    for name, raw in request.fields.items():
        field = table.get(name)
        if field is not None and field.abroad != "translated" and says_something(raw, field):
            (refused if field.abroad == "refused" else dropped)[name] = raw
    return refused, dropped


def take_over(parameters: Parameters, known: Collection[str] = ()) -> list[str]:
    """The names that are dropped. Raises Unsupported for a field that may not be; `known`: names that this target has itself."""
    for name in [name for name in parameters.refused if name not in known]:
        raise unsupported(f"`{name}` has no counterpart in the language of this backend; leave it out or use another route.", name)
    return [name for name in parameters.dropped if name not in known]


def take_where_known(found: dict[str, Any], quirks: Quirks, wanted: Mapping[str, tuple[str, str, Any]]) -> list[str]:
    """Put into `found` what the target takes; the client's names of what it does not. wanted: what a target must take -> our name of the
    field, the client's, and the value.
    """
    found |= {name: value for take, (name, _, value) in wanted.items() if take in quirks.takes}
    return [named for take, (_, named, value) in wanted.items() if take not in quirks.takes and value is not None]
