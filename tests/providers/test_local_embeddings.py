"""The provider over a real engine process with a tiny model that makes embeddings."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.client import EngineClient
from local_engine.embeddings import Embedder
from local_engine.errors import BadRequest
from local_engine.wire import Params
from providers.dialects import DIALECTS
from providers.errors import ContextTooLong, ProviderError, Rejected, Unsupported
from providers.local import LocalProvider
from providers.types import Deadline, Frame, Request, Target
from tests.local_engine.tiny import engine_process, until, wait_ready
from tests.local_engine.tiny_bert import make_bert


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("engine") / "b.sock"
    with engine_process(path, model_dir, "--threads", "1"):
        wait_ready(path)
        yield path


@pytest.fixture
async def provider(socket: Path, model_dir: Path) -> AsyncIterator[LocalProvider]:
    made = LocalProvider(socket, model_dir, "bert", embeds=True)
    yield made
    await made.close()


async def frames(provider: LocalProvider, request: Request) -> list[Frame]:
    async with aclosing(provider.call(request, Target(backend="vectors", model="bert", salt="team"), Deadline())) as source:
        return [frame async for frame in source]


def text(content: str) -> Request:
    body = {"model": "vectors", "messages": [{"role": "user", "content": content}]}
    return DIALECTS["openai_chat"].decode_request(json.dumps(body).encode())


def embed(given: Any, **fields: Any) -> Request:
    return DIALECTS["openai_embeddings"].decode_request(json.dumps({"model": "vectors", "input": given, **fields}).encode())


def answered(request: Request, found: list[Frame]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(DIALECTS["openai_embeddings"].encode_answer(found, request))
    return answer


async def test_vectors_of_many_texts_stand_in_order_with_exact_usage(provider: LocalProvider, model_dir: Path) -> None:
    model = Embedder(model_dir)
    texts = [f"the quick {'brown ' * (i % 7)}fox" for i in range(300)]  # several calls to the engine
    ids = [model.encode(text) for text in texts]
    answer = answered(embed(texts), await frames(provider, embed(texts)))
    assert [one["index"] for one in answer["data"]] == list(range(300))
    found = torch.tensor([one["embedding"] for one in answer["data"]])
    assert torch.allclose(found, model.vectors(ids), atol=1e-5)
    assert answer["usage"] == {"prompt_tokens": sum(len(one) for one in ids), "total_tokens": sum(len(one) for one in ids)}
    packed = embed("dog", encoding_format="base64", dimensions=32)
    assert len(b64decode(answered(packed, await frames(provider, packed))["data"][0]["embedding"])) == 32 * 4
    assert await provider.check() is None


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        (embed("dog " * 100), ContextTooLong, "102 tokens, over this model's 40"),
        (embed([[999_999]]), Rejected, "token ids must be in"),
        (embed("dog", dimensions=8), Rejected, "can only be 32"),
    ],
)
async def test_what_an_embedding_model_cannot_do_is_told(
    provider: LocalProvider, asked: Request, error: type[ProviderError], says: str
) -> None:
    with pytest.raises(error, match=says):
        await frames(provider, asked)


async def test_models_of_the_other_kind_are_told_apart(provider: LocalProvider, socket: Path, model_dir: Path) -> None:
    with pytest.raises(Unsupported, match="makes embeddings and generates no text"):
        await frames(provider, text("the quick"))
    generating = LocalProvider(socket, model_dir, "bert")
    with pytest.raises(Unsupported, match="generates text and makes no embeddings"):
        await frames(generating, embed("dog"))
    client = EngineClient(str(socket))  # and by the engine itself
    with pytest.raises(BadRequest, match="makes embeddings and generates no text"):
        await anext(client.submit("dog", Params()))
    await client.close()


async def test_embeddings_that_nobody_waits_for_any_more_are_forgotten(provider: LocalProvider, socket: Path) -> None:
    client = EngineClient(str(socket))
    calls = [asyncio.ensure_future(client.embed(["the quick brown fox jumps over the lazy dog " * 3] * 2000)) for _ in range(3)]
    await until(lambda: busy(client), 60)
    for call in calls:
        call.cancel()
    await until(lambda: idle(client), 60)
    assert len((await client.embed(["dog"])).data) == 32 * 4
    await client.close()


async def busy(client: EngineClient) -> bool:
    return (await client.stats()).running > 0


async def idle(client: EngineClient) -> bool:
    return not await busy(client)
