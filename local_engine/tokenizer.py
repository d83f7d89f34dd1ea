"""Text <-> ids by the model folder's tokenizer.json. Adds no special tokens: templated text carries its own. Knows no request."""

from __future__ import annotations

import json
import re
import secrets
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as HfTokenizer

from local_engine.detokenizer import ByteTable, Detokenizer, WindowDetokenizer

LONE_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # how vocabularies with byte fallback name a byte
SPACE = "\u2581"  # how vocabularies of SentencePiece write a space


class SecretNames:
    """The same tokenizer with its special tokens under names that nobody can guess: their own names are then ordinary text, and what
    stands beside the tokens is still cut as the file says.
    """

    def __init__(self, tokenizer: HfTokenizer) -> None:
        held = json.loads(tokenizer.to_str())
        self._names = {one["content"]: f"\ufdd0{secrets.token_hex(16)}\ufdd1" for one in held["added_tokens"] if one["special"]}
        for one in held["added_tokens"]:
            one["content"] = self._names.get(one["content"], one["content"])
        model = held["model"]
        if isinstance(model.get("vocab"), dict):
            model["vocab"] = {self._names.get(token, token): number for token, number in model["vocab"].items()}
        else:
            model["vocab"] = [[self._names.get(token, token), score] for token, score in model["vocab"]]
        if model.get("unk_token") in self._names:
            model["unk_token"] = self._names[model["unk_token"]]
        held["post_processor"] = None  # it names tokens, and adds what is not asked for here
        self.tokenizer = HfTokenizer.from_str(json.dumps(held))
        known = sorted(self._names, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, known)) or "(?!)")

    def rewritten(self, text: str, breaks: Sequence[int]) -> str:
        """The text with the secret names of those special tokens that span no break."""
        pieces, done, at = [], 0, 0
        while (found := self._any.search(text, at)) is not None:
            inside = bisect_right(breaks, found.start())
            if inside < len(breaks) and breaks[inside] < found.end():
                at = found.start() + 1
                continue
            pieces += [text[done : found.start()], self._names[found[0]]]
            done = at = found.end()
        return "".join([*pieces, text[done:]])


class Tokenizer:
    """Thread-safe for reading; the work is done in Rust without the interpreter's lock."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        self._tokenizer = HfTokenizer.from_file(str(path))
        self._secret: SecretNames | None = None
        self._tokenizer.no_truncation()  # a folder may ask to cut long input silently; here it is counted and refused
        decoder = json.loads(path.read_text(encoding="utf-8")).get("decoder") or {}
        self._bytes = ByteTable(self._tokenizer) if decoder.get("type") == "ByteLevel" else None
        vocabulary = {} if self._bytes is not None else self._tokenizer.get_vocab(with_added_tokens=True)
        special = {token for token, added in self._tokenizer.get_added_tokens_decoder().items() if added.special}
        self._shown = frozenset(vocabulary.values()) - special
        self._lone_bytes = {token: bytes.fromhex(text[3:5]) for text, token in vocabulary.items() if LONE_BYTE.fullmatch(text)}

    def encode(self, text: str, breaks: Sequence[int] = ()) -> list[int]:
        """breaks: offsets in characters, rising, that no special token may span: what looks like one there is text."""
        if breaks:
            secret = self._secret_names()
            return secret.tokenizer.encode(secret.rewritten(text, breaks), add_special_tokens=False).ids
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _secret_names(self) -> SecretNames:
        """Made with the first prompt that needs it. Two threads may both make one; either is right."""
        if self._secret is None:
            self._secret = SecretNames(self._tokenizer)
        return self._secret

    def decode(self, ids: list[int]) -> str:
        """All of it at once, special tokens left out: what the pieces of a stream add up to."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def to_json(self) -> str:
        """The tokenizer as its file would be."""
        return self._tokenizer.to_str()

    def detokenizer(self) -> Detokenizer:
        if self._bytes is not None:
            return self._bytes.detokenizer()
        return WindowDetokenizer(self.decode, frozenset(self._lone_bytes), self._shown)

    def bytes_of(self, token: int) -> bytes:
        """What one token stands for by itself, special ones by their names."""
        known = self._bytes.bytes_of(token) if self._bytes is not None else self._lone_bytes.get(token, b"")
        return known or (self._tokenizer.id_to_token(token) or "").replace(SPACE, " ").encode()
