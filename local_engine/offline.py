"""Many prompts and no one waiting: the engine driven directly, without a process or a socket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from local_engine.config import EngineConfig
from local_engine.detokenizer import TextStream
from local_engine.engine import Engine
from local_engine.errors import BadRequest
from local_engine.loader import load
from local_engine.tokenizer import Tokenizer
from local_engine.wire import Params

Prompt = str | list[int]


class Completion(NamedTuple):
    """reason: stop | length, or refused with the `error` that says why."""

    prompt: int  # its index among the prompts
    text: str
    ids: list[int]
    reason: str
    prompt_tokens: int = 0
    error: str | None = None


class _Open(NamedTuple):
    """One that is being written."""

    stream: TextStream
    texts: list[str]
    ids: list[int]
    prompt_tokens: int


class Offline:
    """A loaded model. Raises ConfigError when the folder cannot be used."""

    def __init__(self, config: EngineConfig) -> None:
        model = load(Path(config.model_dir), config.precision, config.device)
        self.tokenizer = Tokenizer(model.folder)
        self.engine = Engine(model, config.checked())

    def generate(self, prompts: Iterable[Prompt], params: Params) -> Iterator[Completion]:
        """Completions as they end, not in the order of the prompts; one that cannot be run is `refused` and the others go on."""
        return self.run((prompt, params) for prompt in prompts)

    def run(self, requests: Iterable[tuple[Prompt, Params]]) -> Iterator[Completion]:
        """As `generate`, each with its own parameters. Reads ahead only so far that a step is never short of work."""
        config = self.engine.config
        ahead = config.max_sequences + min(config.max_sequences, config.max_waiting)
        source = enumerate(requests)
        open_: dict[int, _Open] = {}
        more = True
        while more or open_:
            while more and len(open_) < ahead:
                index, request = next(source, (-1, None))
                more = request is not None
                if request is not None:
                    try:
                        open_[index] = self._begin(index, *request)
                    except BadRequest as error:
                        yield Completion(index, "", [], "refused", error=error.message)
            yield from self._step(open_)

    def _begin(self, index: int, prompt: Prompt, params: Params) -> _Open:
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        self.engine.add(index, ids, params)
        return _Open(TextStream(self.tokenizer.detokenizer(), params.stop, params.min_tokens), [], [], len(ids))

    def _step(self, open_: dict[int, _Open]) -> Iterator[Completion]:
        for index, pick, reason in self.engine.step():
            one = open_[index]
            text, stopped = one.stream.push(pick.token, last=reason is not None)
            one.texts.append(text)
            one.ids.append(pick.token)
            if stopped or reason is not None:
                self.engine.abort(index)
                del open_[index]
                yield Completion(index, "".join(one.texts), one.ids, "stop" if stopped else reason or "stop", one.prompt_tokens)
