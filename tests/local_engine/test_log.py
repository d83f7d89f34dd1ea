"""Lines of the engine's process, as its supervisor's log takes them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from local_engine.log import JsonLines, setup


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """The loggers as they were."""
    root = logging.getLogger()
    names = ("tollway", "local_engine")
    before = root.handlers[:], root.level, [logging.getLogger(name).level for name in names]
    yield
    root.handlers[:], _ = before[0], root.setLevel(before[1])
    for name, level in zip(names, before[2], strict=True):
        logging.getLogger(name).setLevel(level)


def test_a_line_is_one_object_whatever_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    setup("json")
    log = logging.getLogger("tollway.engine")
    log.info("%s is loaded", 'a "model"\nof two lines')
    log.debug("not said")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["event"], first["level"], first["process"]) == ('a "model"\nof two lines is loaded', "info", "engine")
    assert first["time"].endswith("Z")
    assert second["event"] == "failed" and "ValueError: no" in second["exception"]


def test_libraries_speak_at_warning_and_above(capsys: pytest.CaptureFixture[str]) -> None:
    setup("json", "debug")
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("look")
    logging.getLogger("tollway.engine").debug("detail")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["look", "detail"]


def test_text_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    setup("text")
    logging.getLogger("tollway.engine").info("hello")
    told = capsys.readouterr().err
    assert told.endswith("INFO tollway.engine hello\n")
    assert JsonLines().format(logging.LogRecord("x", logging.INFO, "", 0, "a", None, None)).startswith("{")
