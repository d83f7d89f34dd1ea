"""`tollway hello`: a key that works and a request that may be copied, against a running gateway."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gateway.cli import hello as module
from gateway.cli.hello import answers, base_url, greeting
from gateway.settings import BackendSettings, RouteSettings, Server, Settings, Storage
from tests.e2e.harness import route, running

CONFIG = '[[backends]]\nname = "a"\nvendor = "scripted"\nmodel = "m"\nprice = { input = "1", output = "2" }\n' + route("assistant", "a")


def test_what_it_prints_can_be_sent(tmp_path: Path) -> None:
    with running(tmp_path, CONFIG) as gateway:
        said = gateway.cli("hello")
        words = shlex.split(said[said.index("curl") :].replace("\\\n", ""))
        url = next(word for word in words if word.startswith("http"))
        headers = [words[place + 1] for place, word in enumerate(words) if word == "-H"]
        key = headers[0].removeprefix("Authorization: Bearer ")
        body = words[words.index("-d") + 1].encode()
        assert url == f"{gateway.url}/v1/chat/completions"
        status, answer, _ = gateway.call("POST", "/v1/chat/completions", body, key)
        assert status == 200
        assert answer.rstrip().endswith(b"data: [DONE]")


def test_it_gives_up_when_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.01)
    assert not answers("http://127.0.0.1:9/health/live", 0.1)


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:4000"), ("0.0.0.0", "http://127.0.0.1:4000"), ("::1", "http://[::1]:4000")]
)
def test_where(host: str, url: str) -> None:
    assert base_url(Server(host=host)) == url


def test_a_model_that_is_still_on_its_way_is_named(tmp_path: Path) -> None:
    smol = BackendSettings(name="smol", vendor="local", model="smollm2-135m")
    settings = Settings(storage=Storage(state_dir=str(tmp_path)), backends=(smol,), routes=(RouteSettings(name="r", backends=("smol",)),))
    said = greeting(settings, "http://x", "tw-k")
    assert "smollm2-135m is on its way" in said and '"model": "r"' in said
    (tmp_path / "models" / "smollm2-135m").mkdir(parents=True)
    (tmp_path / "models" / "smollm2-135m" / "config.json").write_text("{}")
    assert "on its way" not in greeting(settings, "http://x", "tw-k")
