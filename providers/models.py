"""What single models take, where that differs from what their vendor does: a table of families, read when a backend is made.

A family is named by patterns of the model's public name; the first that fits counts. What a vendor's own API refuses or renames holds
there alone (`native`); what a model can see and how long it may be holds wherever it is served. Maxima are upper bounds: a smaller one
of a deployment stands in its entry. Knows no backend and no price.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from providers.vendors import Vendor


class Family(Struct, frozen=True, kw_only=True):
    """names: patterns of the last part of a model's name, in lower case. native: vendors for which what follows up to `thinking` holds;
    empty = all. token_limit, refuse, drop, takes, efforts, thinking: as in Quirks, beside the vendor's own. has, lacks: capabilities
    beside and without the vendor's. dialect: the language that it is spoken to, where that is not the vendor's first. source: where
    this was read.
    """

    names: tuple[str, ...]
    native: tuple[str, ...] = ()
    token_limit: str = ""
    refuse: frozenset[str] = frozenset()
    drop: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    efforts: tuple[str, ...] = ()
    thinking: str = ""
    has: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    dialect: str = ""
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    source: str = ""


UNKNOWN = Family(names=())
_OPENAI = ("openai", "azure_openai")
_SAMPLING = frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"})
_EFFORT = frozenset({"reasoning_effort"})
_REASONING = "https://platform.openai.com/docs/guides/reasoning"
_OPENAI_MODELS = "https://platform.openai.com/docs/models"
_EMBEDDINGS = "https://platform.openai.com/docs/guides/embeddings"
_COMPLETIONS = "https://platform.openai.com/docs/api-reference/completions"
_CLAUDE = "https://platform.claude.com/docs/en/about-claude/models/overview"
_ADAPTIVE = "https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking"
_CLAUDE_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_TEXT = frozenset({"images", "audio", "documents"})  # what a model that reads text alone lacks
_SILENT = frozenset({"audio"})
_MILLION = 1_000_000

FAMILIES: tuple[Family, ...] = (
    # ---- OpenAI: reasoning models take sampling parameters with their default values alone
    Family(
        names=("o1-mini*", "o1-preview*", "o3-mini*"),
        native=_OPENAI,
        token_limit="max_completion_tokens",
        refuse=_SAMPLING,
        drop=frozenset({"parallel_tool_calls"}),
        takes=_EFFORT,
        efforts=("low", "medium", "high"),
        lacks=_TEXT | {"logprobs"},
        context_tokens=200_000,
        max_output_tokens=100_000,
        source=_REASONING,
    ),
    Family(
        names=("o1", "o1-*", "o3", "o3-*", "o4-*"),
        native=_OPENAI,
        token_limit="max_completion_tokens",
        refuse=_SAMPLING | {"stop"},
        drop=frozenset({"parallel_tool_calls"}),
        takes=_EFFORT,
        efforts=("low", "medium", "high"),
        lacks=_SILENT | {"logprobs"},
        context_tokens=200_000,
        max_output_tokens=100_000,
        source=_REASONING,
    ),
    Family(names=("gpt-5*-chat*",), lacks=_SILENT, context_tokens=128_000, max_output_tokens=16_384, source=_OPENAI_MODELS),
    Family(
        names=("gpt-5", "gpt-5-*"),
        native=_OPENAI,
        token_limit="max_completion_tokens",
        refuse=_SAMPLING | {"stop"},
        takes=_EFFORT,
        efforts=("minimal", "low", "medium", "high"),
        lacks=_SILENT | {"logprobs"},
        context_tokens=400_000,
        max_output_tokens=128_000,
        source=_REASONING,
    ),
    Family(  # from 5.1 on they sample as told while they do not reason, which is their default: the vendor decides
        names=("gpt-5.*",),
        native=_OPENAI,
        token_limit="max_completion_tokens",
        takes=_EFFORT,
        efforts=("none", "low", "medium", "high", "xhigh"),
        lacks=_SILENT,
        context_tokens=1_050_000,
        max_output_tokens=128_000,
        source=_REASONING,
    ),
    Family(
        names=("gpt-oss-*",),
        takes=_EFFORT,
        efforts=("low", "medium", "high"),
        lacks=_TEXT,
        context_tokens=131_072,
        max_output_tokens=131_072,
        source=_OPENAI_MODELS,
    ),
    # ---- OpenAI: the others
    Family(names=("gpt-4.1*",), lacks=_SILENT, context_tokens=1_047_576, max_output_tokens=32_768, source=_OPENAI_MODELS),
    Family(names=("gpt-4o*audio*", "gpt-audio*"), has=_SILENT, context_tokens=128_000, max_output_tokens=16_384, source=_OPENAI_MODELS),
    Family(names=("gpt-4o*", "chatgpt-4o*"), lacks=_SILENT, context_tokens=128_000, max_output_tokens=16_384, source=_OPENAI_MODELS),
    Family(names=("gpt-4-turbo*",), lacks=_SILENT, context_tokens=128_000, max_output_tokens=4_096, source=_OPENAI_MODELS),
    Family(
        names=("gpt-3.5-turbo-instruct*", "gpt-35-turbo-instruct*", "davinci-002", "babbage-002"),
        dialect="openai_completions",
        context_tokens=16_384,
        source=_COMPLETIONS,
    ),
    Family(
        names=("gpt-3.5-turbo*", "gpt-35-turbo*"),
        lacks=_TEXT | {"json_schema"},
        context_tokens=16_385,
        max_output_tokens=4_096,
        source=_OPENAI_MODELS,
    ),
    # ---- embeddings, by the names that such models have
    Family(
        names=("text-embedding-ada-002*",),
        refuse=frozenset({"dimensions"}),
        dialect="openai_embeddings",
        context_tokens=8_192,
        source=_EMBEDDINGS,
    ),
    Family(names=("text-embedding-3-*",), dialect="openai_embeddings", context_tokens=8_192, source=_EMBEDDINGS),
    Family(
        names=("mistral-embed*",),
        refuse=frozenset({"dimensions"}),
        dialect="openai_embeddings",
        source="https://docs.mistral.ai/capabilities/embeddings",
    ),
    Family(
        names=("*embed*", "bge-*", "gte-*", "e5-*", "*-e5-*", "all-minilm*", "all-mpnet*", "voyage-*"),
        dialect="openai_embeddings",
        source=_EMBEDDINGS,
    ),
    # ---- Anthropic: thinking by effort, by both, by a budget, or not at all
    Family(
        names=("claude-fable-*", "claude-mythos-*"),
        native=("anthropic",),
        refuse=_CLAUDE_SAMPLING,
        thinking="always",
        context_tokens=_MILLION,
        max_output_tokens=128_000,
        source=_ADAPTIVE,
    ),
    Family(
        names=("claude-opus-4-7*", "claude-opus-4-8*", "claude-opus-5*", "claude-sonnet-5*", "claude-haiku-5*"),
        native=("anthropic",),
        refuse=_CLAUDE_SAMPLING,
        thinking="adaptive_only",
        context_tokens=_MILLION,
        max_output_tokens=128_000,
        source=_ADAPTIVE,
    ),
    Family(
        names=("claude-opus-4-6*", "claude-sonnet-4-6*"),
        native=("anthropic",),
        thinking="adaptive",
        context_tokens=_MILLION,
        max_output_tokens=128_000,
        source=_ADAPTIVE,
    ),
    Family(
        names=("claude-sonnet-4-5*",),
        native=("anthropic",),
        thinking="budget",
        context_tokens=_MILLION,
        max_output_tokens=64_000,
        source=_CLAUDE,
    ),
    Family(
        names=("claude-opus-4-5*", "claude-haiku-4-5*"),
        native=("anthropic",),
        thinking="budget",
        context_tokens=200_000,
        max_output_tokens=64_000,
        source=_CLAUDE,
    ),
    Family(
        names=("claude-opus-4-1*",),
        native=("anthropic",),
        thinking="budget",
        context_tokens=200_000,
        max_output_tokens=32_000,
        source=_CLAUDE,
    ),
    Family(
        names=("claude-sonnet-4-*", "claude-sonnet-4"),
        native=("anthropic",),
        thinking="budget",
        lacks=frozenset({"json_schema"}),
        context_tokens=_MILLION,
        max_output_tokens=64_000,
        source=_CLAUDE,
    ),
    Family(
        names=("claude-opus-4-*", "claude-opus-4"),
        native=("anthropic",),
        thinking="budget",
        lacks=frozenset({"json_schema"}),
        context_tokens=200_000,
        max_output_tokens=32_000,
        source=_CLAUDE,
    ),
    Family(
        names=("claude-3-7-*",),
        native=("anthropic",),
        thinking="budget",
        lacks=frozenset({"json_schema"}),
        context_tokens=200_000,
        max_output_tokens=128_000,
        source=_CLAUDE,
    ),
    Family(
        names=("claude-3-5-*",),
        native=("anthropic",),
        thinking="none",
        lacks=frozenset({"json_schema"}),
        context_tokens=200_000,
        max_output_tokens=8_192,
        source=_CLAUDE,
    ),
    Family(
        names=("claude-3-*",),
        native=("anthropic",),
        thinking="none",
        lacks=frozenset({"json_schema", "documents"}),
        context_tokens=200_000,
        max_output_tokens=4_096,
        source=_CLAUDE,
    ),
    # ---- xAI
    Family(names=("grok-*non-reasoning*",), lacks=_SILENT, context_tokens=2_000_000, source="https://docs.x.ai/docs/models"),
    Family(
        names=("grok-3-mini*",),
        native=("xai",),
        refuse=frozenset({"presence_penalty", "frequency_penalty", "stop"}),
        takes=_EFFORT,
        efforts=("low", "high"),
        lacks=_TEXT,
        context_tokens=131_072,
        source="https://docs.x.ai/docs/guides/reasoning",
    ),
    Family(
        names=("grok-4*", "grok-code*"),
        native=("xai",),
        refuse=frozenset({"presence_penalty", "frequency_penalty", "stop"}),
        context_tokens=2_000_000,
        source="https://docs.x.ai/docs/guides/reasoning",
    ),
    # ---- DeepSeek
    Family(
        names=("deepseek-reasoner*",),
        native=("deepseek",),
        refuse=frozenset({"logprobs", "top_logprobs"}),
        lacks=_TEXT | {"logprobs"},
        context_tokens=131_072,
        max_output_tokens=65_536,
        source="https://api-docs.deepseek.com/guides/reasoning_model",
    ),
    # ---- open models that read text alone, whoever serves them
    Family(names=("llama-guard*", "*llama-3.2-*vision*", "llama-4*"), source="https://www.llama.com/docs/model-cards-and-prompt-formats"),
    Family(
        names=("*llama-3-*", "*llama3-*", "*llama-3.1-*", "*llama-3.2-*", "*llama-3.3-*", "llama3.1*", "llama3.3*"),
        lacks=_TEXT,
        context_tokens=131_072,
        source="https://www.llama.com/docs/model-cards-and-prompt-formats",
    ),
    Family(
        names=("codestral*", "open-mistral-7b*", "open-mixtral*", "mixtral-*", "mistral-7b*"),
        lacks=_TEXT,
        source="https://docs.mistral.ai/getting-started/models",
    ),
)


def family_of(model: str) -> Family:
    """The first family that a model's name fits; UNKNOWN where none does. Names of makers and regions before it do not count."""
    name = model.rpartition("/")[2].lower()
    if ".anthropic." in name or name.startswith("anthropic."):
        name = name.rpartition("anthropic.")[2]
    for family in FAMILIES:
        if any(fnmatchcase(name, pattern) for pattern in family.names):
            return family
    return UNKNOWN


def fitted(vendor: Vendor, family: Family) -> Vendor:
    """The vendor's row as a model of the family is spoken to there."""
    quirks = vendor.quirks
    if not family.native or vendor.name in family.native:
        quirks = replace(
            quirks,
            token_limit=family.token_limit or quirks.token_limit,
            refuse=quirks.refuse | family.refuse,
            drop=quirks.drop | family.drop,
            takes=quirks.takes | family.takes,
            efforts=family.efforts or quirks.efforts,
            thinking=family.thinking or quirks.thinking,
        )
    return replace(vendor, capabilities=(vendor.capabilities | family.has) - family.lacks, quirks=quirks)
