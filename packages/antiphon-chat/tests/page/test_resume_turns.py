"""Turns that stop and continue: interrupted, waiting for a person, cut by a failure, killed with the server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import antiphon as ap
from antiphon.conversation.events import LoopFinished
from antiphon.errors import StoreFull
from antiphon.history import HistoryEntry, SqliteStore
from antiphon.providers import ProviderCallOptions
from antiphon.providers.scripted import call
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from antiphon.wire import ProviderError
from antiphon_chat.page.live_conversation import LiveConversation
from antiphon_chat.page.open_conversations import OpenConversations
from antiphon_chat.page.rendered_text import RenderedText
from page.killed_server import answer, tools
from page.rig import Browser, Gate, names, served, text, until_finished
from support.waiting import SECONDS, until


def waiting_model(gate: Gate, *after: str) -> ap.FunctionModel:
    """Streams some text, waits at the gate, continues; later answers are `after`."""
    later = iter(after)

    async def say(context: Sequence[Any], options: ProviderCallOptions) -> AsyncIterator[str]:
        if len(context) > 1:
            yield next(later)
            return
        yield "It began, "
        await gate.passed()
        yield "it ended."

    return ap.FunctionModel(say, name="waiting")


def test_an_interrupt_keeps_the_partial_answer(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path / "chats.db", waiting_model(gate, "Yes?")) as browser:
        conversation = browser.create()
        start = browser.show(conversation)["last_event"]
        browser.say(conversation, "Go.")
        gate.wait_for_caller()
        assert browser.api("POST", f"/conversations/{conversation}/interrupt") == {"interrupted": True}
        shown = browser.show(conversation)
        assert not shown["running"]
        assert not shown["unfinished"]
        output = shown["entries"][-1]
        assert (output["content"][0]["text"], output["stop_reason"]) == ("It began, ", "interrupted")
        with browser.events(conversation, start) as events:
            assert until_finished(events)[-1].data["reason"] == "interrupted"
        assert browser.api("POST", f"/conversations/{conversation}/interrupt") == {"interrupted": False}
        assert text(browser.ask(conversation, "Are you there?")) == "Yes?"


def test_a_second_question_is_refused_while_one_is_answered_unless_it_interrupts(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path / "chats.db", waiting_model(gate, "The second.")) as browser:
        conversation = browser.create()
        browser.say(conversation, "one")
        gate.wait_for_caller()
        body = {"content": [{"type": "text", "text": "two"}]}
        refused = browser.api("POST", f"/conversations/{conversation}/turns", body, status=409)
        assert refused["error"]["code"] == "running"
        for path, wrong in (("resume", {}), ("rollback", {"to": 0}), ("compact", {})):
            assert browser.api("POST", f"/conversations/{conversation}/{path}", wrong, status=409)
        start = browser.show(conversation)["last_event"]
        assert browser.say(conversation, "two", interrupt=True) == 2
        with browser.events(conversation, start) as events:
            events_seen = [*until_finished(events), *until_finished(events)]
        assert [event.data["reason"] for event in events_seen if event.name == "LoopFinished"] == [
            "interrupted",
            "answered",
        ]
        assert names(events_seen).count("TurnStarted") == 1
        kinds = [entry["kind"] for entry in browser.show(conversation)["entries"]]
        assert kinds == ["model_input", "model_output", "model_input", "model_output"]


def test_settings_and_reads_work_during_a_turn(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path / "chats.db", waiting_model(gate)) as browser:
        conversation = browser.create()
        start = browser.show(conversation)["last_event"]
        browser.say(conversation, "one")
        gate.wait_for_caller()
        browser.api("PATCH", f"/conversations/{conversation}", {"memory": "noted", "title": "t"})
        fork = browser.api("POST", f"/conversations/{conversation}/fork", {"at": 1})["id"]
        assert browser.show(fork)["unfinished"], "the fork has a question without an answer"
        gate.open()
        with browser.events(conversation, start) as events:
            events_seen = until_finished(events)
        entries_seen = [event.data["entry"] for event in events_seen if event.name == "EntryAppended"]
        assert [entry["kind"] for entry in entries_seen] == ["model_input", "set_memory_notebook", "model_output"]
        assert entries_seen == browser.show(conversation)["entries"]


@ap.tool(needs_approval=True)
def send_mail(to: str) -> str:
    "Send a mail."
    return f"sent to {to}"


def two_mails() -> ap.FunctionModel:
    def say(context: Sequence[Any], options: ProviderCallOptions) -> Any:
        if context[-1].role == "tool_result":
            return "; ".join(part.result_markdown for part in context[-1].content)
        return [call("send_mail", to="ada"), call("send_mail", to="ben")]

    return ap.FunctionModel(say, name="mailer")


@pytest.mark.parametrize("restarts", [False, True])
def test_calls_wait_for_approval_and_then_the_turn_continues(tmp_path: Path, restarts: bool) -> None:
    path = tmp_path / "chats.db"
    with served(path, two_mails(), tools=[send_mail]) as browser:
        conversation = browser.create()
        events_seen = browser.ask(conversation, "Write to both.")
        assert names(events_seen)[-2:] == ["ApprovalNeeded", "LoopFinished"]
        assert events_seen[-1].data["reason"] == "approval"
        first, second = browser.show(conversation)["pending"]
        assert first["arguments"] == '{"to":"ada"}'
        if not restarts:
            _decided(browser, conversation, first, second)
    if restarts:
        with served(path, two_mails(), tools=[send_mail]) as browser:
            shown = browser.show(conversation)
            assert shown["pending"] == [first, second]
            assert not shown["unfinished"], "it waits for a person and for nothing else"
            _decided(browser, conversation, first, second)


def _decided(browser: Browser, conversation: str, first: Any, second: Any) -> None:
    where = f"/conversations/{conversation}/decisions"
    start = browser.show(conversation)["last_event"]
    unknown = {"tool_call_id": "call_99", "decision": "approve"}
    assert "is not pending approval" in browser.api("POST", where, unknown, status=400)["error"]["message"]
    edit = {"tool_call_id": first["tool_call_id"], "decision": "edit"}
    assert browser.api("POST", where, edit, status=400)
    assert browser.api("POST", where, {**edit, "decision": "perhaps"}, status=400)
    got = browser.api("POST", where, {**edit, "arguments": {"to": "eve"}})
    assert got == {"pending": [second], "running": False}
    assert browser.api("POST", where, {**edit, "arguments": {"to": "eve"}}) == got, (
        "a repeated decision changes nothing"
    )
    assert browser.api("POST", where, {**edit, "arguments": {"to": "tom"}}, status=400), "it was decided already"
    assert browser.api("POST", where, {**edit, "decision": "approve", "more": 1}, status=400)
    deny = {"tool_call_id": second["tool_call_id"], "decision": "deny", "reason": "not him"}
    assert browser.api("POST", where, deny)["pending"] == []
    with browser.events(conversation, start) as events:
        while next(events).name != "TurnStarted":  # of the answer to the decisions
            pass
        events_seen = until_finished(events)
    assert events_seen[-1].data["reason"] == "answered"
    partial = events_seen[-1].data["text"]
    assert "sent to eve" in partial
    assert "a person denied it: not him" in partial
    assert "ben" not in partial


def test_a_turn_that_failed_is_resumed(tmp_path: Path) -> None:
    model = ap.ScriptedModel(ProviderError("overloaded", "overloaded"), "Here I am.")
    with served(tmp_path / "chats.db", model) as browser:
        conversation = browser.create()
        assert browser.ask(conversation, "hello")[-1].data["reason"] == "failed"
        shown = browser.show(conversation)
        assert shown["unfinished"]
        assert browser.api("POST", f"/conversations/{conversation}/resume", status=202) == {"turn": 1}
        with browser.events(conversation, shown["last_event"]) as events:
            while (event := next(events)).name != "TurnStarted":
                pass
            assert event.data["turn"] == 1
            assert text(until_finished(events)) == "Here I am."
        assert not browser.show(conversation)["unfinished"]
        before = browser.show(conversation)["version"]
        browser.api("POST", f"/conversations/{conversation}/resume", status=202)
        until(lambda: not browser.show(conversation)["running"])
        assert browser.show(conversation)["version"] == before, "resuming what is over changes nothing"


@contextmanager
def killed_after(tmp_path: Path, question: str, reached: Callable[[Browser, str], Any]) -> Iterator[tuple[str, int]]:
    """A server in a process of its own, killed in the middle of a turn; the conversation, and its last event."""
    script = Path(__file__).with_name("killed_server.py")
    command = [sys.executable, str(script), str(tmp_path / "chats.db"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            browser = Browser(int(process.stdout.readline()))
            conversation = browser.create()
            start = browser.show(conversation)["last_event"]
            browser.say(conversation, question)
            until(lambda: reached(browser, conversation))
            with browser.events(conversation, start) as events:
                last = next(events).id
            assert last is not None
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(SECONDS)
        assert process.returncode == -signal.SIGKILL
    yield conversation, last


@pytest.mark.parametrize(
    ("tool", "runs", "result"), [("charge", "x", UNKNOWN_OUTCOME), ("fetch", "xx", "fetch done")], ids=["once", "read"]
)
def test_a_server_killed_in_a_tool_offers_to_resume_and_repeats_only_what_is_safe(
    tmp_path: Path, tool: str, runs: str, result: str
) -> None:
    mark = tmp_path / tool
    with (
        killed_after(tmp_path, tool, lambda *_: mark.exists()) as (conversation, last),
        served(
            tmp_path / "chats.db",
            ap.FunctionModel(answer, name="caller"),
            tools=tools(tmp_path, hang=False),
        ) as browser,
    ):
        with browser.events(conversation, last) as events:
            assert names(list(events)) == ["Reset"], "a page that was watching reads the conversation again"
        shown = browser.show(conversation)
        assert shown["unfinished"]
        assert not shown["running"]
        assert [entry["kind"] for entry in shown["entries"]] == ["model_input", "model_output", "tool_call_started"]
        assert shown["last_event"] > last, "ids grow over a restart"
        browser.api("POST", f"/conversations/{conversation}/resume", status=202)
        with browser.events(conversation, shown["last_event"]) as events:
            events_seen = until_finished(events)
        assert events_seen[-1].data["text"] == f"It said: {result}"
        assert mark.read_text() == runs


def test_a_server_killed_in_mid_answer_shows_what_arrived_and_is_asked_again(tmp_path: Path) -> None:
    def has_written(browser: Browser, conversation: str) -> bool:
        files = list((tmp_path / "partial").glob("*.jsonl"))
        return any(file.read_text().count("words") > 1 for file in files)

    with killed_after(tmp_path, "talk", has_written) as (conversation, _):
        model = ap.ScriptedModel("This time to the end.", name="caller")
        with served(tmp_path / "chats.db", model) as browser:
            shown = browser.show(conversation)
            assert shown["unfinished"]
            output = shown["entries"][-1]
            assert (output["kind"], output["stop_reason"]) == ("model_output", "failed")
            assert output["content"][0]["text"].startswith("words words ")
            assert list((tmp_path / "partial").iterdir()) == []
            browser.api("POST", f"/conversations/{conversation}/resume", status=202)
            with browser.events(conversation, shown["last_event"]) as events:
                assert text(until_finished(events)) == "This time to the end."


def test_a_server_that_is_stopped_ends_its_turns_in_order(tmp_path: Path) -> None:
    gate = Gate()
    path = tmp_path / "chats.db"
    with served(path, waiting_model(gate)) as browser:
        conversation = browser.create()
        browser.say(conversation, "Go.")
        gate.wait_for_caller()
        stream = browser.events(conversation)
        events = stream.__enter__()
        next(events)
        gate.open()  # it may still end by itself
    list(events)
    stream.__exit__(None, None, None)
    with SqliteStore(path) as store:
        last = store.open(conversation).entries[-1]
        assert isinstance(last, ap.ModelOutputEntry)
        assert last.response_markdown == "It began, it ended."


class FullDisk:
    """A journal that has room for so many entries."""

    conversation_id = "01arz3ndektsv4rrffq69g5fav"

    def __init__(self, room: int) -> None:
        self._room = room

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        self._room -= 1
        if self._room < 0:
            raise StoreFull("no space left; nothing was written")

    def read(self, after: int) -> Sequence[HistoryEntry]:
        return ()

    def fork(self, at: int) -> ap.AgentHistory:
        raise NotImplementedError


def test_a_full_disk_is_reported_and_ends_the_turn() -> None:
    async def run(room: int) -> list[str]:
        chat = ap.Conversation(ap.ScriptedModel("Hello."), history=ap.AgentHistory(journal=FullDisk(room)))
        live = LiveConversation(chat)
        start = live.events.settled
        if room:
            await live.start_turn(ap.Text("hi"))
        else:
            with pytest.raises(StoreFull):
                await live.start_turn(ap.Text("hi"))
        while live.is_running:
            await asyncio.sleep(0.001)
        entries_seen = [one.event for one in live.events.after(start) or ()]
        finished = entries_seen[-1]
        assert isinstance(finished, LoopFinished)
        assert finished.reason == "failed"
        assert finished.error is not None
        assert finished.error.code == "StoreFull"
        assert live.version == chat.history.version == room
        return [type(event).__name__ for event in entries_seen if not isinstance(event, RenderedText)]

    assert asyncio.run(run(0)) == ["TurnStarted", "TurnFailed", "LoopFinished"]
    assert asyncio.run(run(1)) == ["TurnStarted", "EntryAppended", "RoundStarted", "TurnFailed", "LoopFinished"]


def test_concurrent_opens_share_one_conversation_and_turns_wait(store: SqliteStore) -> None:
    made: list[str] = []

    def make(history: ap.AgentHistory, owner: str) -> ap.Conversation:
        made.append(history.id)
        return ap.Conversation(ap.ScriptedModel("a", "b"), history=history)

    async def run() -> None:
        first = OpenConversations(store, make)
        conversation = (await first.create("")).chat.id
        await first.aclose()
        conversations = OpenConversations(store, make)
        one, two = await asyncio.gather(conversations.open(conversation, ""), conversations.open(conversation, ""))
        assert one is two
        assert len(made) == 2
        await one.start_turn(ap.Text("hi"))
        await conversations.aclose(grace=5)
        assert one.chat.turn.output is not None

    asyncio.run(run())


def test_idle_conversations_are_released_and_busy_ones_are_not(store: SqliteStore) -> None:
    gate = Gate()

    async def run() -> None:
        conversations = OpenConversations(
            store, lambda history, owner: ap.Conversation(waiting_model(gate), history=history), max_open=3
        )
        busy = await conversations.create("")
        await busy.start_turn(ap.Text("hi"))
        watched = await conversations.create("")
        stream = watched.watch(None, seconds=60)
        await anext(stream)
        others = [(await conversations.create("")).chat.id for _ in range(5)]
        for conversation in others:
            await conversations.open(conversation, "")
        assert len(conversations) <= 3
        assert await conversations.open(busy.chat.id, "") is busy
        assert await conversations.open(watched.chat.id, "") is watched
        await stream.aclose()  # type: ignore[attr-defined]
        gate.open()
        await conversations.aclose(grace=5)

        patient = OpenConversations(store, lambda history, owner: ap.Conversation("offline/plain", history=history))
        impatient = OpenConversations(
            store, lambda history, owner: ap.Conversation("offline/plain", history=history), idle_seconds=0
        )
        for kept, left in ((patient, 3), (impatient, 1)):
            for conversation in others[:3]:
                await asyncio.sleep(0)
                await kept.open(conversation, "")
            assert len(kept) == left

    asyncio.run(run())


def test_concurrent_turns_are_limited(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path / "chats.db", waiting_model(gate), max_running=1) as browser:
        one, two = browser.create(), browser.create()
        browser.say(one, "Go.")
        gate.wait_for_caller()
        body = {"content": [{"type": "text", "text": "Go too."}]}
        assert browser.api("POST", f"/conversations/{two}/turns", body, status=503)["error"]["code"] == "busy"
        gate.open()
        until(lambda: not browser.show(one)["running"])
        browser.say(two, "Go too.")
