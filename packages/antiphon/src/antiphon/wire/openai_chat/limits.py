"""What Chat Completions accepts, as data for the writer and the checks (the ids are those of `rules`).

Names of tools and image types are in `capabilities.json`, what Responses has too in `shared_openai.py`, and what the hosts
accept in `dialects`.
"""

from __future__ import annotations

import re

from msgspec import structs

from antiphon.wire.parameters import NUMBER, Parameter, ParameterTable, Range, Texts
from antiphon.wire.rules import name_set
from antiphon.wire.shared_openai import shared_rows
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

_SHARED = shared_rows("OC-20", "OC-27", "OC-26")
_PENALTY = Range(rule="OC-20", minimum=-2, maximum=2)
_OUTPUT_TOKENS = Range(rule="OC-20", minimum=1, below="drop", is_whole=True, model_fact="max_output_tokens")
PARAMETER_TABLE = ParameterTable(
    "Chat Completions",
    (
        *(_SHARED[key] for key in ("model", "stream", "parallel_tool_calls", "store")),
        Parameter("verbosity", "verbosity", (str,)),
        *(_SHARED[key] for key in ("user", "service_tier", "prompt_cache_key")),
        Parameter("logprobs", "logprobs", (bool,)),
        *(_SHARED[key] for key in ("temperature", "top_p")),
        Parameter("presence_penalty", "presence_penalty", NUMBER, _PENALTY),
        Parameter("frequency_penalty", "frequency_penalty", NUMBER, _PENALTY),
        Parameter("candidates", "n", (int,), Range(rule="OC-20", minimum=1, is_whole=True, model_fact="candidates")),
        _SHARED["top_logprobs"],
        Parameter("max_output_tokens", "max_tokens", limit=_OUTPUT_TOKENS, is_written=False),
        Parameter("max_output_tokens", "max_completion_tokens", limit=_OUTPUT_TOKENS),
        Parameter("seed", "seed", (int,)),
        Parameter("top_k", "top_k", (int,)),
        Parameter("stop", "stop", limit=Texts(rule="OC-21", at_most=4, accepts_one=True, each_is_reported=False)),
        _SHARED["metadata"],
    ),
)
COMPATIBLE_TABLE = ParameterTable(  # other hosts have service tiers of their own
    "Chat Completions",
    (structs.replace(row, limit=None) if row.field == "service_tier" else row for row in PARAMETER_TABLE.rows),
)
HOST_PARAMETERS = ("enable_thinking", "reasoning", "thinking", "top_k")
"""Parameters of other hosts that are read."""
