"""Text <-> ids by the model folder's tokenizer.json. Adds no special tokens: templated text carries its own. Knows no request."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer as HfTokenizer

from local_engine.detokenizer import ByteTable, Detokenizer, WindowDetokenizer


class Tokenizer:
    """Thread-safe for reading; the work is done in Rust without the interpreter's lock."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        self._tokenizer = HfTokenizer.from_file(str(path))
        self._tokenizer.no_truncation()  # a folder may ask to cut long input silently; here it is counted and refused
        decoder = json.loads(path.read_text(encoding="utf-8")).get("decoder") or {}
        self._bytes = ByteTable(self._tokenizer) if decoder.get("type") == "ByteLevel" else None

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        """All of it at once, special tokens left out: what the pieces of a stream add up to."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def to_json(self) -> str:
        """The tokenizer as its file would be."""
        return self._tokenizer.to_str()

    def detokenizer(self) -> Detokenizer:
        return self._bytes.detokenizer() if self._bytes is not None else WindowDetokenizer(self.decode)
