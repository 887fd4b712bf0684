"""OpenAI Responses."""

from antiphon.wire.format import FormatModule
from antiphon.wire.openai_responses.limits import STORED_ITEMS
from antiphon.wire.request import SequenceRule

FORMAT = "openai-responses"
FORMAT_MODULE = FormatModule(
    messages_key="input",
    required=frozenset({"input"}),
    sequence_rule=SequenceRule(results_follow_calls=False, stored_items=STORED_ITEMS, origin=FORMAT),
    has_tool_namespaces=True,
    repeats_settings=True,
)
