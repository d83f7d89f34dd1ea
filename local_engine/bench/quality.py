"""What a precision costs: perplexity, choices that stay the same and KL divergence against f32, each token told (teacher-forced).

Also with the text computed in pieces of other sizes, as chunked prompts, reused prefixes and preemption do. Knows no scheduling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy, kl_div

from local_engine.calibrate import told_text
from local_engine.errors import ConfigError
from local_engine.kv_cache import blocks_of
from local_engine.loader import load
from local_engine.model_runner import Span, lay_out, new_caches
from local_engine.models.llama import Llama
from local_engine.tokenizer import Tokenizer

WINDOW = 512  # tokens that see each other
PIECES = (64, 16, 1)  # tokens computed at once, beside the whole window; 1 is how answers are written


class Case(NamedTuple):
    """One way to compute the windows."""

    precision: str
    piece: int

    @property
    def name(self) -> str:
        return f"{self.precision}, whole" if self.piece >= WINDOW else f"{self.precision}, {self.piece} at once"


class Score(NamedTuple):
    """Means over all tokens of a text. `same`: share of places where the likeliest token is that of f32. `kl` in nats."""

    perplexity: float
    same: float
    kl: float


def measure(folder: Path, text: str, *, tokens: int, precisions: Sequence[str] = ("bf16", "int8")) -> Iterator[tuple[Case, Score]]:
    """Scores of f32 and of every other precision, whole and in pieces. ConfigError when `text` has too few tokens for one window."""
    ids = Tokenizer(load(folder).folder).encode(text)
    windows = [ids[at : at + WINDOW] for at in range(0, min(len(ids), tokens) - WINDOW + 1, WINDOW)]
    if not windows:
        raise ConfigError(f"the text has {len(ids)} tokens, and {min(len(ids), tokens)} of them are used: at least {WINDOW} are needed")
    reference = _model(folder, "f32")
    for precision in ("f32", *precisions):
        model = reference if precision == "f32" else _model(folder, precision)
        for piece in (WINDOW, *(PIECES if precision == "int8" else ())):
            parts = [_window_score(reference, model, window, piece) for window in windows]
            sums = torch.tensor(parts, dtype=torch.float64).mean(0).tolist()
            yield Case(precision, piece), Score(torch.tensor(sums[0]).exp().item(), sums[1], sums[2])


@torch.inference_mode()
def logits(model: Llama, ids: Sequence[int], piece: int) -> torch.Tensor:
    """f32 [len(ids), vocab], the text computed `piece` tokens at a time."""
    device = model.embedding.device
    blocks = list(range(blocks_of(len(ids))))
    caches = new_caches(model, len(blocks))
    given, places = torch.tensor(ids, device=device), torch.arange(len(ids), device=device)
    out = []
    for start in range(0, len(ids), piece):
        stop = min(start + piece, len(ids))
        rows = torch.arange(stop - start, device=device)
        layout = lay_out([Span(blocks, start, stop - start)], device)
        out.append(model.forward(given[start:stop], places[start:stop], caches, layout, rows))
    return torch.cat(out)


def table(found: Sequence[tuple[Case, Score]]) -> str:
    """In Markdown, the KL of pieces beside that of the whole window."""
    whole = {case.precision: score.kl for case, score in found if case.piece >= WINDOW}
    lines = ["| computed | perplexity | same choice as f32 | KL to f32, nats | against the whole window |", "|---|---|---|---|---|"]
    for case, score in found:
        ratio = score.kl / whole[case.precision] if whole[case.precision] > 0 else 1.0
        beside = "" if case.piece >= WINDOW else f"{ratio - 1:+.1%}"
        lines.append(f"| {case.name} | {score.perplexity:.2f} | {score.same:.1%} | {score.kl:.5f} | {beside} |")
    return "\n".join(lines)


def run(options: Any) -> int:
    """The command `bench quality`."""
    text = Path(options.text).read_text(encoding="utf-8") if options.text else told_text()
    torch.set_num_threads(options.threads)
    found = []
    for case, score in measure(Path(options.model_dir), text, tokens=options.tokens):
        found.append((case, score))
        print(f"{case.name}: {score}", flush=True)  # noqa: T201 - a command's answer
    print("\n" + table(found))  # noqa: T201
    return 0


def _model(folder: Path, precision: str) -> Llama:
    model = load(folder, precision)
    return Llama(model.shape, model.weights, torch.get_num_threads())


def _window_score(reference: Llama, model: Llama, ids: Sequence[int], piece: int) -> tuple[float, float, float]:
    """Negative log likelihood, share of same choices and KL, means over the window."""
    true = logits(reference, ids, WINDOW)
    found = true if model is reference and piece >= WINDOW else logits(model, ids, piece)
    loss = cross_entropy(found[:-1], torch.tensor(ids[1:], device=found.device))
    same = (true.argmax(-1) == found.argmax(-1)).double().mean()
    kl = kl_div(found.log_softmax(-1), true.log_softmax(-1), reduction="batchmean", log_target=True)
    return loss.item(), same.item(), kl.item()
