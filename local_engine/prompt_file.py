"""`generate FILE.jsonl`: a file of prompts in, a file of answers out, with a progress bar. Started again it goes on where it ended.

A line is {"prompt": text or ids} and, if wanted, an "id" and any of `wire.Params` that make one plain text. An answer's line carries the
number of its prompt's line and a digest of it: answers come as they end, and a file that was changed in between is noticed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from local_engine.errors import ConfigError
from local_engine.offline import Completion, Offline, Prompt
from local_engine.wire import Params

NAMES = frozenset(Params.__struct_fields__) - {"n", "logprobs", "grammar"} | {"prompt", "id"}  # an answer's line has one text and no more


class Line(Struct, frozen=True):
    """What a line says beside its parameters."""

    prompt: Prompt
    id: str | int | None = None


class Answer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the output. `text` and `ids` are empty where `reason` is refused; `error` says why."""

    line: int
    digest: str
    id: str | int | None = None
    text: str = ""
    ids: list[int] = []
    reason: str = ""
    prompt_tokens: int = 0
    error: str | None = None


class Task(NamedTuple):
    line: int
    digest: str
    id: str | int | None
    prompt: Prompt
    params: Params


def complete_file(offline: Offline, source: Path, target: Path, params: Params) -> int:
    """Append an answer to `target` for every line of `source` that has none yet; how many were added. ConfigError for a line that is
    not a task, before any is run, and for a target made from something else."""
    tasks = list(read_tasks(source, params))
    done = _done(target, tasks)
    left = [task for task in tasks if task.line not in done]
    started, tokens = time.monotonic(), 0
    columns = (TextColumn(source.name), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
    with target.open("ab") as out, Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=len(tasks), completed=len(done), speed="")
        for completion in offline.run((task.prompt, task.params) for task in left):
            out.write(msgspec.json.encode(_answer(left[completion.prompt], completion)) + b"\n")
            out.flush()
            tokens += len(completion.ids)
            speed = tokens / max(time.monotonic() - started, 1e-3)
            progress.update(bar, advance=1, speed=f"{speed:.0f} tokens/s")
    return len(left)


def read_tasks(source: Path, params: Params) -> Iterator[Task]:
    """The tasks of a file; `params` where a line says nothing else."""
    defaults = msgspec.structs.asdict(params)
    try:
        held = source.read_bytes()
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from None
    for number, line in enumerate(held.splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
            unknown = sorted(fields.keys() - NAMES)
            if unknown:
                raise ConfigError(f"{source}:{number}: {unknown[0]!r} is not known here: use {', '.join(sorted(NAMES))}")
            given = {name: value for name, value in fields.items() if name not in ("prompt", "id")}
            said = msgspec.convert(fields, Line)
            wanted = msgspec.convert(defaults | given, Params)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{source}:{number}: {error}") from None
        yield Task(number, hashlib.sha256(line).hexdigest()[:16], said.id, said.prompt, wanted)


def _done(target: Path, tasks: list[Task]) -> set[int]:
    """Lines that have their answer; half a line at the end, of a run that was killed, is cut off."""
    if not target.exists():
        return set()
    held = target.read_bytes()
    whole = held[: held.rfind(b"\n") + 1]
    if len(whole) < len(held):
        with target.open("r+b") as file:
            file.truncate(len(whole))
    digests = {task.line: task.digest for task in tasks}
    done = set()
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{target}:{number} is not an answer of this command ({error}): name another output") from None
        if digests.get(answer.line) != answer.digest:
            raise ConfigError(f"{target}:{number} answers another prompt than line {answer.line} has: name another output")
        done.add(answer.line)
    return done


def _answer(task: Task, completion: Completion) -> Answer:
    return Answer(
        line=task.line,
        digest=task.digest,
        id=task.id,
        text=completion.text,
        ids=completion.ids,
        reason=completion.reason,
        prompt_tokens=completion.prompt_tokens,
        error=completion.error,
    )
