"""Generated histories: parts, entries and whole conversations as hypothesis strategies."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from antiphon.history import (
    AgentHistory,
    ApprovalRequestedEntry,
    DebugLogEntry,
    EntryMetadata,
    HistoryEntry,
    HumanDecisionEntry,
    LiveContextInjectedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Refusal,
    Text,
    Thinking,
    TokenUsage,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
words = st.sampled_from(["rain", "Oslo", "今天下雨吗", "plan", "é", "🙂", "", " ", "\n", '{"a": 1}', "\u2028"])
any_text = st.one_of(words, texts)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
extras = st.none() | st.dictionaries(
    st.sampled_from(["anthropic", "gemini"]), st.dictionaries(texts, json_values, max_size=2), max_size=2
)
base64 = st.binary(max_size=12).map(lambda data: __import__("base64").b64encode(data).decode())

text_parts = st.builds(Text, any_text, native=extras)
media_parts = st.one_of(
    st.builds(Image, st.just("image/png"), base64, native=extras),
    st.builds(Audio, st.just("audio/wav"), base64),
    st.builds(Document, st.just("application/pdf"), base64, name=any_text),
    st.builds(Document, st.just("text/plain"), text=any_text),
)
native_parts = st.builds(Native, st.just("anthropic"), json_values, st.just("claude"))
input_parts = st.one_of(text_parts, media_parts, native_parts)
call_ids = st.sampled_from(["call_1", "call_2", "call_3", "toolu_x|fc_y"])
calls = st.builds(ToolCallRequest, st.sampled_from(["weather", "search_web"]), call_ids, any_text, native=extras)
output_parts = st.one_of(
    text_parts, st.builds(Thinking, any_text, native=extras), st.builds(Refusal, any_text), calls, native_parts
)
results = st.builds(
    ToolCallResult,
    st.sampled_from(["weather", "search_web"]),
    call_ids,
    st.sampled_from(list(ToolExecutionStatus)),
    st.lists(input_parts, max_size=2).map(tuple),
    native=extras,
)
usages = st.builds(TokenUsage, st.integers(0, 999), st.integers(0, 999), raw=st.none() | st.just({"prompt_tokens": 1}))
metadata = st.none() | st.builds(
    EntryMetadata, source=any_text, duration=st.none() | st.floats(0, 9), usage=st.none() | usages, error=any_text
)
origins = st.none() | st.builds(Origin, any_text, any_text, any_text)

inputs = st.builds(ModelInputEntry, st.lists(input_parts, max_size=3).map(tuple), metadata=metadata)
outputs = st.builds(
    ModelOutputEntry, st.lists(output_parts, max_size=4).map(tuple), any_text, origins, metadata=metadata
)
result_entries = st.builds(ToolCallResultsEntry, st.lists(results, max_size=3).map(tuple), any_text, metadata=metadata)
context_entries: st.SearchStrategy[HistoryEntry] = st.one_of(inputs, outputs, result_entries)
side_entries: st.SearchStrategy[HistoryEntry] = st.one_of(
    st.builds(SetSystemInstructionEntry, any_text),
    st.builds(SetMemoryNotebookEntry, any_text),
    st.builds(DebugLogEntry, any_text, any_text),
    st.builds(ToolCallStartedEntry, any_text, call_ids),
    st.builds(ToolCallFinishedEntry, results),
    st.builds(ApprovalRequestedEntry, st.lists(call_ids, max_size=3).map(tuple), any_text),
    st.builds(HumanDecisionEntry, call_ids, st.sampled_from(["approve", "deny", "edit"]), any_text),
    st.builds(LiveContextInjectedEntry, any_text, st.integers(0, 9)),
)
entries: st.SearchStrategy[HistoryEntry] = st.one_of(context_entries, side_entries)


@st.composite
def turns(draw: st.DrawFn) -> list[HistoryEntry]:
    """One turn as it happens: a question, rounds of calls and results (some late, some never), an answer."""
    turn: list[HistoryEntry] = [draw(inputs)]
    for _ in range(draw(st.integers(0, 3))):
        made = [
            ToolCallRequest("weather", f"call_{draw(st.integers(0, 10**9))}", "{}")
            for _ in range(draw(st.integers(1, 3)))
        ]
        turn.append(ModelOutputEntry((Text(draw(any_text)), *made)))
        answered = [ToolCallResult.of(call, draw(any_text)) for call in made if draw(st.integers(0, 9))]
        if draw(st.integers(0, 4)) == 0:
            turn.append(draw(inputs))  # the user interrupts before the results are in
        cut = draw(st.integers(0, len(answered)))
        turn += [ToolCallResultsEntry(tuple(some)) for some in (answered[:cut], answered[cut:]) if some]
    turn.append(ModelOutputEntry((Text(draw(any_text)),)))
    return turn


conversations = st.lists(turns(), max_size=6).map(lambda many: [entry for turn in many for entry in turn])


def append_any(history: AgentHistory, entry: HistoryEntry) -> HistoryEntry:
    """Append an entry as a log may hold it that another version wrote: results without a call, in any order."""
    if isinstance(entry, ToolCallResultsEntry):
        entry = structs.replace(entry, sequence_number=history.version + 1)
    return history.append(entry)
