"""The weights of a Hugging Face folder in the asked precision; int8 is made once and kept beside them. Knows names, not layers.

The int8 file holds every matrix product as values and scales, the norms that changed with them, and what it was made of: a changed model
makes it anew.
"""

from __future__ import annotations

import fcntl
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from local_engine.errors import ConfigError
from local_engine.layers.linear import Quantised, Weight, quantise

log = logging.getLogger("tollway.engine")
CACHE = ".tollway"  # a folder in the model's folder
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}  # of what is not quantised
SCALES = ".scales"
MADE_BY = 2  # changes with the way in which int8 is made
Prepare = Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def read_weights(folder: Path, precision: str, prepare: Prepare = dict) -> dict[str, Weight]:
    """By Hugging Face names. int8: products (the output head too) are Quantised, the rest is f32; `prepare` gives weights of the same model
    that are easier to quantise. ConfigError: no safetensors file."""
    with ExitStack() as stack:
        source = _Source(weight_files(folder), stack)
        if precision != "int8":
            return {name: source.read(name).to(TYPES[precision]) for name in source.names}
        weights: dict[str, Weight] = {name: source.read(name).float() for name in source.names if not is_product(name)}
        weights.update(_int8(folder, source, prepare))
    return weights


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of the folder, by their index where there is one. ConfigError naming what is missing."""
    files = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files = sorted({folder / name for name in _weight_map(index).values()})
    for file in files:
        if not file.is_file():
            raise ConfigError(f"{index} names {file.name}, which is missing")
    if not files:
        raise ConfigError(f"{folder} has no safetensors file")
    return files


def is_product(name: str) -> bool:
    return name.endswith("_proj.weight") or name == HEAD


class _Source:
    """Files open for reading one tensor at a time."""

    def __init__(self, files: list[Path], stack: ExitStack) -> None:
        from safetensors import SafetensorError, safe_open

        self.files = files
        self._where: dict[str, Any] = {}
        for file in files:
            try:
                opened = stack.enter_context(safe_open(str(file), framework="pt"))
            except SafetensorError as error:
                raise ConfigError(f"{file} cannot be read: {error}") from None
            self._where.update(dict.fromkeys(opened.keys(), opened))

    @property
    def names(self) -> list[str]:
        return list(self._where)

    def read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._where[name].get_tensor(name)
        return tensor

    @property
    def mark(self) -> str:
        """Changes when the files do."""
        return json.dumps([MADE_BY, *[[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in self.files]])


def _int8(folder: Path, source: _Source, prepare: Prepare) -> Mapping[str, Weight]:
    """The quantised products, from the file beside the model; made, and kept if the folder can be written, by the first who asks."""
    path = folder / CACHE / "int8.safetensors"
    kept = _kept(path, source.mark)
    if kept is not None:
        return kept
    try:
        path.parent.mkdir(exist_ok=True)
        with _locked(path.with_suffix(".lock")):
            kept = _kept(path, source.mark)
            if kept is None:
                kept = _quantised(source, prepare)
                _keep(path, kept, source.mark)
    except OSError as error:
        log.warning("the int8 weights cannot be kept in %s, so every start makes them: %s", path.parent, error)
        kept = kept or _quantised(source, prepare)
    return kept


def _quantised(source: _Source, prepare: Prepare) -> dict[str, Weight]:
    given = {name: source.read(name).float() for name in source.names}
    weights = prepare(given)
    if EMBEDDING in weights:
        weights.setdefault(HEAD, weights[EMBEDDING])
    changed = {name: weight for name, weight in weights.items() if not is_product(name) and weight is not given.get(name)}
    return {**changed, **{name: quantise(weight) for name, weight in weights.items() if is_product(name)}}


def _kept(path: Path, mark: str) -> dict[str, Weight] | None:
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    try:
        with safe_open(str(path), framework="pt") as file:
            if (file.metadata() or {}).get("source") != mark:
                return None
            read = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            return {
                name: Quantised(tensor, read[name + SCALES]) if name + SCALES in read else tensor
                for name, tensor in read.items()
                if not name.endswith(SCALES)
            }
    except SafetensorError as error:
        log.warning("%s cannot be read and is made anew: %s", path, error)
        return None


def _keep(path: Path, weights: Mapping[str, Weight], mark: str) -> None:
    """Appears whole, by one rename."""
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        if isinstance(weight, Quantised):
            tensors |= {name: weight.values, name + SCALES: weight.scales}
        else:
            tensors[name] = weight
    with tempfile.TemporaryDirectory(prefix=".making-", dir=path.parent) as work:
        made = Path(work) / path.name
        save_file(tensors, str(made), metadata={"source": mark})
        made.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _weight_map(index: Path) -> Mapping[str, str]:
    try:
        found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{index} is not an index of weights: {error!r}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{index} is not an index of weights: weight_map is no object")
    return found
