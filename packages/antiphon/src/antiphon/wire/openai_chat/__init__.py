"""OpenAI Chat Completions and the hosts that imitate it."""

from antiphon.wire.format import FormatModule, FormatSignature
from antiphon.wire.request import SequenceRule
from antiphon.wire.rules import name_set

FORMAT = "openai-chat"
FORMAT_MODULE = FormatModule(
    messages_key="messages",
    sequence_rule=SequenceRule(),
    options=frozenset({"dialect"}),
    normalizes_streams=True,
    embeds_raw_json=True,
    signature=FormatSignature(
        body_keys=name_set("max_completion_tokens response_format stream_options"),
        tool_keys=name_set("function"),
        message_keys=name_set("tool_calls"),
        roles=name_set("tool developer function"),
        block_types=name_set("image_url input_audio file"),
    ),
)
