"""Part of `make bench-router`: how well weak backends are told what they will do, on the public labels, and what a judgement costs.

    python -m tests.bench.quality [--write]

Every label is judged by a model that was trained without its fifth; then every subject of MMLU by one trained without that subject.
Prints Markdown; --write puts it into docs/routing.md. Data: the folder named by TOLLWAY_ROUTING_DATA.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gateway.quality import measures
from gateway.quality.labels import Label, folds, questions, read_labels
from gateway.quality.measures import Judged
from gateway.quality.train import Recipe, crossed
from gateway.routing.quality import DEFAULT, load

PAGE = Path(__file__).parents[2] / "docs" / "routing.md"
MARK = "<!-- bench-quality -->\n"
FIFTHS, SUBJECTS = 5, 5  # parts of the labels, groups of subjects
SEED = 2027  # not the one by which anything was chosen
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
HEAD = ("labels", "weak / strong right", "APGR", "saved at 95 %", "ECE", "worst", "realised share, most off")


def subject_groups(labels: Sequence[Label]) -> list[int]:
    """A group per label: whole subjects of MMLU; −1 for GSM8K, which is only trained on."""
    names = sorted({label.subject for label in labels if label.bench == "mmlu"})
    drawn = dict(zip(names, (np.random.default_rng(SEED).permutation(len(names)) % SUBJECTS).tolist(), strict=True))
    return [drawn[label.subject] if label.bench == "mmlu" else -1 for label in labels]


def row(name: str, one: Judged, whole: Judged | None = None) -> str:
    def told(measure: Callable[[Judged], float]) -> str:
        return f"{measure(one):.3f} ± {measures.spread(measure, one):.3f}"

    error = max(measures.calibration_error(one.weak_odds, one.weak), measures.calibration_error(one.strong_odds, one.strong))
    off = "" if whole is None else f"{100 * max(abs(measures.realised(whole, share) - share) for share in SHARES):.1f} points"
    cells = (f"{len(one.gain):,}", f"{one.weak.mean():.3f} / {one.strong.mean():.3f}", told(measures.apgr), told(measures.saved))
    return f"| {name} | {' | '.join(cells)} | {error:.3f} | {measures.lowest(one):+.4f} | {off} |"


def cost_ms(labels: Sequence[Label]) -> tuple[float, float, float]:
    """(median, 95th percentile, longest) CPU milliseconds of one judgement."""
    model = load(DEFAULT)
    found = []
    for label in labels[:1000]:
        began = time.process_time()
        model.judge(label.prompt)
        found.append(1000 * (time.process_time() - began))
    return statistics.median(found), float(np.quantile(found, 0.95)), max(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    folder = os.environ.get("TOLLWAY_ROUTING_DATA", "")
    if not folder:
        raise SystemExit("TOLLWAY_ROUTING_DATA must name the folder with routellm_labels_dev.jsonl.gz.")
    labels = read_labels(Path(folder) / "routellm_labels_dev.jsonl.gz")
    bench = np.array([label.bench for label in labels])
    lines = [f"| questions | {' | '.join(HEAD)} |", "|---" * (len(HEAD) + 1) + "|"]
    found = crossed(labels, folds(questions(labels), FIFTHS, SEED), Recipe())
    lines += [row(name, found.some(bench == key)) for name, key in (("MMLU", "mmlu"), ("GSM8K", "gsm8k"))]
    lines.append(row("both", found, found))
    groups = np.array(subject_groups(labels))
    lines.append(row("MMLU, whole subjects unseen", crossed(labels, groups, Recipe())))
    middle, high, longest = cost_ms(labels)
    lines.append(f"\nA judgement took {middle:.2f} ms of CPU (median), {high:.2f} (95th percentile), {longest:.2f} (the longest prompt).")
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.write:
        before, _, after = PAGE.read_text(encoding="utf-8").split(MARK)
        PAGE.write_text(before + MARK + text + MARK + after, encoding="utf-8")


if __name__ == "__main__":
    main()
