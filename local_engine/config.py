"""Everything about the engine that can be tuned, with units and maxima. Knows no file format and no tensor."""

from __future__ import annotations

import os

from msgspec import Struct

from local_engine.errors import ConfigError

PRECISIONS = ("auto", "f32", "bf16", "int8")
DEVICES = ("auto", "cpu", "cuda")
CPU_KV_BYTES = 1024 * 1024 * 1024


class EngineConfig(Struct, frozen=True, kw_only=True):
    model_dir: str
    socket_path: str = ""
    threads: int = 0  # of arithmetic; 0: cores - 1, at least 1, which leaves the gateway a core
    precision: str = "auto"  # bf16 on CUDA, f32 on a CPU
    device: str = "auto"  # auto: a CUDA device where there is one, but the CPU for int8
    max_sequences: int = 16  # running at once
    max_waiting: int = 256  # queued beyond those; more is refused with `retry_after_s`
    max_step_tokens: int = 256  # computed in one step, over all sequences: bounds how long a prompt stalls those that decode
    kv_bytes: int = 0  # keys and values, of running sequences and of prefixes kept for the next; 0: CPU_KV_BYTES, on CUDA by kv_fraction
    kv_fraction: float = 0.8  # of what a CUDA device has free once the weights are there; the rest is for the arithmetic
    graphs: bool | None = None  # steps of single tokens are padded and replayed; None: on CUDA, where replaying is faster than launching
    compiled: bool = True  # by numba, on a CPU in f32 and int8, where it is installed and fits
    flash_infer: bool = True  # used where it is installed and fits
    max_prompt_bytes: int = 4 * 1024 * 1024
    max_connections: int = 64
    outbound_bytes: int = 4 * 1024 * 1024  # unsent answers of one connection; over it the connection is dropped
    retry_after_s: float = 1.0  # told when the queue is full
    loading_retry_after_s: float = 2.0  # told while there is no model yet
    model_poll_s: float = 1.0  # how often a missing model folder is looked for
    heartbeat: bool = False  # a line on standard output each second in which the step loop turned: for who restarts what hangs
    nice: int = 5  # added to the process's niceness, so that the gateway goes first

    def checked(self) -> EngineConfig:
        """Itself, or ConfigError naming the value that cannot work."""
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision {self.precision!r} is not known: use one of {', '.join(PRECISIONS)}", param="precision")
        if self.device not in DEVICES:
            raise ConfigError(f"device {self.device!r} is not known: use one of {', '.join(DEVICES)}", param="device")
        if self.device == "cuda" and self.precision == "int8":
            raise ConfigError("int8 is for CPUs: use bf16 on a CUDA device", param="precision")
        for name in ("max_sequences", "max_waiting", "max_step_tokens", "max_connections"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1", param=name)
        if self.kv_bytes < 0:
            raise ConfigError("kv_bytes must be at least 1, or 0 for what the device allows", param="kv_bytes")
        if not 0 < self.kv_fraction <= 1:
            raise ConfigError(f"kv_fraction must be above 0 and at most 1, not {self.kv_fraction}", param="kv_fraction")
        if self.threads < 0 or self.threads > 1024:
            raise ConfigError("threads must be 0 (cores - 1) to 1024", param="threads")
        return self

    @property
    def thread_count(self) -> int:
        return self.threads or max(1, len(os.sched_getaffinity(0)) - 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 2) - 1)
