"""Text <-> ids by the model folder's tokenizer.json. Adds no special tokens: templated text carries its own. Knows no request."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tokenizers import Tokenizer as HfTokenizer

from local_engine.detokenizer import ByteTable, Detokenizer, WindowDetokenizer

LONE_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # how vocabularies with byte fallback name a byte
SPACE = "\u2581"  # how vocabularies of SentencePiece write a space


class Tokenizer:
    """Thread-safe for reading; the work is done in Rust without the interpreter's lock."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        self._tokenizer = HfTokenizer.from_file(str(path))
        self._tokenizer.no_truncation()  # a folder may ask to cut long input silently; here it is counted and refused
        decoder = json.loads(path.read_text(encoding="utf-8")).get("decoder") or {}
        self._bytes = ByteTable(self._tokenizer) if decoder.get("type") == "ByteLevel" else None
        vocabulary = {} if self._bytes is not None else self._tokenizer.get_vocab(with_added_tokens=True)
        special = {token for token, added in self._tokenizer.get_added_tokens_decoder().items() if added.special}
        self._shown = frozenset(vocabulary.values()) - special
        self._lone_bytes = {token: bytes.fromhex(text[3:5]) for text, token in vocabulary.items() if LONE_BYTE.fullmatch(text)}

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

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
