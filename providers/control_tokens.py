"""A model's control tokens by their names: which places of a client's own text look like one, so that none can be forged.

Knows the folder's tokenizer.json and nothing of templates or of how text becomes ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

# noncharacters that Unicode keeps for a program's own use: https://www.unicode.org/faq/private_use.html#nonchar4
MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))

T = TypeVar("T")


class _Token(Struct, frozen=True):
    content: str
    special: bool = False


class _File(Struct, frozen=True):
    added_tokens: list[_Token] = []


class ControlTokens:
    """The tokens that a tokenizer calls special. Names of one character cannot be told from text and are left alone."""

    def __init__(self, names: Iterable[str]) -> None:
        known = sorted({name for name in names if len(name) > 1}, key=len, reverse=True)
        self._first = {name[:2] for name in known}  # looked for first: fast, and absent from nearly every text
        # a look-ahead, so that of two that overlap both are found
        self._begin = re.compile(f"(?=(?:{'|'.join(map(re.escape, known))}))") if known else None

    @classmethod
    def of(cls, folder: Path) -> ControlTokens:
        """Those of a folder's tokenizer.json; none without that file. Raises msgspec.MsgspecError for one that cannot be read."""
        path = folder / "tokenizer.json"
        found = msgspec.json.decode(path.read_bytes(), type=_File) if path.exists() else _File()
        return cls(token.content for token in found.added_tokens if token.special)

    def marked(self, value: T) -> tuple[T, str]:
        """The value with a mark behind the first character of each control token in its texts, and the mark; ("" and itself = none).

        value: texts in lists, tuples and dictionaries. Raises ValueError when they use every character that could be the mark.
        """
        texts = list(_texts(value))
        begin = self._begin
        if begin is None or not any(self._looks(text) and begin.search(text) for text in texts):
            return value, ""
        mark = next((mark for mark in MARKS if not any(mark in text for text in texts)), None)
        if mark is None:
            raise ValueError("the messages use every one of the characters U+FDD0 to U+FDEF: leave one out")
        return cast(T, _replaced(value, begin, mark)), mark

    def _looks(self, text: str) -> bool:
        return any(first in text for first in self._first)


def unmarked(text: str, mark: str) -> tuple[str, tuple[int, ...]]:
    """The text without its marks, and where they stood in it: offsets in characters, rising."""
    if not mark:
        return text, ()
    pieces = text.split(mark)
    breaks, at = [], 0
    for piece in pieces[:-1]:
        at += len(piece)
        breaks.append(at)
    return "".join(pieces), tuple(breaks)


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _texts(name)
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _replaced(value: object, begin: re.Pattern[str], mark: str) -> object:
    if isinstance(value, str):
        places = [found.start() + 1 for found in begin.finditer(value)]
        return mark.join(value[a:b] for a, b in zip([0, *places], [*places, len(value)], strict=True))
    if isinstance(value, dict):
        return {_replaced(name, begin, mark): _replaced(one, begin, mark) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replaced(one, begin, mark) for one in value)
    return value
