"""Starts the peers, asks one at a time and stops the others meanwhile (SIGSTOP), so that no idle thread takes a core from who is asked."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
START_S, ANSWER_S, END_S = 300.0, 300.0, 10.0
TAIL_BYTES = 2000


class Failed(Exception):
    """A peer did not answer. Its text ends with what it wrote last."""


@dataclass(frozen=True)
class Kind:
    """A peer. variable: of the environment, names its interpreter; empty: this one. precision: of its weights."""

    name: str
    adapter: str
    precision: str
    cases: tuple[str, ...]
    variable: str = ""

    @property
    def python(self) -> str:
        return os.environ.get(self.variable, "") if self.variable else sys.executable


class Peer:
    """A running process, stopped but while it is asked."""

    def __init__(self, kind: Kind, model: str, threads: int) -> None:
        self.kind = kind
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [kind.python, "-m", "tests.bench.engine.peer", kind.adapter]
        self._process = subprocess.Popen(
            [*command, "--model", model, "--threads", str(threads), "--precision", kind.precision],
            cwd=ROOT,
            env=_environment(threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        try:
            self.version: str = self._answer(START_S)["version"]
        except BaseException:
            self.close()
            raise
        self._signal(signal.SIGSTOP)

    def ask(self, do: str, **order: Any) -> dict[str, float]:
        """What the adapter's method `do` returns. Raises Failed."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
            self._process.stdin.flush()
            return self._answer(ANSWER_S)
        except BrokenPipeError:
            raise Failed(f"{self.kind.name} has ended: {self._tail()}") from None
        finally:
            self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it; once."""
        self._signal(signal.SIGKILL)
        self._process.wait(END_S)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]

    def _answer(self, patience_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], patience_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise Failed(f"{self.kind.name} did not answer: {self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - TAIL_BYTES))
        return self._log.read().decode(errors="replace")


def _environment(threads: int) -> dict[str, str]:
    """Hugging Face libraries ask nobody; every library's threads are as many."""
    numbers = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}
    return {**os.environ, **numbers, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
