"""Google's Gemini Interactions API."""

from __future__ import annotations

from antiphon.wire.rules import name_set
from antiphon.wire.spec import FormatSignature, FormatSpec, MediaBlocks, SequenceRule

FORMAT = "gemini-interactions"
SPEC = FormatSpec(
    messages_key="input",
    required=frozenset({"input"}),
    sequence_rule=SequenceRule(results_first=False, merges_assistant_turns=True),
    server_state={"previous_interaction_id": bool},
    has_native_text=True,
    media_blocks=MediaBlocks(
        kinds={"image": "image", "audio": "audio", "video": "video", "document": "document"},
        containers=("content", "output", "result"),
    ),
    signature=FormatSignature(
        body_keys=name_set("system_instruction generation_config previous_interaction_id agent agent_config"),
        message_types=name_set("user_input model_output thought function_result"),
    ),
)
