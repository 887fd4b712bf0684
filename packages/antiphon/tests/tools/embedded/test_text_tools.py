"""Tools for models without tool support: in the prompt, called and answered in text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import antiphon as ap
from antiphon.errors import ConversationError
from antiphon.history import ContextEntry
from antiphon.parts import text_of
from antiphon.providers import ProviderCallOptions
from antiphon.tools.embedded import parse_setting
from antiphon.tools.embedded.text_tools import is_unsupported, mode_for
from antiphon.wire.delta import Failed, Finished, ModelOutputDelta, PartDelta, PartEnded, PartStarted, Started
from antiphon.wire.output import ProviderError

CALL = '好的，我来搜索<tool_call>{"tool": "search_web", "query": "IELTS 7分"}</tool_call>'


def search_web(query: str) -> str:
    "Search the web."
    return f"found {query}"


class PlainModel(ap.ProviderClient):
    """A model of a host that refuses requests with tools, as Ollama does."""

    name = "plain"

    def __init__(self, *answers: str, refuses: bool = True) -> None:
        self.answers = list(answers)
        self.refuses = refuses
        self.requests: list[list[str]] = []

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        yield Started("a")
        if options.tools and self.refuses:
            yield Failed(
                ProviderError("registry.ollama.ai/library/gemma:2b does not support tools", "invalid_request", 400)
            )
            return
        self.requests.append([f"{entry.role}: {text_of(entry.content)}" for entry in context])
        yield PartStarted(0, ap.Text(""))
        for character in self.answers.pop(0):
            yield PartDelta(0, character)
        yield PartEnded(0)
        yield Finished()


def test_model_without_tools_is_served_in_text() -> None:
    model = PlainModel(CALL, "7 分需要优秀水平。")
    chat = ap.Conversation(model, tools=[search_web], system="Be brief.")
    result = ap.ToolLoop(chat).run_sync("搜索 IELTS 7分需要什么水平")
    assert (result.text, result.rounds) == ("7 分需要优秀水平。", 2)
    first, second = model.requests
    assert first[0].startswith("system: Be brief.")
    assert '"name":"search_web"' in first[0]
    assert "<tool_call>" in first[0]
    assert second[2:] == [
        'model_output: 好的，我来搜索\n<tool_call>{"name": "search_web", "arguments": {"query":"IELTS 7分"}}</tool_call>',
        "model_input: Result of search_web:\nfound IELTS 7分",
    ]
    kinds = [entry.kind for entry in chat.history.effective if entry.kind.startswith(("model", "tool_call_r"))]
    assert kinds == ["model_input", "model_output", "tool_call_results", "model_output"]
    assert "does not support tools" in next(
        entry.message for entry in chat.history.entries if isinstance(entry, ap.DebugLogEntry)
    )


def test_single_call_falls_back_too() -> None:
    chat = ap.Conversation(PlainModel(CALL), tools=[search_web])
    chat.add("搜索")
    assert [call.tool_name for call in chat.call_model_sync().tool_calls] == ["search_web"]


def test_unknown_tool_in_a_tag_is_an_error_the_model_receives() -> None:
    model = PlainModel('<tool_call>{"tool": "invalid_tool"}</tool_call>', "没有这个工具。")
    chat = ap.Conversation(model, tools=[search_web])
    assert ap.ToolLoop(chat).run_sync("调用").text == "没有这个工具。"
    assert 'Unknown tool "invalid_tool"' in model.requests[1][-1]


@pytest.mark.parametrize("setting", [False, {"other/*": "prompt", "plain": False}])
def test_fallback_can_be_turned_off(setting: Any) -> None:
    chat = ap.Conversation(PlainModel("never"), tools=[search_web], embedded_calls=setting)
    with pytest.raises(ap.ModelCallFailed, match="does not support tools"):
        ap.ToolLoop(chat).run_sync("Hi.")


def test_setting_by_model() -> None:
    model = PlainModel(CALL, "Done.", refuses=False)
    chat = ap.Conversation(model, tools=[search_web], embedded_calls={"pl*": "prompt"})
    assert ap.ToolLoop(chat).run_sync("Go.").rounds == 2
    assert "<tool_call>" in model.requests[0][0]


def test_closed_tag_is_a_call_by_default() -> None:
    """Also for a model that takes tools."""
    chat = ap.Conversation(PlainModel(CALL, "7 分需要优秀水平。", refuses=False), tools=[search_web])
    result = ap.ToolLoop(chat).run_sync("Go.")
    assert (result.text, result.rounds) == ("7 分需要优秀水平。", 2)
    quoted = f"`{CALL}` 是一次调用的写法。"
    chat = ap.Conversation(PlainModel(quoted, refuses=False), tools=[search_web])
    assert ap.ToolLoop(chat).run_sync("Go.").text == quoted


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("<tool_call>{'tool': 'search_web', 'query': 'x'}</tool_call>", "not valid JSON"),
        ('<tool_call>{"tool": "search_wbe", "query": "x"}</tool_call>', "Did you mean search_web?"),
        ("<tool_call>{}</tool_call>", "Unknown tool"),
        ("<tool_call>[1, 2</tool_call>", 'written as <tool_call>{"name"'),
    ],
)
def test_broken_tag_is_an_error_the_model_receives(written: str, error: str) -> None:
    model = PlainModel(f"Let me see. {written}", "I could not search.", refuses=False)
    chat = ap.Conversation(model, tools=[search_web])
    shown: list[ap.TextDelta] = []

    async def run() -> None:
        shown.extend([event async for event in ap.ToolLoop(chat).stream("Go.") if isinstance(event, ap.TextDelta)])

    asyncio.run(run())
    (result,) = [r for e in chat.history.entries if isinstance(e, ap.ToolCallResultsEntry) for r in e.results]
    assert str(result.status) == "failed"
    assert error in result.result_markdown
    assert "".join(delta.text for delta in shown) == "Let me see.I could not search."


def test_approval_holds_for_a_call_in_text() -> None:
    ran = []

    @ap.tool(needs_approval=True)
    def send_mail(to: str) -> str:
        "Send a mail."
        ran.append(to)
        return "sent"

    model = PlainModel('<tool_call>{"name": "send_mail", "arguments": {"to": "a"}}</tool_call>', "Sent.", refuses=False)
    chat = ap.Conversation(model, tools=[send_mail])
    result = ap.ToolLoop(chat).run_sync("Go.")
    assert (result.reason, ran) == ("approval", [])
    assert [call.tool_name for call in result.pending] == ["send_mail"]


def test_reading_calls_in_text_can_be_turned_off() -> None:
    chat = ap.Conversation(PlainModel(CALL, refuses=False), tools=[search_web], embedded_calls=False)
    assert ap.ToolLoop(chat).run_sync("Go.").text == CALL


def test_last_round_offers_no_tools_in_the_prompt() -> None:
    model = PlainModel(CALL, "Enough.", refuses=False)
    chat = ap.Conversation(model, tools=[search_web], embedded_calls="prompt")
    result = ap.ToolLoop(chat, max_rounds=1).run_sync("Go.")
    assert (result.reason, result.text) == ("max_rounds", "Enough.")
    assert not any("system" in line for line in model.requests[1])


def test_settings_are_parsed_and_checked() -> None:
    assert parse_setting("on") is True
    assert parse_setting("ollama/*=prompt, *=off") == {"ollama/*": "prompt", "*": False}
    assert mode_for({"ollama/*": "prompt"}, "openai/gpt-4o") == "auto"
    with pytest.raises(ConversationError, match="expected off, on, auto or prompt"):
        parse_setting("perhaps")
    with pytest.raises(ConversationError, match="embedded_calls='on'"):
        ap.Conversation(ap.ScriptedModel(), embedded_calls="on")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("registry.ollama.ai/library/gemma:2b does not support tools", True),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', True),
        ("No endpoints found that support tool use.", True),
        ("Function calling is not supported for this model", True),
        ("This model does not support image input", False),
        ("tools.0.name: String should match pattern", False),
    ],
)
def test_refusals_are_recognised(message: str, expected: bool) -> None:
    assert is_unsupported(ProviderError(message, "invalid_request", 400)) is expected
    assert not is_unsupported(ProviderError(message, "authentication", 401))
