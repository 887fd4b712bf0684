"""Histories from messages of the four formats, and back."""

from __future__ import annotations

from typing import Any

import pytest

import antiphon as ap
from antiphon.conversation.interchange import read_messages, write_messages
from antiphon.errors import ConversationError, InvalidEntry, WireError
from antiphon.history import Origin
from antiphon.history.export import lines_of
from antiphon.repair import Action
from antiphon.wire import formats
from antiphon.wire.loss import Loss
from support.corpus import FILES, accepted_requests, in_collection

CALLS = [
    {"id": "a", "type": "function", "function": {"name": "search", "arguments": '{"q":1}'}},
    {"id": "b", "type": "function", "function": {"name": "plan", "arguments": "{}"}},
]
ROUND: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "搜索并制定计划"},
    {"role": "assistant", "content": "I look.", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "a", "content": "found"},
    {"role": "tool", "tool_call_id": "b", "content": "planned"},
    {"role": "assistant", "content": "Done."},
]


def kinds(history: ap.AgentHistory) -> list[str]:
    return [entry.kind for entry in history.entries]


def test_openai_messages_come_back_the_same() -> None:
    report: list[object] = []
    history = ap.AgentHistory.from_messages(ROUND, report=report)
    assert report == []
    assert history.system_instruction == "Be brief."
    assert kinds(history) == [
        "set_system_instruction",
        "model_input",
        "model_output",
        "tool_call_results",
        "model_output",
    ]
    (results,) = (entry for entry in history.entries if isinstance(entry, ap.ToolCallResultsEntry))
    assert [(result.tool_name, result.result_markdown) for result in results.results] == [
        ("search", "found"),
        ("plan", "planned"),
    ]
    assert history.to_messages() == ROUND


def test_broken_sequence_is_repaired_and_reported() -> None:
    broken: list[dict[str, Any]] = [*ROUND[:3], {"role": "user", "content": "Stop!"}, ROUND[4], ROUND[3]]
    report: list[object] = []
    history = ap.AgentHistory.from_messages(broken, report=report)
    assert [action.kind for action in report if isinstance(action, Action)] == ["moved"]
    assert history.to_messages() == [*ROUND[:5], {"role": "user", "content": "Stop!"}]
    lost = ap.AgentHistory.from_messages(ROUND[:3], report=report)
    assert "interrupted" in lost.to_messages()[3]["content"]


def test_one_message_per_part() -> None:
    messages = ap.AgentHistory.from_messages(ROUND).to_messages(strategy="per_part")
    assert [(m["role"], m.get("tool_call_id"), len(m.get("tool_calls", ()))) for m in messages] == [
        ("system", None, 0),
        ("user", None, 0),
        ("assistant", None, 0),
        ("assistant", None, 1),
        ("tool", "a", 0),
        ("assistant", None, 1),
        ("tool", "b", 0),
        ("assistant", None, 0),
    ]


def test_messages_of_an_iteration_share_a_name() -> None:
    messages = ap.AgentHistory.from_messages(ROUND).to_messages(strategy="iterations")
    assert [(m["role"], m.get("name")) for m in messages] == [
        ("system", None),
        ("user", "iteration_1"),
        ("assistant", "iteration_1"),
        ("assistant", "iteration_1"),
        ("tool", "iteration_1"),
        ("tool", "iteration_1"),
        ("assistant", "iteration_2"),
    ]
    assert formats["openai-chat"].check_request({"model": "gpt-4o", "messages": messages}) == []


def test_empty_answer_is_neither_stored_nor_sent() -> None:
    report: list[object] = []
    history = ap.AgentHistory.from_messages([*ROUND, {"role": "assistant", "content": ""}], report=report)
    assert [str(note) for note in report] == ["messages[6]: empty message: an empty message is not stored"]
    assert history.to_messages() == ROUND
    history.append(ap.ModelOutputEntry.of(""))
    assert history.to_messages() == ROUND


@pytest.mark.parametrize("name", ["anthropic", "openai-responses", "gemini"])
def test_other_formats_keep_the_conversation(name: str) -> None:
    history = ap.AgentHistory.from_messages(ROUND)
    written = write_messages(history, name)
    again = read_messages(written.body, name)
    assert [*written.losses, *again.losses, *written.repairs, *again.repairs] == []
    copy = ap.AgentHistory()
    for entry in again.entries:
        copy.append(entry)
    assert copy.to_messages() == ROUND


def violations(name: str, body: dict[str, Any]) -> set[str]:
    checked = formats[name].check_request({"model": "m", "max_tokens": 9, **body})
    return {violation.rule for violation in checked}


