"""What a conversation or an agent cannot use is refused where it is given, not in the first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import antiphon as ap
from antiphon.errors import ConversationError, RoutingError


@pytest.mark.parametrize("name", ["   ", "/x", "openai/", "openai//gpt-4o", "openai/gpt\n4", "\0"])
@pytest.mark.parametrize("take", [ap.Conversation, lambda name: ap.Agent("a", model=name)])
def test_a_name_that_no_model_can_have_is_refused(take: Callable[[str], object], name: str) -> None:
    with pytest.raises(ConversationError, match="no model has this name; it is provider/model"):
        take(name)


def test_an_unknown_provider_is_refused_with_those_that_were_meant() -> None:
    with pytest.raises(RoutingError, match=r"unknown provider 'antropic'\. Did you mean anthropic"):
        ap.Conversation("antropic/claude-sonnet-4-5")
    chat = ap.Conversation("anthropic/claude-sonnet-4-5")
    with pytest.raises(RoutingError, match="unknown provider 'opena'"):
        chat.model = "opena/gpt-5"
    ap.Agent("a", model="fast/route")  # a route of the provider that the conversation brings
    assert ap.Conversation("fast/route", provider=ap.ScriptedModel("Hi.")).model == "fast/route"


def test_a_model_that_is_none_is_refused() -> None:
    wrong: Any = 5
    with pytest.raises(ConversationError, match="a model is a name or a ProviderClient, not int"):
        ap.Agent("a", model=wrong)


def test_an_executor_that_only_looks_like_one_is_refused() -> None:
    class Runner:
        registry = ap.ToolRegistry()

        async def execute(self, call: ap.ToolCallRequest) -> ap.ToolCallResult:
            return ap.ToolCallResult.of(call, "done")

    runner: Any = Runner()
    with pytest.raises(ConversationError, match=r"executor=<.*Runner.*>: expected a ToolExecutor, or a class derived"):
        ap.Conversation(ap.ScriptedModel("Hi."), executor=runner)


def test_a_second_result_for_an_answered_call_is_refused() -> None:
    history, call = ap.AgentHistory(), ap.ToolCallRequest("look", "c1")
    history.append(ap.ModelOutputEntry.of(call))
    history.append(ap.ToolCallResultsEntry((ap.ToolCallResult.of(call, "rain"),)))
    with pytest.raises(ap.AntiphonError, match="a second result for answered calls: 'c1'"):
        history.append(ap.ToolCallResultsEntry((ap.ToolCallResult.of(call, "sun"),)))
    assert history.version == 2


def test_the_messages_begin_with_the_system_message() -> None:
    chat = ap.Conversation(ap.ScriptedModel("Hi."), system="Be brief.")
    assert [chat.add("One."), chat.add("Two.")] == [2, 3]
    assert [entry.role.value for entry in chat.messages] == ["system", "model_input", "model_input"]
    assert chat.messages[0].content == (ap.Text("Be brief."),)
    assert chat.recent(1) == chat.messages[-1:]
    chat.history.set_system_instruction("Be long.")
    assert chat.add("Three.") == len(chat.messages) == 4
    chat.clear()
    assert [entry.role.value for entry in chat.messages] == ["system"]
    bare = ap.Conversation(ap.ScriptedModel("Hi."))
    assert (bare.messages, bare.add("One.")) == ((), 1)


def test_an_error_of_run_sync_is_the_only_one_in_its_traceback() -> None:
    with pytest.raises(ConversationError, match="not a message part") as raised:
        ap.ToolLoop(ap.Conversation(ap.ScriptedModel("Hi."))).run_sync(5)  # type: ignore[call-overload]
    assert raised.value.__context__ is None
