"""Many prompts and no one waiting: the engine driven directly, without a process or a socket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from local_engine.config import EngineConfig
from local_engine.detokenizer import TextStream
from local_engine.engine import Engine
from local_engine.loader import load
from local_engine.tokenizer import Tokenizer
from local_engine.wire import Params


class Completion(NamedTuple):
    prompt: int  # its index the prompt
    text: str
    ids: list[int]
    reason: str


class Offline:
    """A loaded model. Raises ConfigError when the folder cannot be used."""

    def __init__(self, config: EngineConfig) -> None:
        model = load(Path(config.model_dir), config.precision)
        self.tokenizer = Tokenizer(model.folder)
        self.engine = Engine(model, config.checked())

    def generate(self, prompts: Iterable[str], params: Params) -> Iterator[Completion]:
        """Completions as they end, not in the order of the prompts; at most max_sequences + max_waiting are held at once."""
        source = enumerate(prompts)
        open_: dict[int, tuple[TextStream, list[str], list[int]]] = {}
        limit = self.engine.config.max_sequences * 2  # enough that a step is never short of work
        more = True
        while more or open_:
            while more and len(open_) < limit:
                index, prompt = next(source, (-1, ""))
                more = index >= 0
                if more:
                    self.engine.add(index, self.tokenizer.encode(prompt), params)
                    open_[index] = (TextStream(self.tokenizer.detokenizer(), params.stop, params.min_tokens), [], [])
            for index, pick, reason in self.engine.step():
                stream, texts, ids = open_[index]
                text, stopped = stream.push(pick.token, last=reason is not None)
                texts.append(text)
                ids.append(pick.token)
                if stopped or reason is not None:
                    self.engine.abort(index)
                    del open_[index]
                    yield Completion(index, "".join(texts), ids, "stop" if stopped else reason or "stop")
