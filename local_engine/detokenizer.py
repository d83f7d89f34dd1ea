"""Ids -> text piece by piece: never half a character, never a part of a stop string. Knows no model and no request.

The pieces of a stream add up to the decoding of all its ids (up to the stop string).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

from tokenizers import Tokenizer as HfTokenizer

REPLACEMENT = "\ufffd"


class Detokenizer(Protocol):
    def push(self, token: int) -> str:
        """The text that is certain now; empty while a character is incomplete."""
        ...

    def finish(self) -> str:
        """What is left: an incomplete character becomes U+FFFD, as in a decoding of the whole."""
        ...


class ByteTable:
    """The bytes of every token of a byte-level vocabulary (GPT-2's printable alphabet for bytes); special tokens have none."""

    def __init__(self, tokenizer: HfTokenizer) -> None:
        alphabet = _byte_alphabet()
        special = {token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special}
        self._table: dict[int, bytes] = {}
        for text, token in tokenizer.get_vocab(with_added_tokens=True).items():
            known = all(char in alphabet for char in text)
            self._table[token] = b"" if token in special else bytes(alphabet[char] for char in text) if known else text.encode()

    def bytes_of(self, token: int) -> bytes:
        return self._table.get(token, b"")

    def detokenizer(self) -> Detokenizer:
        return ByteDetokenizer(self._table)


class ByteDetokenizer:
    def __init__(self, table: dict[int, bytes]) -> None:
        self._table = table
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._table.get(token, b""))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """For any tokenizer: decodes a short window of ids twice, with and without the new ones, and gives out the difference.

    bytes_: tokens that stand for a byte each. A row of them is decoded as one, and as replacement characters throughout if it is not
    UTF-8 throughout, so that nothing is certain before its end. shown: tokens that have a text at all; None: every one.
    """

    def __init__(
        self, decode: Callable[[list[int]], str], bytes_: frozenset[int] = frozenset(), shown: frozenset[int] | None = None
    ) -> None:
        self._decode = decode
        self._bytes = bytes_
        self._visible = shown
        self._ids: list[int] = []  # from the window's start
        self._shown = 0  # of those ids are given out

    def push(self, token: int) -> str:
        if self._visible is not None and token not in self._visible:
            return ""
        self._ids.append(token)
        text = self._fresh()
        if not text or text.endswith(REPLACEMENT) or token in self._bytes:
            return ""
        self._ids = self._ids[self._shown :]
        self._shown = len(self._ids)
        return text

    def finish(self) -> str:
        return self._fresh()

    def _fresh(self) -> str:
        return self._decode(self._ids)[len(self._decode(self._ids[: self._shown])) :]


class StopMatcher:
    """Finds the first stop string in a text that comes in pieces, holding back whatever may still become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """(text that may be shown, whether a stop string was found). The stop string and what follows it are dropped."""
        if not self._stops:
            return text, False
        self._held += text
        found = [at for at in (self._held.find(stop) for stop in self._stops) if at >= 0]
        if found:
            shown, self._held = self._held[: min(found)], ""
            return shown, True
        keep = self._overlap()
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def finish(self) -> str:
        """The end came otherwise: what was held back is plain text after all."""
        held, self._held = self._held, ""
        return held

    def _overlap(self) -> int:
        """Length of the longest end of the held text that begins some stop string."""
        for size in range(min(self._longest - 1, len(self._held)), 0, -1):
            tail = self._held[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0


class TextStream:
    """One request's ids in, its visible text out. Stop strings count only beyond `min_tokens`."""

    def __init__(self, detokenizer: Detokenizer, stops: Sequence[str] = (), min_tokens: int = 0) -> None:
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stops)
        self._free_tokens = min_tokens

    def push(self, token: int, *, last: bool = False) -> tuple[str, bool]:
        """(text that may be shown, whether a stop string ended it); with `last`, all that was held back as well."""
        text = self._detokenizer.push(token)
        if self._free_tokens > 0:
            self._free_tokens -= 1
            return (text + self.end() if last else text), False
        shown, stopped = self._matcher.push(text)
        if not last or stopped:
            return shown, stopped
        rest, stopped = self._matcher.push(self._detokenizer.finish())
        return shown + (rest if stopped else rest + self._matcher.finish()), stopped

    def end(self) -> str:
        """All that was held back, at an end that is no part of the text."""
        return self._matcher.push(self._detokenizer.finish())[0] + self._matcher.finish()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    rest = [byte for byte in range(256) if byte not in printable]
    return table | {chr(256 + i): byte for i, byte in enumerate(rest)}
