from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local_engine.__main__ import main
from local_engine.config import EngineConfig
from local_engine.errors import ConfigError
from local_engine.offline import Offline
from local_engine.prompt_file import complete_file, read_tasks
from local_engine.wire import Params

LINES: list[dict[str, Any]] = [
    {"prompt": "the quick", "id": "a"},
    {"prompt": [5, 6, 7], "max_tokens": 2},
    {"prompt": "one two", "temperature": 1.0, "seed": 4},
    {"prompt": ""},
]
PARAMS = Params(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def offline(tiny: Path) -> Offline:
    return Offline(EngineConfig(model_dir=str(tiny), threads=1))


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n\n" for line in lines))
    return path


def answers(path: Path) -> dict[int, dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({answer["line"] for answer in found}) == len(found)
    return {answer["line"]: answer for answer in found}


def test_every_line_has_its_answer(offline: Offline, tmp_path: Path) -> None:
    source, target = write(tmp_path / "p.jsonl", LINES), tmp_path / "out.jsonl"
    assert complete_file(offline, source, target, PARAMS) == 4
    found = answers(target)
    assert sorted(found) == [1, 3, 5, 7]  # empty lines stand between them
    assert found[1]["id"] == "a"
    assert found[1]["text"] == offline.tokenizer.decode(found[1]["ids"])
    assert [len(found[line].get("ids", [])) for line in (1, 3, 5, 7)] == [6, 2, 6, 0]
    assert (found[7]["reason"], found[7]["error"]) == ("refused", "the prompt is empty")


def test_it_goes_on_where_it_was_killed(offline: Offline, tmp_path: Path) -> None:
    source, target = write(tmp_path / "p.jsonl", LINES), tmp_path / "out.jsonl"
    complete_file(offline, source, target, PARAMS)
    whole = target.read_bytes()
    first, second = whole.splitlines()[:2]
    target.write_bytes(first + b"\n" + second[:20])  # killed while it wrote
    assert complete_file(offline, source, target, PARAMS) == 3
    assert sorted(target.read_bytes().splitlines()) == sorted(whole.splitlines())
    assert complete_file(offline, source, target, PARAMS) == 0
    assert len(target.read_bytes()) == len(whole)


def test_answers_of_other_prompts_are_not_mixed_in(offline: Offline, tmp_path: Path) -> None:
    source, target = write(tmp_path / "p.jsonl", LINES), tmp_path / "out.jsonl"
    complete_file(offline, source, target, PARAMS)
    write(source, [{"prompt": "changed"}, *LINES[1:]])
    with pytest.raises(ConfigError, match=r"out\.jsonl:\d+ answers another prompt than line 1"):
        complete_file(offline, source, target, PARAMS)
    target.write_text("what is this\n")
    with pytest.raises(ConfigError, match=r"out\.jsonl:1 is not an answer"):
        complete_file(offline, source, target, PARAMS)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"prompt": 5}', "prompt"),
        ('{"max_tokens": 5}', "prompt"),
        ('{"prompt": "x", "id": {}}', "id"),
        ('{"prompt": "x", "n": 2}', "'n' is not known here"),
        ('{"prompt": "x", "grammar": null}', "'grammar' is not known here"),
        ("[1]", "object"),
        ('{"prompt": "x", "max_token": 5}', "max_token"),
        ('{"prompt": "x", "seed": "y"}', "seed"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, named: str) -> None:
    source = tmp_path / "p.jsonl"
    source.write_text('{"prompt": "x"}\n' + line + "\n")
    with pytest.raises(ConfigError, match=rf"p\.jsonl:2: .*{named}"):
        list(read_tasks(source, PARAMS))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.jsonl cannot be read: No such file"):
        list(read_tasks(tmp_path / "nowhere.jsonl", PARAMS))


def test_the_command_answers_a_file(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "p.jsonl", LINES[:2])
    assert main(["generate", "--model-dir", str(tiny), "--threads", "1", "--max-tokens", "3", str(source)]) == 0
    told = capsys.readouterr().err
    assert "2/2" in told and " 0 tokens/s" not in told
    assert len(answers(tmp_path / "p.answers.jsonl")) == 2
    source.write_text("{")
    assert main(["generate", "--model-dir", str(tiny), "--threads", "1", str(source)]) == 78
