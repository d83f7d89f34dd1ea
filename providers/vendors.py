"""The vendors: a vendor is a row of data, a wire language at an address with a signer and its quirks. No behaviour.

Addresses and quirks are those of the vendors' own documentation and of recorded answers. Knows no price and no model.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from providers.dialects import PLAIN, Quirks

CHAT = frozenset({"tools", "images", "json_schema", "json_mode", "n", "logprobs"})
MESSAGES = frozenset({"tools", "images", "documents", "json_schema"})
LIMIT_HEADERS = (
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
)
OLD_ROLES = {"developer": "system"}  # servers of the time before `developer`


class Speech(Struct, frozen=True, kw_only=True):
    """A further language of a vendor, at the same address with the same key: what differs from its row."""

    path: str
    capabilities: frozenset[str]
    quirks: Quirks = PLAIN


class Vendor(Struct, frozen=True, kw_only=True):
    """One vendor. dialect empty: not reached over HTTP (its provider yields neutral events). also: further languages that it speaks, by
    dialect; a backend chooses one in its settings.

    base_url: the default address, with version and without a trailing slash; empty = the backend must name its own. signer: see
    signers.headers. capabilities: what a backend may be asked for unless its own entry says otherwise. prices: the provider's id in
    genai-prices, empty = none there. limit_headers: answer headers that tell what is left of a rate limit. headers: sent with every
    call.
    """

    name: str
    dialect: str = "openai_chat"
    base_url: str = ""
    path: str = "/chat/completions"
    models_path: str = "/models"
    signer: str = "bearer"
    key_required: bool = True
    capabilities: frozenset[str] = CHAT
    quirks: Quirks = PLAIN
    prices: str = ""
    limit_headers: tuple[str, ...] = ()
    request_id_header: str = "x-request-id"
    headers: Mapping[str, str] = {}
    also: Mapping[str, Speech] = {}

    @property
    def address_required(self) -> bool:
        return bool(self.dialect) and not self.base_url

    def speaking(self, dialect: str) -> Vendor:
        """This row with one of its languages; empty = its first. Raises ValueError naming those that it has."""
        if dialect in ("", self.dialect):
            return self
        speech = self.also.get(dialect)
        if speech is None:
            known = ", ".join(sorted({self.dialect, *self.also} - {""})) or "none to choose from"
            raise ValueError(f'the vendor {self.name} does not speak "{dialect}"; its languages: {known}')
        return replace(self, dialect=dialect, path=speech.path, capabilities=speech.capabilities, quirks=speech.quirks)


_ROWS = (
    Vendor(
        name="anthropic",
        dialect="anthropic_messages",
        base_url="https://api.anthropic.com/v1",
        path="/messages",
        signer="header:x-api-key",
        capabilities=MESSAGES,
        quirks=Quirks(usage_option=False),
        prices="anthropic",
        limit_headers=(
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ),
        request_id_header="request-id",
        headers={"anthropic-version": "2023-06-01"},
    ),
    Vendor(
        name="openai",
        base_url="https://api.openai.com/v1",
        capabilities=CHAT | {"audio", "documents"},
        # its reasoning models refuse max_tokens, all its models take max_completion_tokens; it stores unless told not to
        quirks=Quirks(store=True, token_limit="max_completion_tokens"),
        prices="openai",
        limit_headers=LIMIT_HEADERS,
    ),
    Vendor(name="openai-compatible", key_required=False, quirks=Quirks(token_limit="max_tokens")),
    Vendor(
        name="vllm",
        base_url="http://localhost:8000/v1",
        key_required=False,
        quirks=Quirks(token_limit="max_tokens", roles=OLD_ROLES),
    ),
    Vendor(
        name="ollama",
        base_url="http://localhost:11434/v1",
        key_required=False,
        capabilities=CHAT - {"n", "logprobs"},
        quirks=Quirks(token_limit="max_tokens", roles=OLD_ROLES),
    ),
    Vendor(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        capabilities=CHAT - {"n", "logprobs"},  # each of them is 400 there
        quirks=Quirks(token_limit="max_completion_tokens", refuse=frozenset({"logit_bias", "logprobs", "top_logprobs"})),
        prices="groq",
        limit_headers=LIMIT_HEADERS,
    ),
    Vendor(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        capabilities=CHAT - {"logprobs"},
        # unknown fields are 422 there, include_usage among them; usage comes unasked
        quirks=Quirks(usage_option=False, token_limit="max_tokens", roles=OLD_ROLES, drop=frozenset({"user"})),
        prices="mistral",
        limit_headers=(
            "x-ratelimit-limit-req-minute",
            "x-ratelimit-remaining-req-minute",
            "x-ratelimit-limit-tokens-minute",
            "x-ratelimit-remaining-tokens-minute",
        ),
    ),
    Vendor(
        name="together",
        base_url="https://api.together.ai/v1",
        quirks=Quirks(token_limit="max_tokens", roles=OLD_ROLES),
        prices="together",
    ),
    Vendor(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        capabilities=CHAT - {"n"} | {"audio", "documents"},
        quirks=Quirks(token_limit="max_tokens", takes=frozenset({"cache_control", "top_k", "reasoning_effort", "reasoning_details"})),
        prices="openrouter",
    ),
    Vendor(
        name="deepseek",
        base_url="https://api.deepseek.com",
        capabilities=frozenset({"tools", "json_mode", "logprobs"}),
        quirks=Quirks(token_limit="max_tokens", roles=OLD_ROLES),
        prices="deepseek",
    ),
    Vendor(
        name="tollway",
        quirks=Quirks(token_limit="max_tokens", takes=frozenset({"cache_control", "reasoning_details"})),
        request_id_header="x-tollway-request-id",
        also={"anthropic_messages": Speech(path="/messages", capabilities=MESSAGES, quirks=Quirks(usage_option=False))},
    ),
    Vendor(name="scripted", dialect="", signer="none", key_required=False, capabilities=CHAT | {"audio", "documents"}),
    Vendor(name="local", dialect="", signer="none", key_required=False, capabilities=frozenset()),
)

VENDORS: Mapping[str, Vendor] = {row.name: row for row in _ROWS}
