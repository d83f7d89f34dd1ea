"""`tollway quality`: models that say where a weak backend will do, trained and judged on labels."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from gateway.cli.database import fail
from gateway.routing.quality import DEFAULT, Model, QualityError, load

if TYPE_CHECKING:
    from gateway.quality.labels import Label
    from gateway.quality.measures import Judged

app = App(name="quality", help="Models that say where a weak backend will do: train and judge them.")

SHARES = (0.1, 0.25, 0.5, 0.75)  # of strong calls, whose realised share is told
PARTS = 5  # each fifth of the labels is judged by a model trained on the others
SEED = 1


@app.command
def train(*, labels: Path, into: Path, origin: str = "own labels") -> None:
    """Train a model on labels and write it to a file, which a route names as `quality.model`.

    Parameters
    ----------
    labels
        One JSON object a line: prompt, weak_correct, strong_correct (0 or 1), and if you like bench and subject; .gz is read too.
    into
        The file to write.
    origin
        Where the labels come from and under what licence; it is kept in the file.
    """
    rows = _read(labels)
    from gateway.quality.train import Recipe, table_of
    from gateway.quality.train import train as trained

    raw = trained(table_of(rows), {"origin": origin, "labels": str(len(rows))}, Recipe())
    try:
        into.write_bytes(raw)
    except OSError as error:
        fail(f"{into}: cannot be written ({error.strerror})")
    model = Model(raw)
    print(f"{into}: model {model.version} of {len(rows)} labels, {len(raw) // 1024} KiB")
    print(f'Name it in a route: [routes.quality] with weak = [...], strong_share = ... or floor = ..., model = "{into}"')


@app.command
def evaluate(*, labels: Path, model: Path | None = None) -> None:
    """How well routing by predicted gain does on labels that the model has not seen.

    Parameters
    ----------
    labels
        As for train.
    model
        Judge this file, which should not have been trained on these labels; `default` is the one that ships. Without it models are trained
        on four fifths of the labels and judged on the last, for each fifth.
    """
    rows = _read(labels)
    if model is None:
        from gateway.quality.labels import folds, questions
        from gateway.quality.train import Recipe, crossed

        found = crossed(rows, folds(questions(rows), PARTS, SEED), Recipe())
    else:
        from gateway.quality.train import judged

        try:
            found = judged(load(DEFAULT if str(model) == "default" else model), rows)
        except QualityError as error:
            fail(str(error))
    print(report(rows, found))


def report(rows: Sequence[Label], found: Judged) -> str:
    """A line per bench and one for all, with standard errors, then what becomes of a wanted share of strong calls."""
    import numpy as np

    from gateway.quality.measures import realised

    names = sorted({row.bench for row in rows})
    benches = np.array([row.bench for row in rows])
    lines = [f"{'':12} {'labels':>6} {'weak':>6} {'strong':>6} {'APGR':>13} {'saved at 95 %':>15} {'ECE':>8} {'worst':>7}"]
    lines += [_line(name or "(none)", found.some(benches == name)) for name in names]
    if len(names) > 1:
        lines.append(_line("all", found))
    shares = ", ".join(f"{share:.0%}: {realised(found, share):.1%}" for share in SHARES)
    return "\n".join([*lines, f"share of strong calls, wanted: realised: {shares}; unfamiliar prompts {1 - found.familiar.mean():.1%}"])


def _line(name: str, one: Judged) -> str:
    from gateway.quality import measures

    error = max(measures.calibration_error(one.weak_odds, one.weak), measures.calibration_error(one.strong_odds, one.strong))
    return (
        f"{name[:12]:12} {len(one.gain):6d} {one.weak.mean():6.3f} {one.strong.mean():6.3f} "
        f"{measures.apgr(one):.3f} ± {measures.spread(measures.apgr, one):.3f} "
        f"{measures.saved(one):7.3f} ± {measures.spread(measures.saved, one):.3f} {error:8.3f} {measures.lowest(one):+7.3f}"
    )


def _read(path: Path) -> list[Label]:
    if importlib.util.find_spec("numpy") is None:
        fail("training and judging need numpy: pip install 'tollway[quality]'")
    from gateway.quality.labels import LabelsError, read_labels

    try:
        return read_labels(path)
    except LabelsError as error:
        fail(str(error))
