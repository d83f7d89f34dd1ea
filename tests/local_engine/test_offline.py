from __future__ import annotations

from pathlib import Path

import pytest

from local_engine.__main__ import main
from local_engine.config import EngineConfig
from local_engine.offline import Offline
from local_engine.wire import Params


def test_many_prompts_each_as_if_alone(tiny: Path) -> None:
    offline = Offline(EngineConfig(model_dir=str(tiny), threads=1, max_sequences=2))
    prompts = ["the quick", "one two", "fox", "日本", "END stop", "lazy dog jumps"]
    params = Params(temperature=0, max_tokens=12, ignore_eos=True)
    alone = [next(offline.generate([prompt], params)).text for prompt in prompts]
    found = list(offline.generate(prompts, params))
    assert sorted(one.prompt for one in found) == list(range(len(prompts)))
    assert {one.prompt: one.text for one in found} == dict(enumerate(alone))
    assert all(one.text == offline.tokenizer.decode(one.ids) for one in found)
    stop = alone[0][3:6]
    stopped = next(offline.generate([prompts[0]], Params(temperature=0, max_tokens=12, ignore_eos=True, stop=(stop,))))
    assert (stopped.text, stopped.reason) == (alone[0][: alone[0].index(stop)], "stop")
    assert not offline.engine.busy


def test_one_that_cannot_run_is_refused_and_the_others_go_on(tiny: Path) -> None:
    offline = Offline(EngineConfig(model_dir=str(tiny), threads=1, max_sequences=1, max_waiting=1))
    found = {
        one.prompt: one for one in offline.generate(["fox", "", [5] * 600, [7, 8]], Params(temperature=0, max_tokens=3, ignore_eos=True))
    }
    assert [found[index].reason for index in range(4)] == ["length", "refused", "refused", "length"]
    assert "600 tokens" in (found[2].error or "")
    assert (found[3].prompt_tokens, len(found[3].ids)) == (2, 3)


def test_the_command_prints_the_continuation(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--model-dir", str(tiny), "--max-tokens", "5", "--threads", "1", "the quick"]) == 0
    assert capsys.readouterr().out.strip()
    assert main(["generate", "--model-dir", str(tiny.parent), "x"]) == 78
    assert "neither" in capsys.readouterr().err
