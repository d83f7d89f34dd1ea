"""What a request of this language asks for beside its prompt, in the neutral model. Nothing comes here from another language."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw
from msgspec.structs import replace

from providers.dialects.crossing import Reader, read_parameters
from providers.dialects.openai_chat.parameters import READERS as CHAT
from providers.dialects.openai_completions.fields import FIELDS
from providers.dialects.rawjson import NULL, decode_any
from providers.types import Parameters, Request

READERS: Mapping[str, tuple[Reader, ...]] = {name: CHAT[name] for name in ("top_p", "stop", "user")}  # they mean the same there


def decode_parameters(request: Request) -> Parameters:
    """Log probabilities by chat's names; what only a model that continues prompts can do is refused by name."""
    found = read_parameters(request, FIELDS, READERS)
    fields = {name: decode_any(request.fields.get(name, NULL)) for name in ("logprobs", "echo", "best_of", "n")}
    refused = dict(found.refused)
    if fields["logprobs"] is not None:
        refused["logprobs"] = Raw(b"true")
        refused["top_logprobs"] = Raw(str(fields["logprobs"]).encode())
        if fields["echo"]:
            refused["echo"] = request.fields["echo"]  # the prompt's own log probabilities
    if (fields["best_of"] or 1) > (fields["n"] or 1):
        refused["best_of"] = request.fields["best_of"]
    return replace(found, refused=refused)
