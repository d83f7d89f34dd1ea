"""The real small model answers through the whole gateway: engine process, chat template, stream, ledger."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from local_engine.client import EngineClient
from local_engine.wire import Stats
from providers.figures import TOLLWAY, Figures, read
from tests.e2e.harness import Gateway, route, running
from tests.fixtures.waiting import until_true

MODELS = Path(os.environ.get("TOLLWAY_MODELS") or Path.home() / ".cache" / "tollway" / "models")
LOCAL = '[[backends]]\nname = "smol"\nvendor = "local"\nmodel = "smollm2-135m"\nprice = { input = "0.02", output = "0.06" }\n'


pytestmark = pytest.mark.skipif(
    not (MODELS / "smollm2-135m" / "config.json").exists(), reason="no model: `tollway models get smollm2-135m` fetches it"
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running(tmp_path_factory.mktemp("node"), LOCAL + route("assistant", "smol"), TOLLWAY_MODELS=str(MODELS)) as made:
        made.key("alpha")
        yield made


def test_smollm2_streams_an_answer(gateway: Gateway) -> None:
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


def on_the_socket(gateway: Gateway) -> Stats:
    async def ask() -> Stats:
        client = EngineClient(str(gateway.folder / "state" / "engine-smol.sock"))
        try:
            return await client.stats()
        finally:
            await client.close()

    return asyncio.run(ask())


def test_a_second_tollway_routes_here_and_sees_the_engine(gateway: Gateway, tmp_path: Path) -> None:
    """What the socket says, /metrics says, and the gateway in front reads it, with requests that did not come through it."""
    node = '[[backends]]\nname = "node"\nvendor = "tollway"\nmodel = "assistant"\napi_key = "env:NODE_KEY"\n'
    node += f'base_url = "{gateway.url}/v1"\nprice = {{ input = "0.02", output = "0.06" }}\n'
    often = "[figures]\nevery_s = 0.5\nmax_age_s = 600\ntimeout_s = 20\n"
    with running(tmp_path, node + often, NODE_KEY=gateway.keys["alpha"]) as front:
        front.key("alpha")
        seen: dict[str, Any] = {}

        def look() -> dict[str, Any]:
            told = front.admin("GET", "/admin/backends", None)["data"][0]["engine"]
            seen.clear()
            seen.update(told["figures"] or {})
            return seen

        direct = gateway.client().chat.completions.create(
            model="assistant",
            messages=[{"role": "user", "content": "Count."}],
            max_tokens=4000,
            stream=True,
            logit_bias={"0": -100, "2": -100},  # it never ends by itself
        )
        next(iter(direct))
        until_true(lambda: look().get("running") == 1, "the other client's request is seen")
        assert seen["waiting"] == 0 and 0.0 < seen["kv_share"] <= 1.0 and seen["kv_bytes_used"] > 0
        direct.close()
        answer = front.client().chat.completions.create(
            model="node", messages=[{"role": "user", "content": "Name the capital of France."}], temperature=0, max_tokens=4
        )
        assert answer.usage is not None and answer.usage.completion_tokens > 0
        until_true(lambda: on_the_socket(gateway).running == 0, "it is idle")
        stats = on_the_socket(gateway)
        assert read(gateway.get("/metrics")[1], TOLLWAY) == Figures(
            waiting=0,
            running=0,
            prefill_tokens=stats.outstanding_prefill_tokens,
            kv_share=stats.kv_bytes_used / stats.kv_bytes_cap,
            kv_bytes_used=stats.kv_bytes_used,
            kv_bytes_cap=stats.kv_bytes_cap,
            kv_blocks_used=stats.kv_blocks_used,
            kv_blocks_free=stats.kv_blocks_free,
            kv_blocks_shared=0,
            prompt_tokens=stats.prompt_tokens,
            prefix_hit_tokens=stats.prefix_hit_tokens,
            output_tokens=stats.output_tokens,
            preemptions=stats.preemptions,
            steps=stats.steps,
            batch=0,
        )
        wanted = (0, stats.prompt_tokens, stats.kv_bytes_cap)
        until_true(lambda: tuple(look().get(name) for name in ("running", "prompt_tokens", "kv_bytes_cap")) == wanted, "it is read again")
