"""Every metric that /metrics shows: kind, help, labels; bounds of histograms; how the workers' values of a gauge become one.

Label sets are bounded: names of the configuration, words of ours, and of budgets the worst few. No key, no request.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.gen_ai import DURATION_S, FIRST_TOKEN_S, PER_TOKEN_S, TOKENS

LATENCY_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

MAX_SERIES = 2000  # per metric and worker; label values that come after them (a vendor's error codes, say) are counted as "other"

_CALL = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
_ANSWER = (*_CALL, "gen_ai_response_model")
_BUDGET = ("scope", "name", "model", "per")
_ENGINE = ("backend",)

# name -> (kind, help, labels). The documentation test reads this table.
METRICS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "tollway_requests_total": ("counter", "Accepted requests by how they ended.", ("route", "backend", "outcome")),
    "tollway_refusals_total": ("counter", "Requests answered with an error before they were accepted.", ("code",)),
    "tollway_attempts_total": ("counter", "Calls to backends by how they ended.", ("backend", "outcome", "error")),
    "tollway_decisions_total": ("counter", "Choices of a backend by why the first was taken.", ("route", "reason")),
    "tollway_set_aside_total": ("counter", "Backends that a choice passed over, by why.", ("backend", "reason")),
    "tollway_quality_total": ("counter", "Prompts by what the quality model said: weak, strong, unseen.", ("route", "verdict")),
    "tollway_retries_refused_total": ("counter", "Further attempts that the retry budget did not allow.", ()),
    "tollway_ejections_total": ("counter", "Times that a worker set a backend aside for its failures.", ("backend",)),
    "tollway_hedges_total": ("counter", "Late requests by what came of asking a second backend.", ("result",)),
    "tollway_decisions_lost_total": ("counter", "Decision records that were not kept.", ()),
    "tollway_over_reserved_total": ("counter", "Calls that were billed at more than their worst case.", ("backend",)),
    "tollway_over_reserved_nanousd_total": ("counter", "What they cost beyond it, in nano-USD.", ("backend",)),
    "tollway_cost_nanousd_total": ("counter", "Spend in nano-USD.", ("route", "backend")),
    "tollway_saved_nanousd_total": ("counter", "What cache hits did not cost, in nano-USD.", ("route",)),
    "tollway_tokens_total": ("counter", "Tokens by class.", ("route", "backend", "class")),
    "tollway_cache_total": ("counter", "Cacheable requests by what the response cache said.", ("result",)),
    "tollway_cache_stored_total": ("counter", "Answers put into the response cache.", ()),
    "tollway_cache_dropped_total": ("counter", "Answers not put into it: too large, too many waiting, or Redis away.", ()),
    "tollway_faults_total": ("counter", "Our own errors, each with a trace in the log.", ("kind",)),
    "tollway_budget_alerts_total": ("counter", "Thresholds of budgets that were crossed.", ("scope", "percent")),
    "tollway_alert_deliveries_total": ("counter", "Tries to deliver them to the webhook: delivered, failed, given_up.", ("result",)),
    "tollway_time_to_first_token_seconds": ("histogram", "From admission to the first event that carries something.", ("route", "backend")),
    "tollway_request_duration_seconds": ("histogram", "From admission to the end.", ("route", "backend")),
    "gen_ai_server_request_duration_seconds": ("histogram", "Accepted requests, from admission to the end.", (*_ANSWER, "error_type")),
    "gen_ai_server_time_to_first_token_seconds": ("histogram", "Streams that were answered, to their first token.", _ANSWER),
    "gen_ai_server_time_per_output_token_seconds": ("histogram", "Their time per token after the first.", _ANSWER),
    "gen_ai_client_operation_duration_seconds": ("histogram", "Calls to backends.", (*_CALL, "error_type")),
    "gen_ai_client_token_usage": ("histogram", "Tokens that calls to backends are billed for.", (*_CALL, "gen_ai_token_type")),
    "tollway_in_flight": ("gauge", "Requests being served.", ()),
    "tollway_backend_ready": ("gauge", "Workers that have nothing against asking a backend.", ("backend",)),
    "tollway_backend_set_aside": ("gauge", "Workers that ask others before a backend, by their reason.", ("backend", "reason")),
    "tollway_backend_in_flight": ("gauge", "Calls under way to a backend.", ("backend",)),
    "tollway_backend_drained": ("gauge", "1 while an operator keeps new requests from a backend.", ("backend",)),
    "tollway_route_backends": ("gauge", "Backends of a route that are not drained; at 0 its requests are refused.", ("route",)),
    "tollway_config_since_seconds": ("gauge", "When the settings in force were taken over, in seconds since 1970.", ()),
    "tollway_config_refused": ("gauge", "1 while the last reading of the settings file was refused and older settings hold.", ()),
    "tollway_made_problems": ("gauge", "Backends and routes made over the API that cannot be in force.", ()),
    "tollway_backend_waiting": ("gauge", "Of the calls under way, those without a first token so far.", ("backend",)),
    "tollway_backend_predicted_ttft_seconds": ("gauge", "Predicted 95th percentile of the first token, of an empty prompt.", ("backend",)),
    "tollway_backend_predicted_tpot_seconds": ("gauge", "Predicted 95th percentile of a token after it.", ("backend",)),
    "tollway_engine_read": ("gauge", "1 while an engine of one's own says how it is doing.", _ENGINE),
    "tollway_engine_waiting": ("gauge", "Requests that wait in it for a place, of all its clients.", _ENGINE),
    "tollway_engine_running": ("gauge", "Requests that it works on.", _ENGINE),
    "tollway_engine_batch": ("gauge", "Sequences in its last step.", _ENGINE),
    "tollway_engine_prefill_tokens": ("gauge", "Tokens of accepted prompts that it has still to compute.", _ENGINE),
    "tollway_engine_kv_share": ("gauge", "Part of its KV cache in use, 0 to 1.", _ENGINE),
    "tollway_engine_kv_bytes_used": ("gauge", "Bytes of it.", _ENGINE),
    "tollway_engine_kv_bytes_cap": ("gauge", "Bytes it may have.", _ENGINE),
    "tollway_engine_kv_blocks_used": ("gauge", "Blocks of it that running requests hold.", _ENGINE),
    "tollway_engine_kv_blocks_free": ("gauge", "Blocks of it that are free, those that hold known tokens included.", _ENGINE),
    "tollway_engine_kv_blocks_shared": ("gauge", "Of those that are held, blocks of more than one request.", _ENGINE),
    "tollway_engine_prompt_tokens_total": ("counter", "Prompt tokens since it started.", _ENGINE),
    "tollway_engine_prefix_hit_tokens_total": ("counter", "Of them, those found in its prefix cache.", _ENGINE),
    "tollway_engine_output_tokens_total": ("counter", "Tokens that it generated since it started.", _ENGINE),
    "tollway_engine_preemptions_total": ("counter", "Requests that gave their place back and began anew.", _ENGINE),
    "tollway_engine_steps_total": ("counter", "Steps since it started.", _ENGINE),
    "tollway_engine_time_to_first_token_seconds": ("histogram", "From its queue to a request's first token.", _ENGINE),
    "tollway_engine_time_per_output_token_seconds": ("histogram", "Of ended requests, per token after the first.", _ENGINE),
    "tollway_engine_step_seconds": ("histogram", "Its steps.", _ENGINE),
    "tollway_engine_device_memory_used_bytes": ("gauge", "Memory in use on its GPU, by all processes.", _ENGINE),
    "tollway_engine_device_memory_bytes": ("gauge", "Memory of its GPU.", _ENGINE),
    "tollway_engine_device_busy_share": ("gauge", "Part of the last moments in which its GPU computed, 0 to 1.", _ENGINE),
    "tollway_ready": ("gauge", "1 when this gateway takes requests.", ()),
    "tollway_journal_bytes": ("gauge", "Size of the journals on disk.", ()),
    "tollway_journal_age_seconds": ("gauge", "Age of the oldest request in a journal that SQL does not have, running ones included.", ()),
    "tollway_ledger_queue_rows": ("gauge", "Settled requests not yet in SQL.", ()),
    "tollway_ledger_lag_seconds": ("gauge", "Age of the oldest settled request not yet in SQL.", ()),
    "tollway_ledger_quarantined_rows": ("gauge", "Settled requests that the database refused, kept in a file.", ()),
    "tollway_ledger_syncs_total": ("counter", "Transactions that brought rows and leases to SQL.", ()),
    "tollway_ledger_sync_faults_total": ("counter", "Of them, those that failed and were tried again.", ()),
    "tollway_database_away": ("gauge", "Workers whose last transaction of the ledger failed.", ()),
    "tollway_processes": ("gauge", "Gateway processes that live on this database, of all machines.", ()),
    "tollway_leased_nanousd": ("gauge", "Budget money held by leases of the workers.", ()),
    "tollway_reserved_nanousd": ("gauge", "Of it, what running requests may cost at most.", ()),
    "tollway_unsynced_nanousd": ("gauge", "Of it, what was spent and is not yet in SQL.", ()),
    "tollway_budget_windows": ("gauge", "Windows of budgets that workers hold leases of.", ()),
    "tollway_budget_waiting": ("gauge", "Requests that wait for money of other workers.", ()),
    "tollway_budget_limit_nanousd": ("gauge", "Limit of a budget now, of those with the largest share spent.", _BUDGET),
    "tollway_budget_spent_nanousd": ("gauge", "Spent of it in its present window, as SQL has it.", _BUDGET),
    "tollway_budget_spent_share": ("gauge", "Spent part of it, 1 = all.", _BUDGET),
    "tollway_budget_window_share": ("gauge", "Part of its window that has passed, 0 to 1.", _BUDGET),
    "tollway_snapshot_age_seconds": ("gauge", "Since keys, budgets and prices were last known to be current.", ()),
    "tollway_cache_degraded": ("gauge", "1 while Redis is out of use.", ()),
    "tollway_limits_degraded": ("gauge", "1 while rate limits are not shared because Redis is out of use.", ()),
    "tollway_clock_offset_seconds": ("gauge", "Database clock minus this machine's.", ()),
    "tollway_token_factor": ("gauge", "A vendor's own tokens over our count of them, as learnt.", ("family",)),
}

BOUNDS: dict[str, tuple[float, ...]] = {  # of the histograms that workers fill; an engine's come with their own
    "tollway_time_to_first_token_seconds": LATENCY_BOUNDS_S,
    "tollway_request_duration_seconds": LATENCY_BOUNDS_S,
    "gen_ai_server_request_duration_seconds": DURATION_S,
    "gen_ai_server_time_to_first_token_seconds": FIRST_TOKEN_S,
    "gen_ai_server_time_per_output_token_seconds": PER_TOKEN_S,
    "gen_ai_client_operation_duration_seconds": DURATION_S,
    "gen_ai_client_token_usage": TOKENS,
}


# how the workers' values of a gauge become one; all others are added up
COMBINED: dict[str, Callable[[float, float], float]] = {
    "tollway_ready": min,
    "tollway_journal_age_seconds": max,
    "tollway_ledger_lag_seconds": max,
    "tollway_ledger_quarantined_rows": max,
    "tollway_processes": max,
    "tollway_snapshot_age_seconds": max,
    "tollway_cache_degraded": max,
    "tollway_limits_degraded": max,
    "tollway_clock_offset_seconds": lambda a, b: max(a, b, key=abs),
    "tollway_token_factor": max,
    "tollway_backend_drained": max,
    "tollway_route_backends": min,
    "tollway_config_since_seconds": min,
    "tollway_config_refused": max,
    "tollway_made_problems": max,
    "tollway_backend_predicted_ttft_seconds": max,
    "tollway_backend_predicted_tpot_seconds": max,
    # all workers read the same engines and the same budgets
    **{name: max for name in METRICS if name.startswith(("tollway_engine_", "tollway_budget_limit", "tollway_budget_spent"))},
    "tollway_budget_window_share": max,
}
