"""The memory tool: a model edits its notebook, and every edit is an entry."""

from __future__ import annotations

from pathlib import Path

import antiphon as ap
from antiphon.providers.scripted import ScriptedModel, call
from antiphon.tools.builtin import memory_tools
from antiphon_chat.shared.session import TurnSettings
from page.rig import served


def test_model_edits_its_notebook() -> None:
    history = ap.AgentHistory()
    model = ScriptedModel(
        call("edit_memory", action="append", text="IELTS in June"),
        call("edit_memory", action="replace", old="June", text="July"),
        call("edit_memory", action="replace", old="March", text="May"),
        call("read_memory"),
        "Noted.",
    )
    chat = ap.Conversation(model, history=history, tools=memory_tools(history))
    assert ap.ToolLoop(chat).run_sync("My exam is in June. No, July.").text == "Noted."
    edits = [entry for entry in history.entries if isinstance(entry, ap.SetMemoryNotebookEntry)]
    assert [edit.content for edit in edits] == ["IELTS in June", "IELTS in July"]
    assert history.memory_notebook == "IELTS in July"
    results = [
        result for entry in history.entries if isinstance(entry, ap.ToolCallResultsEntry) for result in entry.results
    ]
    assert [str(result.status) for result in results] == ["success", "success", "failed", "success"]
    assert "occurs 0 times" in results[2].result_markdown
    assert results[3].result_markdown == "IELTS in July"
    assert "[Memory Notebook]" in str(chat.history.to_messages()[0])


def test_notebook_result_follows_the_language_of_the_conversation() -> None:
    history = ap.AgentHistory()
    model = ScriptedModel(call("read_memory"), call("edit_memory", action="append", text="六月考试"), "好。")
    ap.ToolLoop(ap.Conversation(model, history=history, tools=memory_tools(history))).run_sync("我六月考试。")
    results = [r for e in history.entries if isinstance(e, ap.ToolCallResultsEntry) for r in e.results]
    assert [result.result_markdown for result in results] == ["（笔记是空的。）", "笔记现在的内容：\n六月考试"]


def test_clear_keeps_the_notebook_by_default() -> None:
    chat = ap.Conversation(ScriptedModel(), system="Be brief.")
    chat.history.set_memory_notebook("IELTS in July")
    chat.add("Hi.")
    chat.clear()
    assert (chat.history.system_instruction, chat.history.memory_notebook) == ("Be brief.", "IELTS in July")
    assert [message.role.value for message in chat.messages] == ["system"]
    chat.clear(keep_notebook=False)
    assert (chat.history.system_instruction, chat.history.memory_notebook) == ("Be brief.", "")


def test_memory_is_off_by_default_and_a_setting_of_the_chat(tmp_path: Path) -> None:
    model = ScriptedModel(call("edit_memory", action="rewrite", text="likes tea"), "Noted.")
    settings = TurnSettings(has_memory_tool=True)
    with served(tmp_path / "chats.db", model, turns=lambda: settings) as browser:
        conversation = browser.create()
        assert browser.ask(conversation, "I like tea.")[-1].data["text"] == "Noted."
        kinds = [entry["kind"] for entry in browser.show(conversation)["entries"]]
        assert "set_memory_notebook" in kinds
    assert TurnSettings().has_memory_tool is False