@pytest.mark.parametrize("name", FILES)
def test_accepted_bodies_are_imported_stored_and_written(name: str) -> None:
    count = 0
    with ap.SqliteStore(":memory:") as store:
        for body in accepted_requests(name):
            key = formats[name].spec.messages_key
            if key not in body:
                continue
            history = ap.AgentHistory.from_messages(body, name)
            count += 1
            if count % 20 == 1:
                info = store.import_lines(lines_of(history.entries))
                assert store.open(info.id).entries == history.entries
            back = write_messages(history, name).body
            if back[key]:
                assert violations(name, back) <= violations(name, body)
    assert count > in_collection(50)


def test_settings_of_a_body_are_reported() -> None:
    report: list[Any] = []
    ap.AgentHistory.from_messages({"model": "m", "temperature": 0, "messages": ROUND}, report=report)
    assert [(loss.path, loss.why) for loss in report if isinstance(loss, Loss)] == [
        ("temperature", "a setting of the request, not part of a history")
    ]


def test_signatures_return_to_their_model_only() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s" * 40}
    turn = {"role": "assistant", "content": [thinking, {"type": "text", "text": "Hi."}]}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hi."}, turn]
    history = ap.AgentHistory.from_messages(messages, "anthropic", model="anthropic/claude-x")
    output = history.entries[1]
    assert isinstance(output, ap.ModelOutputEntry)
    assert output.origin == Origin("anthropic", "anthropic", "claude-x")
    assert history.to_messages("anthropic")[1] == turn
    report: list[object] = []
    history.to_messages("openai-chat", report=report)
    assert any("signature" in str(loss) for loss in report)


@pytest.mark.parametrize(
    ("messages", "name", "why"),
    [
        (ROUND, "openai", "unknown format 'openai'"),
        ({"contents": []}, "openai-chat", "it looks like gemini"),
        ({"messages": ROUND}, "gemini", "it looks like openai-chat"),
    ],
)
def test_wrong_format_is_refused(messages: Any, name: str, why: str) -> None:
    with pytest.raises(WireError, match=why):
        ap.AgentHistory.from_messages(messages, name)


def test_unknown_strategy_is_refused() -> None:
    history = ap.AgentHistory.from_messages(ROUND)
    with pytest.raises(WireError, match="unknown strategy 'flat'"):
        history.to_messages(strategy="flat")  # type: ignore[arg-type]
    with pytest.raises(WireError, match="exists for openai-chat only"):
        history.to_messages("gemini", strategy="iterations")


def test_conversation_accepts_messages_as_providers_write_them() -> None:
    chat = ap.Conversation(ap.ScriptedModel())
    assert [chat.add(message) for message in ROUND] == [1, 2, 3, 4, 5, 6]
    assert [entry.kind for entry in chat.history.entries] == [
        "set_system_instruction",
        "model_input",
        "model_output",
        "tool_call_results",
        "tool_call_results",
        "model_output",
    ]
    assert chat.history.to_messages() == ROUND
    chat.add({"role": "user", "parts": [{"text": "in Gemini's words"}]})
    chat.add({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "plan", "input": {"n": 1}}]})
    chat.add({"type": "function_call_output", "call_id": "c", "output": "ok"})
    assert [message["role"] for message in chat.history.to_messages()[-3:]] == ["user", "assistant", "tool"]


def test_result_of_an_unknown_call_is_refused() -> None:
    chat = ap.Conversation(ap.ScriptedModel())
    with pytest.raises(InvalidEntry, match="results for unknown calls: 'nope'"):
        chat.add({"role": "tool", "tool_call_id": "nope", "content": "x"})
    assert chat.history.version == 0
    with pytest.raises(ConversationError, match="empty assistant message"):
        chat.add({"role": "assistant", "content": ""})


def test_results_are_stored_in_call_order() -> None:
    history = ap.AgentHistory()
    calls = [ap.ToolCallRequest("t", name) for name in ("one", "two", "three")]
    history.append(ap.ModelOutputEntry.of(*calls))
    results = [ap.ToolCallResult.of(call, call.tool_call_id) for call in reversed(calls)]
    stored = history.append(ap.ToolCallResultsEntry(tuple(results)))
    assert [result.tool_call_id for result in stored.results] == ["one", "two", "three"]
    assert history.entries[-1] is stored


def test_a_result_before_its_call_is_moved_after_it() -> None:
    """The Responses API accepts that order; a history does not."""
    items = [
        {"role": "user", "content": "Read it."},
        {"type": "function_call_output", "call_id": "call_1", "output": "green"},
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
    ]
    read = read_messages(items, "openai-responses")
    assert [entry.kind for entry in read.entries] == ["model_input", "model_output", "tool_call_results"]
    assert [action.kind for action in read.repairs] == ["moved"]
