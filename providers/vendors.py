"""The vendors: a vendor is a row of data, a wire language at an address with a signer and its quirks. No behaviour.

Addresses and quirks are those of the vendors' own documentation (`source`) and of recorded answers. What single models of a vendor take
stands in models.py. Knows no price.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from providers.dialects import PLAIN, Quirks
from providers.figures import LLAMACPP, SGLANG, TGI, TOLLWAY, VLLM, Page

CHAT = frozenset({"tools", "images", "json_schema", "json_mode", "n", "logprobs"})
RESPONSES = frozenset({"tools", "images", "json_schema", "json_mode", "logprobs"})
MESSAGES = frozenset({"tools", "images", "documents", "json_schema"})
OLD_ROLES = {"developer": "system"}  # servers of the time before `developer`
OLD = Quirks(token_limit="max_tokens", roles=OLD_ROLES)  # most servers of this language
SELF_HOSTED = replace(OLD, system_first=True)  # a model's own chat template decides, and many refuse a late system message


class Speech(Struct, frozen=True, kw_only=True):
    """A further language of a vendor, at the same address with the same key: what differs from its row."""

    path: str
    capabilities: frozenset[str]
    quirks: Quirks = PLAIN
    inputs_most: int = 2048


def _responses(*more: str, path: str = "/responses", lacks: frozenset[str] = frozenset(), quirks: Quirks = PLAIN) -> Mapping[str, Speech]:
    """A vendor that speaks openai_responses too. more, lacks: capabilities beside and without the usual ones."""
    return {"openai_responses": Speech(path=path, capabilities=(RESPONSES | frozenset(more)) - lacks, quirks=quirks)}


class Vendor(Struct, frozen=True, kw_only=True):
    """One vendor. dialect empty: not reached over HTTP (its provider yields neutral events). also: further languages that it speaks, by
    dialect; a backend chooses one in its settings.

    base_url: the default address, with version and without a trailing slash; empty = the backend must name its own. `{account}` stands
    in it for what the operator's account is called there (`account` says what that is), `{model}` and `{api_version}` in a path for the
    backend's. signer: see signers.headers. capabilities: what a backend may be asked for unless its own entry says otherwise. prices:
    the provider's id in genai-prices, empty = none there. headers: sent with every call. inputs_most: of texts to embed in one call.
    own: an engine that the operator runs: it queues what it is sent, so that its load is its speed. page: where it publishes its figures.
    source: where the row was read.
    """

    name: str
    dialect: str = "openai_chat"
    base_url: str = ""
    account: str = ""
    api_version: str = ""
    path: str = "/chat/completions"
    models_path: str = "/models"
    signer: str = "bearer"
    key_required: bool = True
    capabilities: frozenset[str] = CHAT
    quirks: Quirks = PLAIN
    prices: str = ""
    request_id_header: str = "x-request-id"
    headers: Mapping[str, str] = {}
    also: Mapping[str, Speech] = {}
    own: bool = False
    page: Page | None = None
    inputs_most: int = 2048
    honours: frozenset[str] = frozenset()
    source: str = ""

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
        return replace(
            self,
            dialect=dialect,
            path=speech.path,
            capabilities=speech.capabilities,
            quirks=speech.quirks,
            inputs_most=speech.inputs_most,
        )


def _embeddings(path: str = "/embeddings", most: int = 2048, base64: bool = False, **quirks: Any) -> Mapping[str, Speech]:
    """Embeddings beside a vendor's other languages. base64: it knows `encoding_format`."""
    made = Quirks(usage_option=False, **quirks)
    if not base64:
        made = replace(made, drop=made.drop | {"encoding_format"})
    return {"openai_embeddings": Speech(path=path, capabilities=frozenset({"embeddings"}), quirks=made, inputs_most=most)}


def _completions(path: str = "/completions", usage_option: bool = True) -> Mapping[str, Speech]:
    """The old completions beside a vendor's other languages."""
    quirks = Quirks(usage_option=usage_option)
    return {"openai_completions": Speech(path=path, capabilities=frozenset({"n", "logprobs"}), quirks=quirks)}


