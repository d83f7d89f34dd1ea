from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from local_engine.__main__ import main
from local_engine.bench import exact


def test_every_way_equals_transformers(tiny: Path) -> None:
    prompts = exact.some_prompts(tiny, 8, 90)
    assert [len(prompts[0]), len(prompts[-1])] == [1, 90]
    found = {one.way: one for one in exact.compare(tiny, prompts, 40)}
    assert len(found) == len(exact.WAYS)
    assert all(one.equal == 8 for one in found.values()), found
    assert found["with known prefixes"].hit_tokens > 100
    assert found["preempted"].preemptions > 0


def test_a_difference_is_wrong_unless_the_reference_hesitates(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["bench", "exact", "--model-dir", str(tiny), "--prompts", "2", "--longest", "9", "--tokens", "3"]
    true = exact.reference
    assert main(command) == 0
    for margin, status in ((1.0, 1), (0.5 * exact.TIE, 0)):

        def other(folder: Path, prompts: Sequence[list[int]], tokens: int, margin: float = margin) -> list[exact.Reference]:
            first, *rest = true(folder, prompts, tokens)
            return [exact.Reference([299, *first.ids[1:]], [margin] * tokens), *rest]

        monkeypatch.setattr(exact, "reference", other)
        assert main(command) == status
