"""Limits of turns, embedded calls and automatic summaries: the same in the terminal, on the page and in `serve`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import antiphon as ap
from antiphon.conversation import RunLimits
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.tools.registry import ToolRegistry
from antiphon_chat.page.mounted.gateway_chat import turn_settings
from antiphon_chat.shared.session import TurnSettings, open_conversation
from antiphon_gateway.config.file import ConfigError, load_config
from antiphon_gateway.config.settings import ChatPageSettings
from page.rig import OFFLINE, served


def look() -> str:
    "Look."
    return "nothing yet"


def test_round_limit_of_the_page(tmp_path: Path) -> None:
    model = FunctionModel(lambda context, options: "Enough." if options.settings.tool_choice else call("look"))
    settings = TurnSettings(limits=RunLimits(max_rounds=1))
    with served(tmp_path / "chats.db", model, tools=[look], turns=lambda: settings) as browser:
        assert browser.api("GET", "/state")["limits"]["max_rounds"] == 1
        events = browser.ask(browser.create(), "Go.")
        assert (events[-1].data["reason"], events[-1].data["text"]) == ("max_rounds", "Enough.")


def test_limits_of_a_conversation_are_set_over_http_and_kept(tmp_path: Path) -> None:
    model = FunctionModel(lambda context, options: "Enough." if options.settings.tool_choice else call("look"))
    with served(tmp_path / "chats.db", model, tools=[look]) as browser:
        conversation, other = browser.create(), browser.create()
        assert browser.show(conversation)["limits"] == {"max_rounds": 5, "max_failed_rounds": 2, "seconds": None}
        limits = {"max_rounds": 1, "max_failed_rounds": 3, "seconds": 60}
        changed = browser.api("PATCH", f"/conversations/{conversation}", {"limits": limits})
        assert changed["limits"] == limits
        assert browser.ask(conversation, "Go.")[-1].data["reason"] == "max_rounds"
        refused = browser.api("PATCH", f"/conversations/{conversation}", {"limits": {"max_rounds": 0}}, status=400)
        assert refused["error"]["message"] == "max_rounds=0: must be at least 1"
        assert browser.show(other)["limits"]["max_rounds"] == 5
    with served(tmp_path / "chats.db", model, tools=[look]) as browser:
        assert browser.show(conversation)["limits"] == limits
        browser.api("PATCH", f"/conversations/{conversation}", {"limits": {}})
        assert browser.show(conversation)["limits"] == {"max_rounds": 5, "max_failed_rounds": 2, "seconds": None}


def test_limits_of_a_server_cannot_be_raised(tmp_path: Path) -> None:
    rounds = 3
    settings = TurnSettings(limits=RunLimits(max_rounds=rounds, max_seconds=60), can_raise_limits=False)
    with served(tmp_path / "chats.db", ScriptedModel(), turns=lambda: settings) as browser:
        conversation = browser.create()
        address = f"/conversations/{conversation}"
        for limits, message in (
            ({"max_rounds": 4}, "max_rounds=4: the limit of this server is 3"),
            ({"seconds": 61.5}, "seconds=61.5: the limit of this server is 60"),
        ):
            refused = browser.api("PATCH", address, {"limits": limits}, status=400)
            assert refused["error"]["message"] == message
        browser.api("PATCH", address, {"limits": {"max_rounds": 3, "seconds": 5}})
        assert browser.show(conversation)["limits"] == {"max_rounds": 3, "max_failed_rounds": 2, "seconds": 5}
    lowered = TurnSettings(limits=RunLimits(max_rounds=2), can_raise_limits=False)
    with served(tmp_path / "chats.db", ScriptedModel(), turns=lambda: lowered) as browser:
        assert browser.show(conversation)["limits"]["max_rounds"] == 2
    assert turn_settings(ChatPageSettings()).can_raise_limits is False


def test_embedded_calls_on_the_page(tmp_path: Path) -> None:
    """By default."""
    model = ScriptedModel('我来看看<tool_call>{"tool": "look"}</tool_call>', "看到了。")
    settings = TurnSettings()
    with served(tmp_path / "chats.db", model, tools=[look], turns=lambda: settings) as browser:
        events = browser.ask(browser.create(), "看")
        assert [event.data["call"]["tool_name"] for event in events if event.name == "ToolCallStarted"] == ["look"]
        assert events[-1].data["text"] == "看到了。"


def test_long_conversation_is_summarised_on_the_page(tmp_path: Path) -> None:
    def answer(context: Sequence[ap.ContextEntry], _: object) -> str:
        return "They greeted each other." if "has grown long" in str(context[-1].content) else "Yes."

    model = FunctionModel(answer)
    settings = TurnSettings(token_limit=600)
    with served(tmp_path / "chats.db", model, turns=lambda: settings) as browser:
        conversation = browser.create()
        events = [event for _ in range(4) for event in browser.ask(conversation, "Hello. " * 100)]
        assert "CompactionNeeded" in [event.name for event in events]
        entries = browser.show(conversation)["entries"]
        summaries = [entry["summary"] for entry in entries if entry["kind"] == "compaction"]
        assert "They greeted each other." in summaries


def test_compaction_is_on_unless_it_is_turned_off(tmp_path: Path) -> None:
    assert open_conversation(ap.AgentHistory(), OFFLINE, ToolRegistry()).compaction is not None
    off = TurnSettings(token_limit=None)
    with served(tmp_path / "chats.db", FunctionModel(lambda *_: "Yes."), turns=lambda: off) as browser:
        conversation = browser.create()
        for _ in range(4):
            browser.ask(conversation, "Hello. " * 100)
        shown = browser.show(conversation)
        assert shown["token_limit"] is None
        assert {entry["kind"] for entry in shown["entries"]} == {"model_input", "model_output"}


def chat_table(place: Path, lines: str) -> ChatPageSettings:
    file = place / "antiphon.toml"
    file.write_text(f'{lines}\n[[providers]]\nname = "offline"\n[[models]]\nname = "*"\ntargets = ["offline/plain"]\n')
    return load_config(file, {}).chat


def test_chat_table_of_the_configuration(tmp_path: Path) -> None:
    lines = """
[chat]
max_rounds = 9
max_errors = 3
max_seconds = 60
embedded_calls = "ollama/*=prompt"
token_limit = -1
"""
    settings = turn_settings(chat_table(tmp_path, lines))
    assert settings.limits == RunLimits(max_rounds=9, max_failed_rounds=3, max_seconds=60)
    assert settings.embedded_calls == {"ollama/*": "prompt"}
    assert settings.token_limit is None
    assert turn_settings(chat_table(tmp_path, "")) == TurnSettings(can_raise_limits=False)
    with pytest.raises(ConfigError, match="embedded_calls expected off, on, auto or prompt"):
        chat_table(tmp_path, '[chat]\nembedded_calls = "maybe"\n')
    with pytest.raises(ConfigError, match="max_rounds"):
        chat_table(tmp_path, "[chat]\nmax_rounds = 0\n")
