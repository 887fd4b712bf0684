"""What Responses accepts, as data for the writer and the checks (the ids are those of `rules`).

Names of tools, lengths of call ids and image types are in `capabilities.json`, what Chat Completions has too in
`shared_openai.py`.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from antiphon.wire.parameters import Parameter, ParameterTable, Range
from antiphon.wire.rules import name_list, name_set
from antiphon.wire.shared_openai import shared_rows

ITEM_TYPES = name_list(
    "additional_tools agent_message apply_patch_call apply_patch_call_output code_interpreter_call compaction"
    " compaction_trigger computer_call computer_call_output configuration_update custom_tool_call"
    " custom_tool_call_output file_search_call function_call function_call_output image_generation_call"
    " item_reference local_shell_call local_shell_call_output mcp_approval_request mcp_approval_response"
    " mcp_call mcp_list_tools message multi_agent_call multi_agent_call_output program program_output reasoning"
    " shell_call shell_call_output tool_search_call tool_search_output web_search_call"
)
ITEM_TYPE_SET = frozenset(ITEM_TYPES)
"""OR-02; the tuple has the order in which OpenAI lists them."""
PARAMETERS = name_set(
    "background context_management conversation include input instructions max_output_tokens max_tool_calls metadata"
    " model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options"
    " prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text"
    " tool_choice tools top_logprobs top_p truncation user"
)
"""OR-18."""
CALL_ITEMS = ("function_call", "custom_tool_call")
RESULT_ITEMS = ("function_call_output", "custom_tool_call_output")
ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
}
"""How the ids of items begin, by the type of the item; other types have ids of any kind (OR-09)."""
REFUSED_FILES = ("audio/", "video/")
"""How the media types begin that are refused as a file (OR-05)."""
LOGPROBS = "message.output_text.logprobs"
"""In `include`."""

_SHARED = shared_rows("OR-15", "OR-15", "OR-15")
PARAMETER_TABLE = ParameterTable(
    "OpenAI Responses",
    (
        *(_SHARED[key] for key in ("model", "stream", "parallel_tool_calls", "store", "service_tier")),
        _SHARED["prompt_cache_key"],
        structs.replace(_SHARED["user"], is_written=False),
        Parameter(
            "max_output_tokens",
            "max_output_tokens",
            (int,),
            Range(rule="OR-14", minimum=16, is_whole=True, model_fact="max_output_tokens"),
        ),
        *(_SHARED[key] for key in ("temperature", "top_p", "top_logprobs", "metadata")),
        Parameter("verbosity", "verbosity", (str,), inside="text"),
        Parameter("", "max_tool_calls", limit=Range(rule="OR-15", minimum=1, is_whole=True), is_written=False),
    ),
    no_loss=("logprobs",),  # in `include`
)


def asks_for_logprobs(body: dict[str, Any]) -> bool:
    """Whether a body asks for log probabilities."""
    include = body.get("include")
    return isinstance(include, list) and LOGPROBS in include
