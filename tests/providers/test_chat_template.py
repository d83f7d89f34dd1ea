from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from providers.chat_template import ChatTemplate, Defaults, TemplateError
from providers.errors import Unsupported
from providers.types import Call, Image, Message, Text

SMOL = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are SmolLM<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
STRICT = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' and not loop.first %}{{ raise_exception('system must lead') }}{% endif %}"
    "[{{ m.role }}] {{ m.content }}\n{% endfor %}"
)


def make(folder: Path, template: Any, generation: dict[str, Any] | None = None, **config: Any) -> ChatTemplate:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, **config}))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return ChatTemplate(folder)


def test_messages_become_the_model_s_prompt(tmp_path: Path) -> None:
    template = make(tmp_path, SMOL)
    assert template.render([Message(role="user", content="Hi")]) == (
        "<|im_start|>system\nYou are SmolLM<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template.render([Message(role="system", content="Be brief"), Message(role="user", content=(Text("a"), Text("b")))]) == (
        "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n"
    )


def test_developer_and_late_system_messages_lead_as_one(tmp_path: Path) -> None:
    template = make(tmp_path, STRICT, bos_token={"content": "<s>"})
    messages = [
        Message(role="developer", content="one"),
        Message(role="user", content="hi"),
        Message(role="assistant", content=None),
        Message(role="system", content="two"),
    ]
    assert template.render(messages) == "<s>[system] one\n\ntwo\n[user] hi\n[assistant] \n"


def test_a_template_file_goes_before_the_config_and_named_ones_are_found(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    assert make(tmp_path, named).render([]) == "D"
    (tmp_path / "chat_template.jinja").write_text("J")
    assert ChatTemplate(tmp_path).render([]) == "J"


def test_what_the_model_cannot_take_is_refused_by_name(tmp_path: Path) -> None:
    template = make(tmp_path, "{{ raise_exception('only users') }}")
    with pytest.raises(Unsupported, match="only users"):
        template.render([Message(role="user", content="x")])
    for message in (
        Message(role="user", content=(Image(url="https://x/y.png"),)),
        Message(role="tool", content="4", call_id="c"),
        Message(role="assistant", calls=(Call("c", "f", "{}"),)),
    ):
        with pytest.raises(Unsupported) as refused:
            template.render([message])
        assert refused.value.param == "messages"
        assert not refused.value.sent


def test_a_template_reaches_nothing_outside_its_sandbox(tmp_path: Path) -> None:
    template = make(tmp_path, "{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(Unsupported):
        template.render([Message(role="user", content="x")])


def test_folders_without_a_template_say_so(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"tokenizer_config\.json is missing"):
        ChatTemplate(tmp_path)
    with pytest.raises(TemplateError, match="no chat template"):
        make(tmp_path, None)
    with pytest.raises(TemplateError, match="cannot be read"):
        make(tmp_path, "{% for %}")


def test_recommended_sampling_counts_only_where_the_model_samples(tmp_path: Path) -> None:
    assert make(tmp_path, "x", {"do_sample": True, "temperature": 0.2, "top_p": 0.9}).defaults == Defaults(temperature=0.2, top_p=0.9)
    assert make(tmp_path, "x", {"temperature": 0.2}).defaults == Defaults()
