"""What Chat Completions accepts, as data for the writer and the checks (the ids are those of `rules`).

Ranges of numbers are in the table of `parameters`, names of tools and image types in `capabilities.json`, what
Responses has too in `shared_openai.py`, and what the hosts accept in `dialects`.
"""

from __future__ import annotations

import re

from antiphon.wire.rules import name_set
from antiphon.wire.tools.names import NameMapper

PARAMETERS = name_set(
    "model messages audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens"
    " max_tokens metadata modalities moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key"
    " prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier"
    " stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity"
    " web_search_options"
)
"""OC-26."""

MAX_PARTICIPANT_NAME = 64
NOT_IN_PARTICIPANT_NAME = r"\s<|\\/>"
PARTICIPANT_NAMES = NameMapper(f"[^{NOT_IN_PARTICIPANT_NAME}]{{1,{MAX_PARTICIPANT_NAME}}}")
"""The `name` of a message (OC-25)."""
_illegal_characters = re.compile(f"[{NOT_IN_PARTICIPANT_NAME}]+")


def legal_participant_name(name: str) -> str:
    """The name without illegal characters and not too long; may be empty."""
    return _illegal_characters.sub("_", name)[:MAX_PARTICIPANT_NAME]


LONG_CALL_ID, SHORT_CALL_ID = 64, 40
"""The longest ids of calls: at api.openai.com, and at Azure, Copilot and other hosts (OC-09)."""
MISTRAL_ID_LENGTH = 9
MISTRAL_CALL_ID = f"[a-zA-Z0-9]{{{MISTRAL_ID_LENGTH}}}"
"""MI-01."""
