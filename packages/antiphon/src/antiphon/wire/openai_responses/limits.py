"""What Responses accepts, as data for the writer and the checks (the ids are those of `rules`).

Ranges of numbers are in the table of `parameters`, names of tools, lengths of call ids and image types in `capabilities.json`,
and what Chat Completions has too in `vendors/openai.py`.
"""

from __future__ import annotations

from antiphon.wire.rules import name_list, name_set

ROLES = ("assistant", "system", "developer", "user")
"""OR-02."""
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
INPUT_PARTS = name_list(
    "input_text input_image output_text refusal input_file input_audio computer_screenshot summary_text reasoning_text"
)
OUTPUT_PARTS = ("output_text", "refusal")
RESULT_PARTS = ("input_text", "input_image", "input_file")
"""The types of content parts: in messages of a client (OR-03), of the model (OR-03), and in results (OR-05)."""
PARAMETERS = name_set(
    "background context_management conversation include input instructions max_output_tokens max_tool_calls metadata"
    " model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options"
    " prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text"
    " tool_choice tools top_logprobs top_p truncation user"
)
"""OR-18."""
RENAMED_FROM_CHAT = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "functions": "tools",
    "function_call": "tool_choice",
}
CHAT_ONLY_PARAMETERS = name_set(
    "audio frequency_penalty logit_bias logprobs modalities n prediction presence_penalty seed stop web_search_options"
)
CALL_ITEMS = ("function_call", "custom_tool_call")
RESULT_ITEMS = ("function_call_output", "custom_tool_call_output")
STORED_ITEMS = ("item_reference", "compaction")
"""Items that may stand for further calls on the server (OR-07)."""
CHAT_ONLY_FIELDS = name_set("cache_control tool_calls tool_call_id reasoning_content thinking_blocks")
"""Fields of messages and parts that OpenAI refuses here (OR-19)."""
MESSAGE_FIELDS = name_set("type role content id status phase agent")
ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fc",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
}
"""How the ids of items begin, by the type of the item; other types have ids of any kind (OR-09)."""
PREVIOUS_ID_PREFIX = "resp"
"""OR-16."""
MIN_OUTPUT_TOKENS = 16
"""OR-14."""
MAX_MEDIA_TYPE = 127
"""No registered type is longer; those of office documents have more than 70 characters."""
REFUSED_FILES = ("audio/", "video/")
"""How the media types begin that are refused as a file (OR-05)."""
