"""Google's Gemini generateContent API."""

from antiphon.wire.format import FormatModule
from antiphon.wire.request import SequenceRule

FORMAT = "gemini"
FORMAT_MODULE = FormatModule(
    messages_key="contents",
    sequence_rule=SequenceRule(results_first=False, merges_assistant_turns=True),
    required=frozenset({"contents"}),
    options=frozenset({"model"}),
    embeds_raw_json=True,
    keep_alive=b"data: ",
    has_comments=False,  # google-genai takes any line that is not data for JSON
)