def located(vendor: Vendor, base_url: str, model: str, account: str, api_version: str) -> Vendor:
    """The row with its address and paths filled in for one backend. base_url, api_version: empty = the row's own."""
    names = {"model": quote(model, safe=""), "api_version": quote(api_version or vendor.api_version, safe="")}
    return replace(
        vendor,
        base_url=base_url or vendor.base_url.replace("{account}", account),
        path=vendor.path.format(**names),
        models_path=vendor.models_path.format(**names),
    )


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
        request_id_header="request-id",
        headers={"anthropic-version": "2023-06-01"},
        source="https://platform.claude.com/docs/en/api/messages",
    ),
    Vendor(
        name="openai",
        base_url="https://api.openai.com/v1",
        capabilities=CHAT | {"audio", "documents"},
        # its reasoning models refuse max_tokens, all its models take max_completion_tokens; it stores unless told not to
        quirks=Quirks(store=True, token_limit="max_completion_tokens", thoughts="none"),
        prices="openai",
        also={**_responses("documents"), **_embeddings(base64=True), **_completions()},
        source="https://platform.openai.com/docs/api-reference/chat/create",
    ),
    Vendor(
        name="openai-compatible",
        key_required=False,
        quirks=Quirks(token_limit="max_tokens"),
        also={**_responses(), **_embeddings(), **_completions()},
        source="https://platform.openai.com/docs/api-reference/chat",
    ),
    Vendor(
        name="azure_openai",
        base_url="https://{account}.openai.azure.com",
        account="the name of the Azure OpenAI resource",
        api_version="2024-10-21",
        path="/openai/deployments/{model}/chat/completions?api-version={api_version}",  # the deployment's name is the model
        models_path="/openai/models?api-version={api_version}",
        signer="header:api-key",
        capabilities=CHAT | {"audio"},
        quirks=Quirks(token_limit="max_completion_tokens", thoughts="none"),
        prices="azure",
        request_id_header="apim-request-id",
        also={
            **_responses("documents", path="/openai/v1/responses"),
            **_embeddings("/openai/deployments/{model}/embeddings?api-version={api_version}", base64=True),
            **_completions("/openai/deployments/{model}/completions?api-version={api_version}"),
        },
        source="https://learn.microsoft.com/azure/ai-foundry/openai/reference",
    ),
    Vendor(
        name="azure_ai",
        base_url="https://{account}.services.ai.azure.com",
        account="the name of the Azure AI Foundry resource",
        api_version="2024-05-01-preview",
        path="/models/chat/completions?api-version={api_version}",
        models_path="/models/info?api-version={api_version}",
        signer="header:api-key",
        capabilities=CHAT - {"n", "logprobs"},
        quirks=OLD,
        prices="azure",
        request_id_header="apim-request-id",
        also={
            **_responses("documents", path="/openai/v1/responses"),
            **_embeddings("/models/embeddings?api-version={api_version}", most=96),
        },
        source="https://learn.microsoft.com/rest/api/aifoundry/modelinference",
    ),
    Vendor(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        capabilities=CHAT - {"n", "logprobs"},  # each of them is 400 there
        quirks=Quirks(
            token_limit="max_completion_tokens",
            thoughts="reasoning",
            refuse=frozenset({"logit_bias", "logprobs", "top_logprobs"}),
            takes=frozenset({"reasoning_effort"}),
        ),
        prices="groq",
        also=_responses(
            lacks=frozenset({"logprobs"}),
            quirks=Quirks(
                drop=frozenset({"truncation", "include", "safety_identifier", "prompt_cache_key"}),
                refuse=frozenset({"top_logprobs"}),
                takes=frozenset({"reasoning_effort"}),
            ),
        ),
        source="https://console.groq.com/docs/openai",
    ),
    Vendor(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        capabilities=CHAT - {"logprobs"},
        # unknown fields are 422 there, include_usage among them; usage comes unasked
        quirks=replace(
            OLD,
            usage_option=False,
            names={"seed": "random_seed"},
            drop=frozenset({"user", "store", "service_tier", "safety_identifier", "prompt_cache_retention", "verbosity"}),
            refuse=frozenset({"logit_bias", "logprobs", "top_logprobs"}),
            call_ids="nine",
            thoughts="none",
        ),
        prices="mistral",
        also=_embeddings(most=256, names={"dimensions": "output_dimension"}, drop=frozenset({"user"})),
        source="https://docs.mistral.ai/api/endpoint/chat",
    ),
    Vendor(
        name="deepseek",
        base_url="https://api.deepseek.com",
        capabilities=frozenset({"tools", "json_mode", "logprobs"}),
        quirks=replace(OLD, takes=frozenset({"reasoning_effort", "reasoning_content"})),
        prices="deepseek",
        also=_responses(lacks=frozenset({"images"}), quirks=Quirks(takes=frozenset({"reasoning_effort", "reasoning_content"}))),
        source="https://api-docs.deepseek.com/api/create-chat-completion",
    ),
    Vendor(
        name="xai",
        base_url="https://api.x.ai/v1",
        # reasoning stands outside of completion_tokens there: the total tells (openai_chat/wire.py)
        quirks=Quirks(token_limit="max_completion_tokens", roles=OLD_ROLES),
        prices="x-ai",
        also=_responses(),
        source="https://docs.x.ai/docs/api-reference",
    ),
    Vendor(
        name="together",
        base_url="https://api.together.ai/v1",
        quirks=replace(OLD, takes=frozenset({"reasoning_effort", "top_k"})),
        prices="together",
        also={**_embeddings(most=128), **_completions()},
        source="https://docs.together.ai/docs/openai-api-compatibility",
    ),
    Vendor(
        name="fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        quirks=replace(OLD, takes=frozenset({"reasoning_effort", "top_k", "reasoning_content"})),
        prices="fireworks",
        also={**_responses(), **_embeddings(most=256), **_completions()},
        source="https://docs.fireworks.ai/tools-sdks/openai-compatibility",
    ),
    Vendor(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        capabilities=CHAT - {"n"} | {"audio", "documents"},
        quirks=Quirks(token_limit="max_tokens", takes=frozenset({"cache_control", "top_k", "reasoning_effort", "reasoning_details"})),
        prices="openrouter",
        also={
            **_responses("documents", quirks=Quirks(takes=frozenset({"reasoning_effort"}))),
            **_embeddings(base64=True),
            **_completions(),
        },
        source="https://openrouter.ai/docs/api-reference/chat-completion",
    ),
    Vendor(
        name="perplexity",
        base_url="https://api.perplexity.ai",
        capabilities=frozenset({"images", "json_schema"}),
        # usage comes in every chunk, unasked; its models search and call no tools
        quirks=replace(
            OLD,
            usage_option=False,
            thoughts="none",
            refuse=frozenset({"logit_bias", "logprobs", "top_logprobs", "stop"}),
            drop=frozenset({"seed", "user", "parallel_tool_calls", "store", "service_tier"}),
            takes=frozenset({"reasoning_effort", "top_k"}),
        ),
        prices="perplexity",
        source="https://docs.perplexity.ai/api-reference/chat-completions-post",
    ),
    Vendor(
        name="cerebras",
        base_url="https://api.cerebras.ai/v1",
        capabilities=frozenset({"tools", "json_schema", "json_mode", "logprobs"}),
        quirks=Quirks(
            token_limit="max_completion_tokens",
            roles=OLD_ROLES,
            thoughts="reasoning",
            refuse=frozenset({"frequency_penalty", "presence_penalty", "logit_bias"}),
            drop=frozenset({"parallel_tool_calls", "service_tier"}),
            takes=frozenset({"reasoning_effort"}),
        ),
        prices="cerebras",
        also=_completions(),
        source="https://inference-docs.cerebras.ai/resources/openai",
    ),
    Vendor(
        name="huggingface",
        base_url="https://router.huggingface.co/v1",
        capabilities=CHAT - {"n"},
        quirks=OLD,
        also=_responses(),
        source="https://huggingface.co/docs/inference-providers/tasks/chat-completion",
    ),
    Vendor(
        name="nvidia",
        base_url="https://integrate.api.nvidia.com/v1",
        capabilities=CHAT - {"n"},
        quirks=SELF_HOSTED,
        also={**_embeddings(most=128), **_completions()},
        source="https://docs.api.nvidia.com/nim/reference/llm-apis",
    ),
    Vendor(
        name="databricks",
        base_url="https://{account}/serving-endpoints",
        account="the workspace's host, such as dbc-1234.cloud.databricks.com",
        capabilities=CHAT - {"logprobs"},
        quirks=replace(OLD, usage_option=False, takes=frozenset({"reasoning_effort"})),  # usage comes in every chunk
        prices="databricks",
        also=_embeddings(most=150),
        source="https://docs.databricks.com/machine-learning/foundation-model-apis/api-reference",
    ),
    Vendor(
        name="snowflake",
        base_url="https://{account}.snowflakecomputing.com/api/v2/cortex/v1",
        account="the account identifier",
        capabilities=CHAT - {"n", "logprobs"},
        quirks=Quirks(token_limit="max_completion_tokens", roles=OLD_ROLES, takes=frozenset({"reasoning_effort", "reasoning_details"})),
        source="https://docs.snowflake.com/user-guide/snowflake-cortex/open_ai_sdk",
    ),
    Vendor(
        name="cloudflare",
        base_url="https://api.cloudflare.com/client/v4/accounts/{account}/ai/v1",
        account="the account id",
        capabilities=CHAT - {"n", "logprobs"},
        quirks=OLD,
        prices="cloudflare",
        request_id_header="cf-ray",
        also=_embeddings(most=100),
        source="https://developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility",
    ),
    Vendor(
        name="writer",
        base_url="https://api.writer.com/v1",
        path="/chat",
        capabilities=frozenset({"tools", "json_schema", "n", "logprobs"}),
        quirks=replace(OLD, drop=frozenset({"seed", "user", "parallel_tool_calls", "store", "service_tier"})),
        also=_completions(usage_option=False),
        source="https://dev.writer.com/api-reference/completion-api/chat-completion",
    ),
    Vendor(
        name="zai",
        base_url="https://api.z.ai/api/paas/v4",
        capabilities=frozenset({"tools", "images", "json_mode"}),
        quirks=replace(
            OLD,
            refuse=frozenset({"logit_bias", "frequency_penalty", "presence_penalty"}),
            drop=frozenset({"seed", "parallel_tool_calls"}),
            takes=frozenset({"reasoning_content"}),
        ),
        prices="zai",
        also=_embeddings(most=64),
        source="https://docs.z.ai/api-reference/llm/chat-completion",
    ),
    Vendor(
        name="moonshot",
        base_url="https://api.moonshot.ai/v1",
        capabilities=CHAT - {"logprobs"},
        quirks=replace(OLD, takes=frozenset({"reasoning_content"})),
        prices="moonshotai",
        source="https://platform.moonshot.ai/docs/api/chat",
    ),
    Vendor(
        name="venice",
        base_url="https://api.venice.ai/api/v1",
        quirks=replace(OLD, takes=frozenset({"reasoning_effort", "top_k", "reasoning_content"})),
        also=_embeddings(most=256),
        source="https://docs.venice.ai/api-reference/endpoint/chat/completions",
    ),
    Vendor(
        name="vllm",
        own=True,
        page=VLLM,
        base_url="http://localhost:8000/v1",
        key_required=False,
        quirks=replace(SELF_HOSTED, takes=frozenset({"top_k"})),
        also={**_responses(), **_embeddings(base64=True), **_completions()},
        source="https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
    ),
    Vendor(
        name="sglang",
        own=True,
        page=SGLANG,
        base_url="http://localhost:30000/v1",
        key_required=False,
        quirks=replace(SELF_HOSTED, takes=frozenset({"top_k"})),
        also={**_embeddings(), **_completions()},
        source="https://docs.sglang.ai/basic_usage/openai_api_completions.html",
    ),
    Vendor(
        name="llamacpp",
        own=True,
        page=LLAMACPP,
        base_url="http://localhost:8080/v1",
        key_required=False,
        quirks=replace(SELF_HOSTED, takes=frozenset({"top_k", "reasoning_content"})),
        also={**_responses(lacks=frozenset({"logprobs"})), **_embeddings(most=256), **_completions()},
        source="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
    ),
    Vendor(
        name="ollama",
        own=True,
        base_url="http://localhost:11434/v1",
        key_required=False,
        capabilities=CHAT - {"n", "logprobs"},
        quirks=replace(SELF_HOSTED, thoughts="reasoning", takes=frozenset({"reasoning_effort", "reasoning_content"})),
        also={**_responses(lacks=frozenset({"logprobs"})), **_embeddings(most=512), **_completions()},
        source="https://docs.ollama.com/api/openai-compatibility",
    ),
    Vendor(
        name="tgi",
        own=True,
        page=TGI,
        base_url="http://localhost:8080/v1",
        key_required=False,
        capabilities=CHAT - {"n"},
        quirks=SELF_HOSTED,
        also=_completions(),
        source="https://huggingface.co/docs/text-generation-inference/reference/api_reference",
    ),
    Vendor(
        name="lmstudio",
        own=True,
        base_url="http://localhost:1234/v1",
        key_required=False,
        capabilities=CHAT - {"n", "logprobs"},
        quirks=replace(SELF_HOSTED, takes=frozenset({"top_k"})),
        also={**_responses(lacks=frozenset({"logprobs"})), **_embeddings(most=256), **_completions()},
        source="https://lmstudio.ai/docs/developer/openai-compat",
    ),
    Vendor(
        name="tollway",
        own=True,
        page=TOLLWAY,
        quirks=Quirks(token_limit="max_tokens", takes=frozenset({"cache_control", "reasoning_details"})),
        request_id_header="x-tollway-request-id",
        also={
            **_responses(quirks=Quirks(takes=frozenset({"reasoning_effort"}))),
            "anthropic_messages": Speech(path="/messages", capabilities=MESSAGES, quirks=Quirks(usage_option=False)),
            **_embeddings(base64=True),
            **_completions(),
        },
        source="docs/languages.md",
    ),
    Vendor(name="scripted", dialect="", signer="none", key_required=False, capabilities=CHAT | {"audio", "documents", "embeddings"}),
    Vendor(
        name="local",
        own=True,
        dialect="",
        signer="none",
        key_required=False,
        capabilities=frozenset({"tools", "json_schema", "json_mode", "n", "logprobs"}),
        also=_embeddings(""),
        honours=frozenset({"top_k", "min_p", "min_tokens", "ignore_eos", "repetition_penalty", "structured_outputs"}),
    ),
)

VENDORS: Mapping[str, Vendor] = {row.name: row for row in _ROWS}
