"""Google's Gemini Interactions API."""

from antiphon.wire.format import FormatModule, FormatSignature
from antiphon.wire.request import SequenceRule

FORMAT = "gemini-interactions"
FORMAT_MODULE = FormatModule(
    messages_key="input",
    required=frozenset({"input"}),
    sequence_rule=SequenceRule(results_first=False, merges_assistant_turns=True),
    signature=FormatSignature(
        body_keys=frozenset(
            {"system_instruction", "generation_config", "previous_interaction_id", "agent", "agent_config"}
        ),
        message_types=frozenset({"user_input", "model_output", "thought", "function_result"}),
    ),
    embeds_raw_json=True,
)
