"""How fast this machine's memory is read: sums over more than any cache holds, by as many threads as the engines have."""

from __future__ import annotations

import time
from argparse import Namespace

NUMBERS = 128 * 1024 * 1024  # f32
PASSES = 3


class Memory:
    def __init__(self, options: Namespace) -> None:
        import torch

        from local_engine import huge_pages

        torch.set_num_threads(options.threads)
        self._numbers = torch.ones(NUMBERS)
        huge_pages.gather()  # as our weights lie: the limit is what the machine can, not what 4 KiB pages let it
        self.version = f"torch {torch.__version__}"

    def read(self) -> dict[str, float]:
        """Bytes per second, the best of some passes."""
        passes = []
        for _ in range(PASSES):
            began = time.perf_counter()
            self._numbers.sum()
            passes.append(time.perf_counter() - began)
        return {"bytes_s": NUMBERS * 4 / min(passes)}


make = Memory
