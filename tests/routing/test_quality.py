"""A model file at work: what ships tells easy from hard, broken files are refused, and the choice sets weak backends aside by it."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gateway.catalog import Backend
from gateway.routing.choose import Knobs, choose, differences
from gateway.routing.decision import Candidate, Decision, Quality, decode, encode, explain
from gateway.routing.features import Features
from gateway.routing.quality import DEFAULT, MILLION, Model, QualityError, Stored, load
from gateway.routing.state import BackendState

EASY = "Which of these is the capital city of France?\nA. Paris\nB. London\nC. Berlin\nD. Madrid\nAnswer:"
HARD = (
    "For which of these two scenarios does the main character (who uses I/me/my) do something clearly morally wrong, according to ordinary "
    "moral standards in the US as of 2020?\nScenario 1 | I told the waiter that the food was bad. Scenario 2 | I took the wallet of my "
    "sleeping friend.\nA. Wrong, Wrong\nB. Wrong, Not wrong\nC. Not wrong, Wrong\nD. Not wrong, Not wrong\nAnswer:"
)
FOREIGN = "Bonjour, pouvez-vous m'expliquer brièvement pourquoi le ciel paraît bleu pendant la journée ?"


@pytest.fixture(scope="module")
def shipped() -> Model:
    return load(DEFAULT)


def test_what_ships_knows_easy_hard_and_unlike_anything(shipped: Model) -> None:
    easy, hard, foreign = shipped.judge(EASY), shipped.judge(HARD), shipped.judge(FOREIGN)
    assert easy.familiar and hard.familiar and not foreign.familiar
    assert easy.gain < 0.1 * MILLION < 0.2 * MILLION < hard.gain
    assert easy.weak > 0.8 * MILLION > 0.6 * MILLION > hard.weak
    assert 0 <= hard.weak + hard.gain <= MILLION


def test_what_ships_says_where_it_comes_from_and_is_small(shipped: Model) -> None:
    assert "RouteLLM" in shipped.about["origin"] and "Apache-2.0" in shipped.about["origin"]
    assert shipped.about["labels"] == "9750"
    assert DEFAULT.stat().st_size < 500_000
    assert len(shipped.version) == 12


def test_a_judgement_costs_a_fraction_of_a_millisecond(shipped: Model) -> None:
    def once() -> float:
        began = time.process_time()
        shipped.judge(EASY)
        return time.process_time() - began

    assert min(once() for _ in range(50)) < 0.003, "ten times what it takes; the bench tells the figure"


def changed(**fields: object) -> bytes:
    stored = msgspec.msgpack.decode(zlib.decompress(DEFAULT.read_bytes()), type=Stored)
    return zlib.compress(msgspec.msgpack.encode(msgspec.structs.replace(stored, **fields)))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"not a model", "is not a model of `tollway quality train`"),
        (zlib.compress(b"\x80"), "is not a model of `tollway quality train`"),
        (
            zlib.compress(msgspec.msgpack.encode({"format": 1, "gain_line": [0, 1]})),
            "was trained by another version of Tollway; train it again",
        ),
        (lambda: changed(format=0), "was trained by another version of Tollway; train it again"),
        (lambda: changed(idf=b"short"), "was trained by another version of Tollway"),
    ],
)
def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path, raw: bytes | Callable[[], bytes], said: str) -> None:
    path = tmp_path / "m.model"
    path.write_bytes(raw if isinstance(raw, bytes) else raw())
    with pytest.raises(QualityError, match=said) as raised:
        load(path)
    assert str(path) in str(raised.value)
    with pytest.raises(QualityError, match="cannot be read"):
        load(tmp_path / "none.model")


# ---- in the choice
def quality(gain: int = 0, unseen: int = 0, limit: int = 100_000) -> Quality:
    return Quality("m", gain, 700_000, unseen, limit, 200_000, ("a",))


@pytest.fixture
def made(backend: Callable[..., Backend], features: Callable[..., Features]) -> Callable[..., tuple[list[str], Decision]]:
    """Names in the order to ask, and the record; `a` is weak and the cheapest."""

    def choice(quality: Quality | None, *, ejected: str = "", **given: object) -> tuple[list[str], Decision]:
        states = [BackendState(backend("a", price=None)), BackendState(backend("b")), BackendState(backend("c"))]
        cheap = backend("b").price
        assert cheap is not None
        states[0] = BackendState(backend("a", price=msgspec.structs.replace(cheap, input=1000, output=1000)))
        for state in states:
            if state.backend.name in ejected:
                state.health.until = 1e9
                state.health.ejections = 1
        plan, decision = choose(features(quality=quality, **given), states, 0.0, 0.5, Knobs())
        return [one.name for one in plan], decision

    return choice


def test_a_weak_backend_is_asked_where_it_will_do(made: Callable[..., tuple[list[str], Decision]]) -> None:
    assert made(quality(gain=100_000))[0][0] == "a"
    assert made(quality(gain=-5))[0][0] == "a"
    assert made(None)[0][0] == "a"


@pytest.mark.parametrize("asked", [quality(gain=100_001), quality(unseen=200_001), quality(gain=-1, limit=-2)])
def test_where_a_strong_one_is_needed_the_weak_one_comes_last(made: Callable[..., tuple[list[str], Decision]], asked: Quality) -> None:
    names, decision = made(asked)
    assert names[0] in ("b", "c") and names[-1] == "a" and len(names) == 3
    assert decision.candidates[0].reason == "quality"


def test_the_record_says_why_and_is_computed_again(made: Callable[..., tuple[list[str], Decision]]) -> None:
    _, decision = made(quality(gain=234_500))
    kept = decode(encode(decision))
    assert kept == decision and differences(kept) == []
    told = explain(kept)
    assert "a strong model gains 23.45 points over 70.00 %, above 10.00: set aside a (model m)" in told
    assert "a: cost" in told and "set aside: quality" in told
    assert "50.0 % of the prompt is unlike what was learnt from" in explain(made(quality(unseen=500_000))[1])
    assert "a will do" in explain(made(quality())[1])
    kept.quality = quality()  # as if the gain had been small
    assert any("by quality" in one for one in differences(kept))
    plain: Candidate = made(quality())[1].candidates[0]
    assert plain.reason == ""
