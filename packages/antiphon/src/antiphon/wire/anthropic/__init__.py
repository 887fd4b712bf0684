"""Anthropic's Messages API."""

from antiphon.wire.anthropic.limits import MARKED_MESSAGES
from antiphon.wire.format import FormatModule, FormatSignature
from antiphon.wire.request import SequenceRule
from antiphon.wire.rules import name_set

FORMAT = "anthropic"
FORMAT_MODULE = FormatModule(
    messages_key="messages",
    sequence_rule=SequenceRule(merges_assistant_turns=True, unique_ids=True),
    required=frozenset({"max_tokens"}),
    options=frozenset({"version", "dialect"}),
    calls_need_tools=True,
    marked_messages=MARKED_MESSAGES,
    embeds_raw_json=True,
    signature=FormatSignature(
        body_keys=name_set("system anthropic_version stop_sequences"),
        tool_keys=name_set("input_schema"),
        block_types=name_set("tool_use tool_result thinking redacted_thinking document image"),
    ),
)
