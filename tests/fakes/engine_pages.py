"""The pages of metrics as self-hosted servers write them, cut to a few lines, with figures of a test's choice; and a server of them."""

from __future__ import annotations

from tests.fakes.upstream import Step, body_reply

TEXT = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}


def vllm(waiting: int = 0, running: int = 0, kv: float = 0.0, queries: int = 0, hits: int = 0, engine: int = 0) -> str:
    """Its present engine; two engines are two pages after each other."""
    label = f'{{engine="{engine}",model_name="unsloth/Llama-3.2-1B-Instruct"}}'
    return f"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{label} {running}.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{label} {waiting}.0
vllm:num_requests_waiting_by_reason{{engine="{engine}",model_name="unsloth/Llama-3.2-1B-Instruct",reason="capacity"}} 99.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{label} {kv}
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{label} {float(queries)}
vllm:prefix_cache_queries_created{label} 1.7571402e+09
vllm:prefix_cache_hits_total{label} {float(hits)}
vllm:time_to_first_token_seconds_bucket{{engine="{engine}",le="0.001",model_name="unsloth/Llama-3.2-1B-Instruct"}} 0.0
"""


def vllm_first(waiting: int, running: int, kv: float) -> str:
    """Its first engine, before 0.9."""
    label = '{model_name="facebook/opt-125m"}'
    return f"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{label} {running}.0
vllm:num_requests_swapped{label} 0.0
vllm:num_requests_waiting{label} {waiting}.0
vllm:gpu_cache_usage_perc{label} {kv}
vllm:cpu_cache_usage_perc{label} 0.0
vllm:gpu_prefix_cache_hit_rate{label} -1.0
vllm:prompt_tokens_total{label} 1500.0
"""


def sglang(waiting: int, running: int, usage: float, rank: int = 0) -> str:
    """With --enable-metrics; each scheduler may write its own."""
    label = f'engine_type="unified",model_name="meta-llama/Llama-3.1-8B-Instruct",pp_rank="0",tp_rank="{rank}"'
    return f"""# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{{label}}} {running}.0
sglang:num_queue_reqs{{{label},priority=""}} {waiting}.0
sglang:num_queue_reqs{{{label},priority="1"}} {waiting}.0
sglang:token_usage{{{label}}} {usage}
sglang:cache_hit_rate{{{label}}} 0.0
sglang:prompt_tokens_total{{model_name="meta-llama/Llama-3.1-8B-Instruct"}} 8.128902e+06
sglang:cached_tokens_total{{cache_source="device",model_name="meta-llama/Llama-3.1-8B-Instruct"}} 4000.0
sglang:cached_tokens_total{{cache_source="host",model_name="meta-llama/Llama-3.1-8B-Instruct"}} 1000.0
"""


def llamacpp(waiting: int, running: int, usage: float | None = None) -> str:
    """With --metrics; the use of its KV cache was told until 2025."""
    kv = "" if usage is None else f"llamacpp:kv_cache_usage_ratio {usage}\nllamacpp:kv_cache_tokens 12\n"
    return f"""# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 33065
llamacpp:prompt_seconds_total 235.743
llamacpp:n_busy_slots_per_decode 1.2
{kv}# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing {running}
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred {waiting}"""


def tgi(waiting: int, running: int) -> str:
    return (
        f"# TYPE tgi_queue_size gauge\ntgi_queue_size {waiting}\n\n# TYPE tgi_batch_current_size gauge\ntgi_batch_current_size {running}\n"
    )


def reply(text: str, status: int = 200) -> list[Step]:
    return body_reply(text.encode(), status, TEXT)
