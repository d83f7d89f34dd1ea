"""From labels to a file that the gateway reads: what was put into made-up labels is found, true in its odds, and the same each time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gateway.quality import measures
from gateway.quality.labels import Label, folds, questions
from gateway.quality.train import Recipe, crossed, judged, table_of, train
from gateway.routing.quality import MILLION, Model

Make = Callable[..., list[Label]]


@pytest.fixture(scope="module")
def raw(labels: Make, small: Recipe) -> bytes:
    return train(table_of(labels(500)), {"origin": "made up"}, small)


def test_what_is_hard_for_the_weak_model_is_found(labels: Make, raw: bytes) -> None:
    fresh = labels(400, seed=9)
    found = judged(Model(raw), fresh)
    hard = np.array([label.bench == "hard" for label in fresh])
    assert found.gain[hard].mean() == pytest.approx(0.75, abs=0.12)
    assert found.gain[~hard].mean() == pytest.approx(0.0, abs=0.12)
    assert found.weak_odds[hard].mean() == pytest.approx(0.2, abs=0.12)
    assert measures.apgr(found) > 0.7
    assert measures.calibration_error(found.weak_odds, found.weak) < 0.1
    assert measures.lowest(found) >= -0.02
    assert found.familiar.mean() > 0.95


def test_the_file_is_the_same_each_time_and_says_where_it_comes_from(labels: Make, small: Recipe, raw: bytes) -> None:
    assert train(table_of(labels(500)), {"origin": "made up"}, small) == raw
    assert Model(raw).about == {"origin": "made up"}
    assert list(Model(raw).gains) == sorted(Model(raw).gains)


def test_every_label_is_judged_by_a_model_that_has_not_seen_it(labels: Make, small: Recipe) -> None:
    rows = labels(250)
    parts = folds(questions(rows), 2, 0)
    parts[:20] = -1
    found = crossed(rows, parts, small)
    assert len(found.gain) == 230
    assert found.weak.tolist() == [float(row.weak_correct) for row in rows[20:]]
    part = np.flatnonzero(parts == 1)
    alone = judged(Model(train(table_of([rows[i] for i in np.flatnonzero(parts != 1)]), {}, small)), [rows[i] for i in part])
    assert found.gain[part - 20].tolist() == alone.gain.tolist()


def test_a_prompt_in_another_language_is_unfamiliar(raw: bytes) -> None:
    model = Model(raw)
    assert model.judge("please tell me about the capital of thing number 7?").familiar
    foreign = model.judge("Wie spät ist es morgen früh in Buxtehude und wer kocht dort Kaffee")
    assert not foreign.familiar and foreign.unseen > MILLION // 2
    assert not model.judge("").familiar or model.judge("").unseen == MILLION
