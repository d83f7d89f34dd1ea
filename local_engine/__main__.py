"""`python -m local_engine serve | generate | fetch | stats | bench`: the engine's own command line."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from local_engine.config import EngineConfig
from local_engine.errors import ConfigError, EngineError
from local_engine.log import setup
from local_engine.wire import Params

BAD_CONFIG = 78  # EX_CONFIG: starting again will not help
MODES = {"latency": {}, "throughput": {"max_sequences": 64, "max_step_tokens": 1024}}  # what `generate` takes where options say nothing


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    options = _parser().parse_args(argv)
    setup(getattr(options, "log_format", "text"), getattr(options, "log_level", "info"))
    try:
        return int(options.run(options))
    except ConfigError as error:
        print(f"tollway engine: {error.message}", file=sys.stderr)  # noqa: T201 - a command's answer
        return BAD_CONFIG
    except EngineError as error:
        print(f"tollway engine: {error.message}", file=sys.stderr)  # noqa: T201
        return 1


def _serve(options: argparse.Namespace) -> int:
    from local_engine.server import serve

    return serve(_config(options))


def _generate(options: argparse.Namespace) -> int:
    from local_engine.offline import Offline

    params = Params(temperature=options.temperature, max_tokens=options.max_tokens, seed=options.seed)
    offline = Offline(_config(options, **MODES[options.mode]))
    files = [Path(one) for one in options.prompt if one.endswith(".jsonl")]
    if files:
        from local_engine.prompt_file import complete_file

        for source in files:
            complete_file(offline, source, Path(options.output) if options.output else source.with_suffix(".answers.jsonl"), params)
        return 0
    for completion in offline.generate(options.prompt, params):
        print(completion.error or completion.text)  # noqa: T201
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from local_engine.fetch import fetch

    fetch(options.name, Path(options.into), lambda line: print(line, flush=True))  # noqa: T201
    return 0


def _stats(options: argparse.Namespace) -> int:
    from local_engine.client import EngineClient

    async def ask() -> bytes:
        client = EngineClient(options.socket)
        try:
            return msgspec.json.encode(await client.stats())
        finally:
            await client.close()

    print(asyncio.run(ask()).decode())  # noqa: T201
    return 0


def _quality(options: argparse.Namespace) -> int:
    from local_engine.bench.quality import run

    return run(options)


def _gpu(options: argparse.Namespace) -> int:
    from local_engine.bench.gpu import run

    return run(options)


def _exact(options: argparse.Namespace) -> int:
    from local_engine.bench.exact import run

    return run(options)


def _config(options: argparse.Namespace, **defaults: int) -> EngineConfig:
    fields = {name: value for name, value in vars(options).items() if name in EngineConfig.__struct_fields__ and value is not None}
    return EngineConfig(**(defaults | fields))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local_engine", description="Tollway's local engine")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve one model on a Unix socket")
    serve.add_argument("--socket", dest="socket_path", required=True)
    serve.add_argument("--heartbeat", action="store_true", help="a line on standard output for each second in which steps went on")
    serve.add_argument("--log-format", choices=("json", "text"), default="text")
    serve.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    _add_engine_options(serve)
    serve.set_defaults(run=_serve)

    generate = commands.add_parser("generate", help="continue prompts, without a server")
    generate.add_argument("prompt", nargs="+", help="texts; or a FILE.jsonl of prompts, which is answered into FILE.answers.jsonl")
    generate.add_argument("--output", help="another file for the answers; what it has already is not computed again")
    generate.add_argument("--mode", choices=sorted(MODES), default="throughput", help="many together, or each one fast")
    generate.add_argument("--temperature", type=float, default=0.0)
    generate.add_argument("--max-tokens", type=int, default=64)
    generate.add_argument("--seed", type=int)
    _add_engine_options(generate)
    generate.set_defaults(run=_generate)

    fetch = commands.add_parser("fetch", help="download and convert a model")
    fetch.add_argument("name")
    fetch.add_argument("--into", required=True, help="the folder of models; the model becomes a folder in it")
    fetch.set_defaults(run=_fetch)

    stats = commands.add_parser("stats", help="the figures of a running engine, as JSON")
    stats.add_argument("--socket", required=True)
    stats.set_defaults(run=_stats)
    _add_bench(commands.add_parser("bench", help="measure the engine on this machine"))
    return parser


def _add_bench(bench: argparse.ArgumentParser) -> None:
    commands = bench.add_subparsers(required=True, metavar="WHAT")
    quality = commands.add_parser("quality", help="what bf16 and int8 change: perplexity, choices, KL against f32")
    quality.add_argument("--model-dir", required=True, help="a Hugging Face folder or a GGUF file")
    quality.add_argument("--text", help="a UTF-8 file; without it the help topics of Python")
    quality.add_argument("--tokens", type=int, default=2048)
    quality.add_argument("--threads", type=int, default=1)
    quality.set_defaults(run=_quality)
    gpu = commands.add_parser("gpu", help="is a CUDA device right, and how fast is it, beside transformers and vLLM; 8 minutes at most")
    gpu.add_argument("--model-dir", required=True, help="a Hugging Face folder or a GGUF file")
    gpu.add_argument("--device", default="cuda")
    gpu.add_argument("--minutes", type=float, default=8.0)
    gpu.add_argument("--tokens", type=int, default=128, help="of each answer")
    gpu.set_defaults(run=_gpu)
    exact = commands.add_parser("exact", help="greedy ids in f32 against transformers, alone, together, in chunks, preempted, …")
    exact.add_argument("--model-dir", required=True, help="a Hugging Face folder or a GGUF file")
    exact.add_argument("--prompts", type=int, default=50)
    exact.add_argument("--longest", type=int, default=1500, help="tokens of the longest prompt")
    exact.add_argument("--tokens", type=int, default=16, help="of each answer")
    exact.add_argument("--threads", type=int, default=1)
    exact.set_defaults(run=_exact)


def _add_engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model-dir", required=True, help="a Hugging Face folder or a GGUF file")
    parser.add_argument("--precision", help="auto (bf16 on CUDA, f32 on a CPU), f32, bf16 or int8")
    parser.add_argument("--device", help="auto, cpu or cuda")
    parser.add_argument("--kv-fraction", type=float, help="of the free memory of a CUDA device, where --kv-bytes is 0")
    for name in ("threads", "max-sequences", "max-waiting", "max-step-tokens", "kv-bytes", "nice"):
        parser.add_argument(f"--{name}", type=int)


if __name__ == "__main__":
    sys.exit(main())
