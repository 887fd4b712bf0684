"""Events: in the order in which things happened, the same for everybody, and none lost however often a page reloads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import antiphon as ap
from antiphon.conversation.events import LoopEvent, RoundStarted, TextDelta, ThinkingDelta, ToolCallProgress
from antiphon.conversation.turn import EntryPosition
from antiphon.history import AgentHistory, ModelInputEntry
from antiphon.parts import Thinking, ToolCallRequest
from antiphon.providers import ProviderCallOptions
from antiphon.providers.scripted import call
from antiphon_chat.page.event_stream import EntryAppended, EventBuffer, TurnStarted, frames
from antiphon_chat.page.live_conversation import LiveConversation
from page.rig import Browser, Gate, SeenEvent, names, served, text, until_finished
from support.examples import scaled

QUESTION = "find tips for IELTS reading, then make me a plan"


@ap.tool(effect="read")
async def look(what: str, context: ap.ToolContext) -> str:
    "Look at something."
    context.progress(f"looking at {what}", 0.5)
    await asyncio.sleep(0)  # so that two of them look at once
    return f"{what}: seen"


def in_two_rounds() -> ap.FunctionModel:
    """Thinks, says something and looks twice; then answers at length."""

    async def answer(context: Sequence[Any], options: ProviderCallOptions) -> AsyncIterator[Any]:
        if type(context[-1]).__name__ == "ModelInputEntry":
            yield Thinking("Two things to see.")
            yield "I look."
            yield call("look", what="left")
            yield call("look", what="right")
            return
        for word in range(30):
            await asyncio.sleep(0)
            yield f"word {word} "

    return ap.FunctionModel(answer, name="talker")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with served(tmp_path_factory.mktemp("events") / "chats.db", in_two_rounds(), tools=[look]) as browser:
        yield browser


def test_events_and_entries_keep_their_order(browser: Browser) -> None:
    conversation = browser.create()
    events_seen = browser.ask(conversation, "Look around.")
    names_seen = [
        event.data["entry"]["kind"] if event.name == "EntryAppended" else event.name
        for event in events_seen
        if event.name not in ("ToolCallProgress", "TextDelta")
    ]
    assert names_seen[:3] == ["TurnStarted", "model_input", "RoundStarted"]
    assert names_seen.index("ThinkingDelta") < names_seen.index("model_output") < names_seen.index("ToolCallStarted")
    assert names_seen.index("tool_call_started") < names_seen.index("ToolCallStarted")
    assert names_seen.index("tool_call_results") > max(
        i for i, name in enumerate(names_seen) if name == "ToolCallFinished"
    )
    second = names_seen[names_seen.index("tool_call_results") :]
    assert second == ["tool_call_results", "RoundStarted", "model_output", "RoundUsage", "LoopFinished"]
    words = [i for i, event in enumerate(events_seen) if event.name == "TextDelta"]
    outputs = [i for i, event in enumerate(events_seen) if _kind(event) == "model_output"]
    assert words[0] < outputs[0] < words[1], "the first words come before the output they become"
    assert words[-1] < outputs[1], "and so do the last"


def test_every_entry_is_sent_once_and_as_the_conversation_shows_it(browser: Browser) -> None:
    conversation = browser.create()
    events_seen = browser.ask(conversation, "Look around.")
    assert [event.data["entry"] for event in events_seen if event.name == "EntryAppended"] == browser.show(
        conversation
    )["entries"]
    ids = [event.id for event in events_seen]
    assert ids == list(range(ids[0], ids[0] + len(ids)))  # type: ignore[operator, arg-type]


@settings(max_examples=scaled(8))
@given(cuts=st.lists(st.integers(0, 25), max_size=6), resumes_by_header=st.booleans())
def test_a_page_that_reloads_in_mid_stream_loses_no_event(
    browser: Browser, cuts: list[int], resumes_by_header: bool
) -> None:
    conversation = browser.create()
    start = browser.show(conversation)["last_event"]
    browser.say(conversation, "Look around.")
    events_seen: list[SeenEvent] = []
    for cut in cuts:
        last = events_seen[-1].id if events_seen else start
        where = {"last_event_id": last} if resumes_by_header else {"after": last}
        with browser.events(conversation, **where) as events:
            for _ in range(cut):
                if events_seen and events_seen[-1].name == "LoopFinished":
                    break
                events_seen.append(next(events))
    if not events_seen or events_seen[-1].name != "LoopFinished":
        with browser.events(conversation, events_seen[-1].id if events_seen else start) as events:
            events_seen += until_finished(events)
    with browser.events(conversation, start) as events:
        assert events_seen == until_finished(events)


@settings(max_examples=scaled(6))
@given(reload_at=st.integers(0, 60))
def test_a_page_without_state_finds_the_open_round(browser: Browser, reload_at: int) -> None:
    """What a reload shows, and the events after its `last_event`, are the whole turn, nothing missing and nothing twice."""
    conversation = browser.create()
    start = browser.show(conversation)["last_event"]
    browser.say(conversation, "Look around.")
    with browser.events(conversation, start) as events:
        for _ in range(min(reload_at, 40)):
            if next(events).name == "LoopFinished":
                break
    shown = browser.show(conversation)
    known = {entry["sequence_number"]: entry for entry in shown["entries"]}
    text_seen = ""
    if shown["running"]:
        with browser.events(conversation, shown["last_event"]) as events:
            for event in events:
                if event.name == "TextDelta":
                    text_seen += event.data["text"]
                elif event.name == "EntryAppended":
                    entry = event.data["entry"]
                    if entry["sequence_number"] not in known and entry["kind"] == "model_output":
                        assert text_seen == "".join(
                            part.get("text", "") for part in entry["content"] if part["type"] == "text"
                        )
                        text_seen = ""
                    known[entry["sequence_number"]] = entry
                elif event.name == "LoopFinished":
                    break
    assert text_seen == ""
    finished = browser.show(conversation)
    assert [known[number] for number in sorted(known)] == finished["entries"]


def test_two_watchers_receive_the_same(browser: Browser) -> None:
    conversation = browser.create()
    start = browser.show(conversation)["last_event"]
    events_seen: list[list[SeenEvent]] = [[], []]

    def watch(number: int) -> None:
        with browser.events(conversation, start) as events:
            events_seen[number] = until_finished(events)

    watchers = [threading.Thread(target=watch, args=(number,)) for number in range(2)]
    for watcher in watchers:
        watcher.start()
    browser.say(conversation, "Look around.")
    for watcher in watchers:
        watcher.join(20)
    assert events_seen[0] == events_seen[1]
    assert names(events_seen[0])[-1] == "LoopFinished"


def test_a_watcher_that_leaves_does_not_stop_the_turn(tmp_path: Path) -> None:
    gate = Gate()

    async def answer(context: Sequence[Any], options: ProviderCallOptions) -> AsyncIterator[str]:
        yield "Begun, "
        await gate.passed()
        yield "and done."

    with served(tmp_path / "chats.db", ap.FunctionModel(answer)) as browser:
        conversation = browser.create()
        start = browser.show(conversation)["last_event"]
        browser.say(conversation, "Go.")
        with browser.events(conversation) as events:
            while text([next(events)]) != "Begun, ":
                pass
        gate.wait_for_caller()
        assert browser.show(conversation)["running"]
        gate.open()
        with browser.events(conversation, start) as events:
            assert text(until_finished(events)) == "Begun, and done."


def test_ids_that_were_never_given_or_are_gone_reset_the_page(browser: Browser) -> None:
    conversation = browser.create()
    browser.ask(conversation, "Look around.")
    for after in (1, 2**53 - 1):
        with browser.events(conversation, after) as events:
            assert list(events) == [SeenEvent(None, "Reset", {"type": "Reset"})]
    for wrong in ("x", "-1", "1.5", "9" * 17):
        assert browser.get(f"/chat/api/conversations/{conversation}/events?after={wrong}").status == 400
    assert (
        browser.request("GET", f"/chat/api/conversations/{conversation}/events", headers={"last-event-id": "x"}).status
        == 400
    )


def test_watchers_of_a_deleted_conversation_are_notified(browser: Browser) -> None:
    conversation = browser.create()
    with browser.events(conversation) as events:
        browser.api("DELETE", f"/conversations/{conversation}")
        assert names(list(events)) == ["Gone"]
    assert browser.api("GET", f"/conversations/{conversation}", status=404)["error"]["code"] == "unknown_conversation"


def test_an_idle_stream_pings_and_ends_in_time() -> None:
    async def watched() -> list[bytes]:
        live = LiveConversation(ap.Conversation("offline/plain"), events=EventBuffer())
        return [piece async for piece in live.watch(None, seconds=0.05, ping=0.01)]

    pieces = asyncio.run(watched())
    assert pieces[0] == b": watching\n\n"
    assert len(pieces) > 1
    assert set(pieces[1:]) == {b": ping\n\n"}


# The buffer by itself.

FIRST_INPUT = ModelInputEntry.of("hello")
CALL = ToolCallRequest("look", "call_1")


def buffer_of(events: Sequence[LoopEvent | TurnStarted | EntryAppended], capacity: int = 16) -> EventBuffer:
    buffer = EventBuffer(capacity, base=100)
    for event in events:
        buffer.add(event)
    return buffer


EVENTS = st.one_of(
    st.text(min_size=1, max_size=3).map(TextDelta),
    st.text(min_size=1, max_size=3).map(ThinkingDelta),
    st.just(RoundStarted(1, "m")),
    st.just(EntryAppended(FIRST_INPUT, EntryPosition(1, 0))),
    st.integers(0, 9).map(lambda step: ToolCallProgress(CALL, str(step))),
)


@given(events=st.lists(EVENTS, max_size=80), capacity=st.integers(4, 20))
def test_a_buffer_is_bounded_and_what_it_gives_is_never_with_a_hole(events: list[Any], capacity: int) -> None:
    buffer = buffer_of(events, capacity)
    for after in range(99, buffer.last + 2):
        found = buffer.after(after)
        if found is None:
            continue
        assert len(found) <= capacity
        assert not found or found[0].first > after
        wanted = [event for event in events[after - 100 :] if not isinstance(event, ToolCallProgress)]
        assert _words(event.event for event in found) == _words(wanted)
        assert sum(isinstance(one.event, EntryAppended) for one in found) == sum(
            isinstance(event, EntryAppended) for event in wanted
        )


@given(words=st.lists(st.text(min_size=1, max_size=3), min_size=20, max_size=200))
def test_the_text_of_a_long_round_is_complete_after_the_logged_part(words: list[str]) -> None:
    buffer = buffer_of([EntryAppended(FIRST_INPUT, EntryPosition(1, 0)), RoundStarted(1, "m"), *map(TextDelta, words)])
    found = buffer.after(buffer.settled)
    assert found is not None
    assert len(found) <= 16
    assert _words(one.event for one in found) == [("TextDelta", "".join(words))]


def test_frames_hold_no_line_breaks_but_their_own() -> None:
    buffer = buffer_of([TextDelta("a\nb\r\n\u2028c")])
    found = buffer.after(100)
    assert found is not None
    (written,) = frames(found[:1])
    assert written.count(b"\n") == 4
    assert b"\r" not in written


def test_turn_index_matches_rounds() -> None:
    from antiphon.conversation import rounds_of
    from antiphon.conversation.turn import TurnIndex

    model = ap.ScriptedModel(call("look", what="a"), "Done.", "Again.", "More.", call("look", what="b"), "End.")
    chat = ap.Conversation(model, tools=[look], history=AgentHistory())
    step_by_step = TurnIndex()
    for question in ("one", "two", "three", "four"):
        ap.ToolLoop(chat).run_sync(question)
        step_by_step.update(chat.history.snapshot())
        if question == "two":
            chat.history.rollback(chat.history.version - 2)
    at_once = TurnIndex()
    at_once.update(chat.history.snapshot())
    for round_of in rounds_of(chat.history.snapshot()):
        for number in round_of.entries:
            assert step_by_step[number] == at_once[number] == (round_of.turn, round_of.number)


def _words(events: Any) -> list[tuple[str, str]]:
    joined: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, ToolCallProgress):
            continue
        name = type(event).__name__
        if not isinstance(event, TextDelta | ThinkingDelta):
            joined.append(("", ""))
        elif joined and joined[-1][0] == name:
            joined[-1] = (name, joined[-1][1] + event.text)
        else:
            joined.append((name, event.text))
    return [one for one in joined if one[0]]


def _kind(event: SeenEvent) -> str:
    return str(event.data["entry"]["kind"]) if event.name == "EntryAppended" else ""
