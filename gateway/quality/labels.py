"""Labels: prompts and whether a weak and a strong model answered them right, one JSON object a line, gzip or plain.

Knows no model. Questions that differ only in case, spacing and punctuation count as one and never stand on both sides of a split.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

LEAST = 200  # labels, each of another question, that a model can be made of
LINE_MOST = 1024 * 1024

Right = Annotated[float, Meta(ge=0, le=1)] | bool


class LabelsError(Exception):
    """Labels that cannot be used; the message names file, line, column and remedy."""


class Label(Struct, frozen=True, kw_only=True):
    """weak_correct, strong_correct: 0 or 1, or a score between. bench, subject: to report by, "" = none."""

    prompt: Annotated[str, Meta(min_length=1)]
    weak_correct: Right
    strong_correct: Right
    bench: str = ""
    subject: str = ""


def read_labels(path: Path) -> list[Label]:
    """All of a file's labels, of at least LEAST questions. Other columns are ignored. Raises LabelsError."""
    decoder = msgspec.json.Decoder(Label)
    found = []
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    found.append(decoder.decode(line))
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise LabelsError(f"{path}, line {number}: {_told(str(error))}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise LabelsError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if len(found) < LEAST:
        raise LabelsError(f"{path}: holds {len(found)} labels; at least {LEAST} are needed.")
    different = len(set(questions(found)))
    if different < LEAST:
        raise LabelsError(f"{path}: its {len(found)} labels are of {different} different questions; at least {LEAST} are needed.")
    return found


def _told(said: str) -> str:
    missing = re.match(r"Object missing required field `(\w+)`", said)
    if missing is not None:
        return f"has no `{missing[1]}`; each line needs `prompt`, `weak_correct` and `strong_correct`."
    column = re.search(r"at `\$\.(\w+)`", said)
    if column is None:
        return f"is no JSON object ({said})."
    wanted = "0 or 1, or a score between" if column[1].endswith("_correct") else "a text, not empty"
    return f"`{column[1]}` must be {wanted}."


def questions(labels: Sequence[Label]) -> list[int]:
    """A number per label; the same question has the same."""
    return [zlib.crc32(" ".join(re.findall(r"\w+", label.prompt.lower())).encode("utf-8", "replace")) for label in labels]


def folds(groups: Sequence[int], count: int, seed: int) -> NDArray[np.int64]:
    """A fold per label, 0 to count - 1; labels of one group share it."""
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    drawn = np.random.default_rng(seed).permutation(len(places)) % count
    return np.array([drawn[places[group]] for group in groups], np.int64)
