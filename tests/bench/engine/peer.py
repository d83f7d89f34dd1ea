"""One peer's process: `python -m tests.bench.engine.peer KIND --model … --threads N`; orders in, figures out, a line of JSON each.

Standard library only, so that it starts under the peer's own interpreter; an adapter imports its library. What libraries print goes to
standard error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any, Protocol

ADAPTERS = {
    "tollway": "tests.bench.engine.tollway",
    "transformers": "tests.bench.engine.hugging_face",
    "transformers-cb": "tests.bench.engine.hugging_face",
    "llama.cpp": "tests.bench.engine.llama_cpp",
    "vllm": "tests.bench.engine.vllm_cpu",
    "memory": "tests.bench.engine.memory",
}


class Adapter(Protocol):
    version: str

    def run(self, prompts: list[list[int]], tokens: int) -> dict[str, float]:
        """Continue all prompts at once by so many tokens each. Seconds: `first` until the first token is known, `total`; `tokens` made."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=ADAPTERS)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", default="f32")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    adapter: Any = importlib.import_module(ADAPTERS[options.kind]).make(options)
    print(json.dumps({"version": adapter.version}), file=answers)
    for line in sys.stdin:
        order = json.loads(line)
        what = getattr(adapter, order.pop("do"))
        print(json.dumps(what(**order)), file=answers)


if __name__ == "__main__":
    main()
