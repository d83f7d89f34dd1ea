"""Turns of two speakers, as languages have them in which a tool's result is part of what the user says: to and from our messages.

Here each result is a message of its own. Normalised: calls stand after the other parts, the user's parts after results in one message
with them, system messages at the top. Knows no language: parts are read and written by the dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from providers.types import Call, Message, Part


def messages_of(role: str, parts: Iterable[Message | Call | Part]) -> list[Message]:
    """One turn's parts as messages. A Message among them is a result."""
    found: list[Message] = []
    said: list[Part] = []
    calls: list[Call] = []
    for part in parts:
        if isinstance(part, Call):
            calls.append(part)
        elif not isinstance(part, Message):
            said.append(part)
        else:
            if said:
                found.append(Message(role=role, content=tuple(said)))
                said = []
            found.append(part)
    if said or calls or not found:
        found.append(Message(role=role, content=tuple(said) if said or not calls else None, calls=tuple(calls)))
    return found


def turns_of(
    messages: Sequence[Message], result: Callable[[Message, str], Any], content: Callable[[Message, str], str | list[Any]]
) -> tuple[list[Message], list[tuple[str, str | list[Any]]]]:
    """(system messages, the turns: role and content). result and content write a message's parts; they get its path for what they say."""
    system: list[Message] = []
    found: list[tuple[str, str | list[Any]]] = []
    results: list[Any] | None = None  # the open list of parts that results, and what the user says after them, go to
    for position, message in enumerate(messages):
        path = f"messages[{position}]"
        if message.role in ("system", "developer"):
            system.append(message)
        elif message.role == "tool":
            if results is None:
                results = []
                found.append(("user", results))
            results.append(result(message, path))
        else:
            parts = content(message, path)
            if results is not None and message.role == "user" and isinstance(parts, list):
                results += parts
            elif parts or message.role == "user":
                found.append((message.role, parts))
            results = None
    return system, found
