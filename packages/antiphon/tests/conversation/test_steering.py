"""Messages to a run that is going on: admitted at the next round, exactly once, within the limits of the run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.conversation import Conversation, ToolLoop
from antiphon.errors import ConversationError, InvalidEntry, UnknownConversation
from antiphon.history import ContextEntry, ModelInputEntry, SqliteStore
from antiphon.history.journal import InboxItem
from antiphon.history.location import open_store
from antiphon.parts import text_of
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.testing import assert_accepted, assert_sent
from antiphon.tools import tool


def inputs(chat: Conversation) -> list[tuple[str, str]]:
    return [
        (entry.channel, text_of(entry.content)) for entry in chat.history.entries if isinstance(entry, ModelInputEntry)
    ]


def test_a_message_from_another_thread_is_read_in_the_next_round() -> None:
    begun, sent = threading.Event(), threading.Event()

    @tool(effect="read")
    def look() -> str:
        "Look."
        begun.set()
        assert sent.wait(10)
        return "12 dollars"

    model = ScriptedModel(call("look"), "11 euros.")
    chat = Conversation(model, tools=[look])

    def steer() -> None:
        assert begun.wait(10)
        chat.steer("Use euros.")
        sent.set()

    thread = threading.Thread(target=steer)
    thread.start()
    assert ToolLoop(chat).run_sync("What does it cost?").text == "11 euros."
    thread.join()
    assert inputs(chat) == [("user", "What does it cost?"), ("steering", "Use euros.")]
    assert_sent(model, "12 dollars", "Use euros.")
    assert_accepted(chat)


def test_a_message_that_comes_with_the_answer_is_answered_in_the_same_run() -> None:
    chat: Conversation

    def answer(context: Sequence[ContextEntry], _: Any) -> str:
        if text_of(context[-1].content) == "Go.":
            chat.steer("And now?")
            return "Done."
        return "Still done."

    chat = Conversation(FunctionModel(answer))
    result = ToolLoop(chat).run_sync("Go.")
    assert (result.text, result.rounds) == ("Still done.", 2)


def test_steering_does_not_renew_the_limits_of_a_run() -> None:
    chat: Conversation

    def answer(context: Sequence[ContextEntry], options: Any) -> Any:
        chat.steer("Go on.")
        return call("look") if options.settings.tool_choice is None else "Enough."

    @tool(effect="read")
    def look() -> str:
        "Look."
        return f"nothing {chat.history.version}"

    chat = Conversation(FunctionModel(answer), tools=[look])
    result = ToolLoop(chat, max_rounds=4, max_repeats=0).run_sync("Look until you find it.")
    assert result.reason == "max_rounds"
    # What came after the end waits, and begins the next run.
    assert chat.history.inbox.items()
    assert ToolLoop(chat, max_rounds=2, max_repeats=0).run_sync().reason == "max_rounds"
    assert [channel for channel, _ in inputs(chat)].count("user") == 2


def test_after_a_run_a_message_begins_the_next_one() -> None:
    chat = Conversation(ScriptedModel("Hello.", "It rains."))
    loop = ToolLoop(chat)
    loop.run_sync("Hi.")
    chat.steer("Is it raining?", key="a")
    chat.steer("In Oslo.", key="b")
    assert loop.run_sync().text == "It rains."
    assert inputs(chat)[1:] == [("user", "Is it raining?"), ("steering", "In Oslo.")]
    assert chat.totals.rounds == 1


def test_the_same_key_is_one_message() -> None:
    chat = Conversation(ScriptedModel("Yes.", "No."))
    assert chat.steer("Hello?", key="k") == chat.steer("Hello?", key="k") == "k"
    ToolLoop(chat).run_sync()
    chat.steer("Hello?", key="k")
    assert ToolLoop(chat).run_sync().text == "Yes."
    assert inputs(chat) == [("user", "Hello?")]
    with pytest.raises(ConversationError, match="empty user message"):
        chat.steer("")


def test_text_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    """As `append` does; a byte of a command line that is not UTF-8 is read as a lone surrogate."""
    with Conversation(ScriptedModel("Yes."), store=tmp_path / "chats.db") as chat:
        with pytest.raises(InvalidEntry, match="lone surrogate at character 1"):
            chat.steer("a\udcff")
        with pytest.raises(ConversationError, match="is not Unicode"):
            chat.settle("c\udcff", "done")
        assert list(chat.history.inbox.items()) == []


def test_an_inbox_belongs_to_a_stored_conversation(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "chats.db") as store, open_store(tmp_path / "chats.db") as other:
        chat = Conversation(ScriptedModel("I will."), history=store.create())
        remote = Conversation(ScriptedModel(), history=other.open(chat.id))
        remote.steer("Write to me.", key="k")
        assert not store.inbox(store.create().id).items()
        assert store.inbox(chat.id).items() == [
            InboxItem("k", "steering", chat.history.inbox.items()[0].body),
        ]
        assert ToolLoop(chat).run_sync().text == "I will."
        assert not other.inbox(chat.id).items()
        remote.steer("Again.", key="k2")
        store.delete(chat.id)
        with pytest.raises(UnknownConversation):
            store.inbox(chat.id)
        with store._dialect.connection() as db:
            assert store._dialect.execute(db, "SELECT count(*) FROM inbox") == [(0,)]


def test_an_inbox_in_a_postgres_store(postgres: str) -> None:
    with open_store(postgres) as store:
        chat = Conversation(ScriptedModel("I will."), history=store.create())
        assert chat.history.inbox.put(InboxItem("k", "steering", b"{}"))
        assert not chat.history.inbox.put(InboxItem("k", "steering", b"{}"))
        chat.history.inbox.remove(["k"])
        chat.steer("Write to me.")
        assert ToolLoop(chat).run_sync().text == "I will."
        assert not store.inbox(chat.id).items()
