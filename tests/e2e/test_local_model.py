"""The real small model answers through the whole gateway: engine process, chat template, stream, ledger."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.harness import route, running

MODELS = Path(os.environ.get("TOLLWAY_MODELS") or Path.home() / ".cache" / "tollway" / "models")
LOCAL = '[[backends]]\nname = "smol"\nvendor = "local"\nmodel = "smollm2-135m"\nprice = { input = "0.02", output = "0.06" }\n'


@pytest.mark.skipif(not (MODELS / "smollm2-135m" / "config.json").exists(), reason="no model: `tollway models get smollm2-135m` fetches it")
def test_smollm2_streams_an_answer(tmp_path: Path) -> None:
    with running(tmp_path, LOCAL + route("assistant", "smol"), TOLLWAY_MODELS=str(MODELS)) as gateway:
        gateway.key("alpha")
        client = gateway.client()
        end = time.monotonic() + 60
        while True:  # the gateway serves before the model is loaded and says so
            try:
                whole = client.chat.completions.create(
                    model="assistant",
                    messages=[{"role": "user", "content": "What is the capital of France?"}],
                    temperature=0,
                    max_tokens=12,
                )
                break
            except openai.APIStatusError as error:
                assert error.status_code == 503 and "retry-after" in error.response.headers, error
                assert time.monotonic() < end
                time.sleep(0.5)
        assert "Paris" in (whole.choices[0].message.content or "")
        assert whole.usage is not None and 0 < whole.usage.completion_tokens <= 12
        stream = client.chat.completions.create(
            model="assistant",
            messages=[{"role": "user", "content": "Name the capital of France."}],
            temperature=0,
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = [c.choices[0].delta.content or "" for c in chunks if c.choices]
        assert "Paris" in "".join(text) and sum(map(bool, text)) > 2, "token by token"
        assert chunks[-1].usage is not None and chunks[-1].usage.prompt_tokens > 10
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="assistant", messages=[{"role": "user", "content": "word " * 9000}], max_tokens=10)
        assert caught.value.code == "context_length_exceeded"
        odd: list[Any] = [{"role": "user", "content": "x", "name": 5}]
        with pytest.raises(openai.BadRequestError) as caught:  # a member that a hosted backend of the same language would be left to judge
            client.chat.completions.create(model="assistant", messages=odd)
        assert caught.value.param == "messages[0].name"
        rows = [
            row
            for row in gateway.settled(4 + gateway.rows("SELECT count(*) AS n FROM usage WHERE status = 503")[0]["n"])
            if row["status"] == 200
        ]
        assert len(rows) == 2 and all(row["cost"] > 0 and not row["estimated"] for row in rows)
