"""What the Messages API accepts, as data for the writer and the checks (the ids are those of `rules`).

Ranges of numbers are in the table of `parameters`; names and ids of tools, image types and cache breakpoints in
`capabilities.json`; the fields of each block type in `rules/tables.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from antiphon.wire.rules import name_set

PARAMETERS = name_set(
    "model messages max_tokens system metadata stop_sequences stream temperature top_p top_k tools tool_choice thinking "
    "service_tier container context_management mcp_servers output_config output_format cache_control inference_geo speed "
    "user_profile_id diagnostics fallbacks fallback_credit_token compaction thread"
)
"""AN-27."""
# Hosts with the model in the URL accept version and betas in the body (AN-01, errata).
HOST_PARAMETERS = PARAMETERS | {"anthropic_version", "anthropic_beta"}
SAMPLING = ("temperature", "top_p", "top_k")
"""AN-21; API version 2026-10-21 has none of them (AN-28)."""
EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""AN-32."""
MIN_BUDGET = 1024
"""Of thinking (AN-19)."""
MIN_TOP_P_WITH_THINKING = 0.95
"""AN-19."""
MAX_STRICT_TOOLS, MAX_OPTIONAL_PARAMETERS, MAX_UNION_PARAMETERS = 20, 24, 16
"""Of all strict tools together (AN-16)."""
FORCED_CHOICES = ("any", "tool")
"""The types of `tool_choice` that force a call, which not every model accepts (AN-17), nor thinking (AN-19)."""
CHOICES = ("auto", *FORCED_CHOICES, "none")
"""All of them."""
THINKING_BLOCKS = ("thinking", "redacted_thinking")
UNMARKED_BLOCKS = frozenset({*THINKING_BLOCKS, "fallback"})
"""The blocks that cannot have a cache breakpoint (AN-18)."""
MARKED_MESSAGES = 2
"""How many user messages get a cache breakpoint, beside the tools and the system prompt: four in all (AN-18)."""
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
PDF, PLAIN_TEXT = "application/pdf", "text/plain"
"""The types of inline documents (AN-24)."""


def is_server_block(block_type: str) -> bool:
    """Whether a block is a call that the provider runs itself, or the result of one."""
    return block_type in SERVER_CALLS or block_type.endswith("_tool_result")


is_blank: Callable[[str], object] = re.compile(r"\s*").fullmatch
"""Whether a text is refused as empty (AN-05, AN-22)."""
