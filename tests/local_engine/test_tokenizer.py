"""Text to ids and back by a folder's tokenizer.json, whatever else that file would like to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing

from local_engine.tokenizer import Tokenizer
from providers.chat_template import ChatTemplate
from providers.types import Message
from tests.local_engine.tiny import make_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a model whose tokenizer leads every text with <|start|>, cuts at eight tokens, and whose template writes that token too."""
    made = make_tokenizer()
    made.post_processor = TemplateProcessing(single="<|start|> $A", pair=None, special_tokens=[("<|start|>", 1)])
    made.enable_truncation(8)
    made.save(str(tmp_path / "tokenizer.json"))
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|start|>", "chat_template": template}))
    return tmp_path


def test_a_templated_prompt_has_one_bos(folder: Path) -> None:
    prompt = ChatTemplate(folder).render([Message(role="user", content="the quick")])
    assert Tokenizer(folder).encode(prompt).count(1) == 1
    assert make_tokenizer().encode(prompt).ids == Tokenizer(folder).encode(prompt)


def test_nothing_is_added_and_nothing_is_cut(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    text = "one two three 日本語 😀 " * 20
    ids = tokenizer.encode(text)
    assert len(ids) > 100 and 1 not in ids
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.bytes_of, ids)) == text.encode()


def test_special_tokens_have_no_text_but_a_name(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    ids = tokenizer.encode("a<|end|>b")
    assert 0 in ids and tokenizer.decode(ids) == "ab"
    assert tokenizer.bytes_of(0) == b"<|end|>"
    detokenizer = tokenizer.detokenizer()
    assert "".join(map(detokenizer.push, ids)) + detokenizer.finish() == "ab"
    assert json.loads(tokenizer.to_json())["model"]["type"] == "BPE"
