"""LangChain messages in and out: what we write is what we read, what others write keeps its meaning, and losses are reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from antiphon.history import (
    AgentHistory,
    DebugLogEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    SetSystemInstructionEntry,
    ToolCallResultsEntry,
)
from antiphon.integrations.langchain_messages import from_langchain, to_langchain, without_metadata
from antiphon.parts import (
    Document,
    Image,
    Native,
    Refusal,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from support.examples import scaled
from support.history_strategies import context_entries, conversations

systems = st.builds(SetSystemInstructionEntry, st.sampled_from(["Be brief.", ""]))


def shown(entries: list[HistoryEntry]) -> list[HistoryEntry]:
    """The entries that messages have a place for: all but results without calls."""
    return [without_metadata(e) for e in entries if not isinstance(e, ToolCallResultsEntry) or e.results]


@given(st.lists(st.one_of(context_entries, systems), max_size=6))
def test_entries_round_trip(entries: list[HistoryEntry]) -> None:
    assert [without_metadata(entry) for entry in from_langchain(to_langchain(entries))] == shown(entries)


@settings(max_examples=scaled(10))
@given(conversations)
def test_conversations_round_trip(entries: list[HistoryEntry]) -> None:
    history = AgentHistory()
    for entry in entries:
        history.append(entry)
    messages = to_langchain(history)
    again = AgentHistory()
    for entry in from_langchain(messages):
        again.append(entry)
    assert [without_metadata(entry) for entry in again.effective] == shown(list(history.effective))


SIGNED = Thinking("hm", native={"anthropic": {"signature": "x"}})
CALL = ToolCallRequest("weather", "call_1", '{"city":"Oslo"}')

# What an entry is as messages, in both directions: nothing is carried along where messages can say it all.
PLAIN: list[tuple[HistoryEntry, list[BaseMessage]]] = [
    (SetSystemInstructionEntry("Be brief."), [SystemMessage("Be brief.")]),
    (ModelInputEntry.of("Hello"), [HumanMessage("Hello")]),
    (
        ModelInputEntry.of("What is this?", Image("image/png", "AAAA")),
        [
            HumanMessage(
                [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "mime_type": "image/png", "base64": "AAAA"},
                ]
            )
        ],
    ),
    (
        ModelInputEntry.of(Document("application/pdf", "AAAA", name="a.pdf")),
        [
            HumanMessage(
                [
                    {
                        "type": "file",
                        "mime_type": "application/pdf",
                        "base64": "AAAA",
                        "extras": {"filename": "a.pdf"},
                    }
                ]
            )
        ],
    ),
    (
        ModelOutputEntry.of(Thinking("hm"), "Let me look.", CALL),
        [
            AIMessage(
                [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "Let me look."}],
                tool_calls=[{"name": "weather", "args": {"city": "Oslo"}, "id": "call_1"}],
            )
        ],
    ),
    (
        ModelOutputEntry.of(ToolCallRequest("weather", "call_1", '{"city": Oslo')),
        [
            AIMessage(
                "",
                invalid_tool_calls=[
                    {
                        "name": "weather",
                        "args": '{"city": Oslo',
                        "id": "call_1",
                        "error": "the arguments of weather are not valid JSON: JSON is malformed: invalid character (byte 9)",
                    }
                ],
            )
        ],
    ),
    (
        ToolCallResultsEntry(
            (ToolCallResult.of(CALL, "Rain"), ToolCallResult("look", "call_2", ToolExecutionStatus.FAILED))
        ),
        [
            ToolMessage("Rain", name="weather", tool_call_id="call_1"),
            ToolMessage("", name="look", tool_call_id="call_2", status="error"),
        ],
    ),
    (ModelOutputEntry((Refusal("No."),)), [AIMessage([{"type": "refusal", "refusal": "No."}])]),
]


@pytest.mark.parametrize(
    ("entry", "messages"), PLAIN, ids=lambda value: value.kind if isinstance(value, HistoryEntry) else ""
)
def test_entry_converts_to_messages(entry: HistoryEntry, messages: list[BaseMessage]) -> None:
    written = to_langchain([entry])
    assert list(written) == messages
    assert written.losses == ()
    assert list(from_langchain(messages)) == [entry]


@pytest.mark.parametrize(
    ("entry", "lost"),
    [
        (ModelOutputEntry.of(SIGNED), "extras of anthropic"),
        (ModelOutputEntry((Native("anthropic", {"type": "server_tool_use"}),)), "a block of anthropic"),
        (ToolCallResultsEntry((ToolCallResult.of(CALL, status=ToolExecutionStatus.SKIPPED),)), "status skipped"),
        (ToolCallResultsEntry(()), "results without calls"),
        (DebugLogEntry("note", "hm"), "a debug_log entry"),
    ],
)
def test_to_langchain_reports_losses(entry: HistoryEntry, lost: str) -> None:
    assert [loss.what for loss in to_langchain([entry]).losses] == [lost]


def test_edited_message_overrides_carried_entry() -> None:
    (message,) = to_langchain([ModelOutputEntry.of(SIGNED, "Oslo.")])
    assert [without_metadata(entry) for entry in from_langchain([message])] == [ModelOutputEntry.of(SIGNED, "Oslo.")]
    message.content = "Bergen."
    (entry,) = from_langchain([message])
    assert without_metadata(entry) == ModelOutputEntry.of("Bergen.")


def test_origin_and_usage_round_trip() -> None:
    answer = AIMessage(
        "Yes.",
        id="m1",
        response_metadata={"model_provider": "anthropic", "model_name": "claude-x", "stop_reason": "end_turn"},
        usage_metadata={
            "input_tokens": 5,
            "output_tokens": 2,
            "total_tokens": 7,
            "input_token_details": {"cache_read": 3},
        },
    )
    (entry,) = from_langchain([answer])
    assert isinstance(entry, ModelOutputEntry)
    assert entry.origin == Origin("anthropic", "", "claude-x")
    assert entry.stop_reason == "end_turn"
    assert entry.metadata is not None
    assert entry.metadata.usage is not None
    assert (entry.metadata.usage.total, entry.metadata.usage.cached_tokens) == (7, 3)
    (again,) = to_langchain([entry])
    assert (again.id, again.usage_metadata["input_tokens"]) == ("m1", 5)  # type: ignore[attr-defined]
    assert again.response_metadata["model_provider"] == "anthropic"


# What other programs write, each provider's own blocks among them.
FOREIGN: list[tuple[BaseMessage, Any]] = [
    (
        HumanMessage([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
        ModelInputEntry.of(Image("image/png", "AAAA")),
    ),
    (
        HumanMessage([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]),
        ModelInputEntry.of(Image("image/png", "AAAA")),
    ),
    (HumanMessage(["Hello, ", {"type": "text", "text": "you."}]), ModelInputEntry.of("Hello, ", "you.")),
    (
        AIMessage(
            [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}},
            ],
            tool_calls=[{"id": "call_1", "name": "weather", "args": {"city": "Oslo"}}],
            response_metadata={"model_provider": "anthropic"},
        ),
        ModelOutputEntry.of(
            Thinking("hm", native={"anthropic": {"signature": "s"}}), "Let me look.", CALL, origin=Origin("anthropic")
        ),
    ),
    (
        AIMessage([{"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}}]),
        ModelOutputEntry.of(CALL),
    ),
    (
        AIMessage("", tool_calls=[{"id": None, "name": "look", "args": {}}, {"id": None, "name": "look", "args": {}}]),
        ModelOutputEntry.of(ToolCallRequest("look", ""), ToolCallRequest("look", "")),
    ),
    (ChatMessage(content="Hi.", role="user"), ModelInputEntry.of("Hi.")),
    (ChatMessage(content="Hi.", role="assistant"), ModelOutputEntry.of("Hi.")),
    (
        SystemMessage("Now.", additional_kwargs={"__openai_role__": "developer"}),
        ModelInputEntry.of("Now.", channel="developer"),
    ),
]


@pytest.mark.parametrize(("message", "entry"), FOREIGN)
def test_foreign_message_converts_to_entry(message: BaseMessage, entry: HistoryEntry) -> None:
    read = from_langchain([message])
    assert [without_metadata(one) for one in read] == [entry]
    assert read.losses == ()


def test_unnamed_tool_message_gets_name_of_its_call() -> None:
    asked = AIMessage("", tool_calls=[{"id": "call_1", "name": "weather", "args": {"city": "Oslo"}}])
    read = from_langchain([asked, ToolMessage("Rain", tool_call_id="call_1")])
    assert read[1] == ToolCallResultsEntry((ToolCallResult.of(CALL, "Rain"),))


def test_from_langchain_reports_losses() -> None:
    given = [
        RemoveMessage("m1"),
        FunctionMessage(content="x", name="f"),
        ToolMessage("Rain", tool_call_id="call_1", artifact=object()),
        HumanMessage("Hi.", additional_kwargs={"thing": object()}),
        AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}}),
    ]
    read = from_langchain(given)
    assert [loss.path for loss in read.losses] == [
        "messages[0]",
        "messages[1]",
        "messages[2][0].artifact",
        "messages[3].additional_kwargs",
        "messages[4].additional_kwargs.function_call",
    ]
    assert len(read) == 3


def test_langchain_reads_our_messages() -> None:
    """Its own converter takes it."""
    entries = [entry for entry, _ in PLAIN if not isinstance(entry, ModelOutputEntry)]
    entries.insert(-1, ModelOutputEntry.of("Let me look.", CALL))
    assert convert_to_openai_messages(to_langchain(entries))
