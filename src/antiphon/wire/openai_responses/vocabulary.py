"""The words of the Responses API: its roles, items, parts and parameters."""

from __future__ import annotations

from antiphon.wire.rules import name_list, name_set
from antiphon.wire.vendors.openai import Range

ROLES = ("assistant", "system", "developer", "user")
ITEM_TYPES = name_list(
    "additional_tools agent_message apply_patch_call apply_patch_call_output code_interpreter_call compaction"
    " compaction_trigger computer_call computer_call_output configuration_update custom_tool_call"
    " custom_tool_call_output file_search_call function_call function_call_output image_generation_call"
    " item_reference local_shell_call local_shell_call_output mcp_approval_request mcp_approval_response"
    " mcp_call mcp_list_tools message multi_agent_call multi_agent_call_output program program_output reasoning"
    " shell_call shell_call_output tool_search_call tool_search_output web_search_call"
)
INPUT_PARTS = name_list(
    "input_text input_image output_text refusal input_file input_audio computer_screenshot summary_text reasoning_text"
)
OUTPUT_PARTS = ("output_text", "refusal")
RESULT_PARTS = ("input_text", "input_image", "input_file")
PARAMETERS = name_set(
    "background context_management conversation include input instructions max_output_tokens max_tool_calls metadata"
    " model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options"
    " prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text"
    " tool_choice tools top_logprobs top_p truncation user"
)
RANGES = {
    "temperature": Range(0, 2),
    "top_p": Range(0, 1),
    "top_logprobs": Range(0, 20, integer=True),
    "max_tool_calls": Range(1, integer=True),
}
MOVED = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "functions": "tools",
    "function_call": "tool_choice",
}
CHAT_ONLY = name_set(
    "audio frequency_penalty logit_bias logprobs modalities n prediction presence_penalty seed stop web_search_options"
)
CALLS = ("function_call", "custom_tool_call")
RESULTS = ("function_call_output", "custom_tool_call_output")
FOREIGN_FIELDS = name_set("cache_control tool_calls tool_call_id reasoning_content thinking_blocks")
