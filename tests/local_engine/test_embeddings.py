"""Vectors against transformers' own, alone and in company; the turns of callers; what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.embeddings import Embedder, EmbeddingQueue, Job, makes_embeddings
from local_engine.errors import BadRequest, ConfigError, ContextExceeded
from local_engine.wire import Embed, Refused, Vectors
from tests.local_engine.tiny_bert import MOST_TOKENS, make_bert

TEXTS = ["the quick brown fox", "dog", "one two three the the quick quick jumps over the lazy dog", "日本語 😀 é", ""]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def embedder(bert: Path) -> Embedder:
    return Embedder(bert)


def real_bert() -> Path | None:
    """all-MiniLM-L6-v2 where it has been fetched."""
    folder = Path(os.environ.get("TOLLWAY_MODELS") or Path.home() / ".cache/tollway/models") / "all-minilm-l6-v2"
    return folder if (folder / "config.json").exists() else None


def theirs(folder: Path, ids: list[list[int]]) -> torch.Tensor:
    """Each alone, pooled and normed as its model card says."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        means = [model(torch.tensor([one])).last_hidden_state[0].mean(0) for one in ids]
    return torch.nn.functional.normalize(torch.stack(means), dim=-1)


def assert_equal_to_transformers(folder: Path, texts: list[str]) -> None:
    embedder = Embedder(folder)
    ids = [embedder.encode(text) for text in texts]
    found = embedder.vectors(ids)
    assert torch.allclose(found, theirs(folder, ids), atol=1e-5)
    assert torch.allclose(found.norm(dim=-1), torch.ones(len(texts)))


def test_vectors_equal_transformers_in_a_batch_of_every_length(bert: Path) -> None:
    assert_equal_to_transformers(bert, TEXTS)


@pytest.mark.skipif(real_bert() is None, reason="all-MiniLM-L6-v2 has not been fetched")
def test_minilm_equals_transformers_and_knows_what_is_alike() -> None:
    folder = real_bert()
    assert folder is not None
    texts = ["A cat sits on the mat.", "A kitten is sitting on a rug.", "Interest rates rose by half a percent.", "word " * 200]
    assert_equal_to_transformers(folder, texts)
    embedder = Embedder(folder)
    alike = embedder.vectors([embedder.encode(text) for text in texts[:3]])
    assert alike[0] @ alike[1] > 0.5
    assert alike[0] @ alike[2] < 0.2


def test_a_text_gets_its_model_s_own_tokens_and_is_never_cut(embedder: Embedder) -> None:
    ids = embedder.encode("the quick")
    assert (ids[0], ids[-1]) == (2, 3)
    assert embedder.encode(ids[1:-1]) == ids
    assert len(embedder.encode("dog " * (MOST_TOKENS - 2))) == MOST_TOKENS
    with pytest.raises(ContextExceeded, match=f"{MOST_TOKENS + 1} tokens, over this model's {MOST_TOKENS}"):
        embedder.encode("dog " * (MOST_TOKENS - 1))
    with pytest.raises(BadRequest, match="token ids"):
        embedder.encode([10**6])


class Caller:
    def __init__(self) -> None:
        self.answers: list[Vectors | Refused] = []

    def job(self, key: int, inputs: list[str | list[int]]) -> Job:
        return Job(self, Embed(key, inputs), self.answers.append)


def finish(work: EmbeddingQueue) -> int:
    steps = 0
    while work.busy:
        assert work.step() == []
        steps += 1
    return steps


def make_queue(bert: Path, **options: Any) -> EmbeddingQueue:
    return EmbeddingQueue(bert, EngineConfig(model_dir=str(bert), threads=1, **options))


def vectors(answer: Vectors | Refused) -> torch.Tensor:
    assert isinstance(answer, Vectors)
    return torch.frombuffer(bytearray(answer.data), dtype=torch.float32).view(-1, answer.size)


def test_answers_stand_in_the_order_of_their_inputs(bert: Path, embedder: Embedder) -> None:
    work, caller = make_queue(bert), Caller()
    work.add(caller.job(7, [*TEXTS, [20, 21]]))
    finish(work)
    answer = caller.answers[0]
    assert isinstance(answer, Vectors)
    ids = [embedder.encode(given) for given in [*TEXTS, [20, 21]]]
    assert (answer.id, answer.tokens) == (7, sum(len(one) for one in ids))
    assert torch.allclose(vectors(answer), torch.cat([embedder.vectors([one]) for one in ids]), atol=1e-5)
    assert work.stats.prompt_tokens == answer.tokens


def test_a_long_request_takes_turns_with_a_short_one(bert: Path) -> None:
    work, long, short = make_queue(bert), Caller(), Caller()
    work.add(long.job(1, ["the quick brown fox jumps over the lazy dog " * 3] * 700))
    work.step()
    work.add(short.job(1, ["dog"]))
    assert (work.stats.running, work.stats.waiting) == (1, 1)
    work.step()
    work.step()
    assert (len(long.answers), len(short.answers)) == (0, 1)
    assert finish(work) > 2
    assert len(vectors(long.answers[0])) == 700


def test_what_cannot_be_is_refused_and_the_others_go_on(bert: Path) -> None:
    work, caller = make_queue(bert, max_sequences=1, max_waiting=2), Caller()
    work.add(caller.job(1, ["dog " * 100]))
    work.add(caller.job(2, ["dog"]))
    work.add(caller.job(3, []))
    work.add(caller.job(4, ["dog"]))
    work.add(caller.job(5, ["dog"]))
    finish(work)
    kinds = {answer.id: answer.kind if isinstance(answer, Refused) else "answered" for answer in caller.answers}
    assert kinds == {3: "bad_request", 5: "unavailable", 1: "context", 2: "answered", 4: "answered"}


def test_who_has_gone_is_forgotten(bert: Path) -> None:
    work, caller, other = make_queue(bert), Caller(), Caller()
    for key in (1, 2):
        work.add(caller.job(key, ["dog"]))
        work.add(other.job(key, ["dog"]))
    work.cancel(caller, 1)
    work.cancel(other)
    finish(work)
    assert [answer.id for answer in caller.answers] == [2]
    assert other.answers == []


@pytest.mark.parametrize(
    ("file", "members", "says"),
    [
        ("config.json", {"hidden_act": "relu"}, "hidden_act"),
        ("config.json", {"num_hidden_layers": 3}, r"lack encoder\.layer\.2"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling_mode_max_tokens"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(tmp_path: Path, file: str, members: dict[str, Any], says: str) -> None:
    folder = make_bert(tmp_path / "m")
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | members))
    with pytest.raises(ConfigError, match=says):
        Embedder(folder)


def test_models_of_this_kind_are_known_by_their_config(bert: Path, tiny: Path, tmp_path: Path) -> None:
    assert makes_embeddings(bert)
    assert not makes_embeddings(tiny)
    assert not makes_embeddings(tmp_path)
