"""Names of OpenTelemetry's semantic conventions for generative AI (v1.41, in development there), as metrics and traces use them.

https://github.com/open-telemetry/semantic-conventions-genai. Knows no metric and no span.
"""

from __future__ import annotations

OPERATIONS = {  # surface -> gen_ai.operation.name
    "openai_chat": "chat",
    "openai_responses": "chat",
    "anthropic_messages": "chat",
    "openai_completions": "text_completion",
    "openai_embeddings": "embeddings",
}
PROVIDERS = {  # vendor -> gen_ai.provider.name, where the conventions have another word than our row
    "azure_ai": "azure.ai.inference",
    "azure_openai": "azure.ai.openai",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "xai": "x_ai",
}
OURSELVES = "tollway"  # who answered, when no backend was called
OTHER = "_OTHER"  # an error without a code

# bounds that the conventions give to their histograms
DURATION_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
PER_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)


def operation(surface: str) -> str:
    """gen_ai.operation.name of a surface's requests."""
    return OPERATIONS.get(surface, surface)


def provider(vendor: str) -> str:
    """gen_ai.provider.name of a backend's vendor; "" is ourselves."""
    return PROVIDERS.get(vendor, vendor) if vendor else OURSELVES


def error_type(outcome: str, code: str) -> str:
    """error.type of a request or a call: "" for one that succeeded, whose code is a remark."""
    if outcome in ("completed", "cached"):
        return ""
    return "cancelled" if outcome == "cancelled" else code or OTHER
