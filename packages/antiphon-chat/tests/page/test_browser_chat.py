"""The chat in a real browser: rounds, plans, models, stops, reloads, forks, decisions, files."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

import antiphon as ap
from antiphon.history import ModelInputEntry, ModelOutputEntry, SqliteStore
from antiphon.parts import ToolCallRequest
from antiphon.providers.scripted import call
from page.rig import Browser, Gate, served
from page.talking_chat import GATES, edit_in_fork, talking_chat
from page.window import window
from support.waiting import until

QUESTION = "Find out what IELTS band 7 needs, then make me a 4 week plan"


@pytest.fixture
def gate() -> Gate:
    GATES["wait for me"] = Gate()
    return GATES["wait for me"]


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with talking_chat(tmp_path_factory.mktemp("chat") / "chats.db") as browser:
        yield browser


@pytest.mark.journey
def test_rounds_of_tools_make_a_plan_that_is_ticked_and_edited_in_place(chromium: Chromium, tmp_path: Path) -> None:
    with served(tmp_path / "chats.db", with_builtin=True) as browser, window(chromium, browser.port) as shown:
        shown.open().ask(QUESTION)
        chips = shown.thread.locator(".chip")
        expect(chips).to_have_count(2)
        expect(chips.first).to_have_attribute("data-status", "success")
        # A step is one closed line; open, it has what was found first, and the arguments last.
        expect(chips.first.locator("> summary")).to_have_text(re.compile(r"Searched“.*IELTS.*” · \d results"))
        expect(chips.first.locator(".result")).to_be_hidden()
        chips.first.locator("> summary").click()
        expect(chips.first.locator(".result ol > li strong").first).to_be_visible()
        expect(chips.first.locator(".arguments")).to_be_hidden()
        chips.first.get_by_text("Details of search_web").click()
        expect(chips.first.locator(".arguments")).to_contain_text('"query"')
        chips.first.locator("> summary").click()
        expect(chips.first.locator(".result")).to_be_hidden()

        card = shown.thread.locator(".plan")
        expect(card.locator("li")).to_have_count(6)
        card.get_by_role("checkbox").first.check()
        expect(card).to_contain_text("1 of 6 done")
        card.locator("li .editable button").nth(1).click()
        shown.page.keyboard.press("Control+a")
        shown.page.keyboard.type("Read one text a day")
        shown.page.keyboard.press("Enter")
        expect(card).to_contain_text("Read one text a day")
        card.get_by_label("New task").fill("Book the test")
        card.get_by_label("New task").press("Enter")
        expect(card.locator("li")).to_have_count(7)

        (plan,) = browser.api("GET", "/plans")["plans"]
        assert [task.get("done", False) for task in plan["tasks"]].count(True) == 1
        assert {"Read one text a day", "Book the test"} <= {task["title"] for task in plan["tasks"]}
        shown.page.reload()
        expect(shown.thread.locator(".plan")).to_contain_text("1 of 7 done")  # the store, not the log
        expect(shown.page.locator("#conversations a")).to_contain_text("IELTS")


def test_the_model_is_switched_in_mid_thread(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().ask("Hello")
        shown.sees("You wrote: Hello")
        shown.page.locator("#model").click()
        shown.page.get_by_role("option", name="other").click()
        expect(shown.page.locator("#model")).to_have_text("other")
        shown.ask("Who is it now?")
        shown.sees("The other one speaks.")
        expect(shown.thread.locator(".message.output .who b")).to_have_text(["talker", "other"])
        assert chat.show(shown.conversation)["model"] == "other"


def test_an_unknown_model_is_refused_and_the_old_one_stays(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().ask("Hello")
        shown.page.locator("#model").click()
        shown.page.keyboard.type("unknown/model")
        shown.page.keyboard.press("Enter")
        expect(shown.page.locator(".notice.wrong")).to_contain_text("unknown")
        expect(shown.page.locator("#model")).to_have_text("talker")


@pytest.mark.journey
def test_a_stopped_answer_keeps_its_partial_text(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().say("slowly please")
        shown.sees("word 5")
        shown.button("Stop").click()
        shown.rest()
        shown.sees("Stopped.")
        shown.sees("word 5")
        shown.ask("And now?")
        shown.sees("You wrote: And now?")


@pytest.mark.journey
def test_a_reload_in_mid_stream_shows_the_same_and_continues(chromium: Chromium, chat: Browser, gate: Gate) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().say("wait for me")
        shown.sees("First half,")
        shown.page.reload()
        shown.sees("First half,")
        expect(shown.thread.locator(".thought.live, .thought")).to_have_count(1)
        expect(shown.button("Stop")).to_be_visible()
        gate.open()
        shown.rest()
        assert shown.thread.locator(".output .prose").last.inner_text() == "First half,\n\nsecond half."
        thought = shown.thread.locator(".thought")
        expect(thought.locator("strong")).to_be_hidden()
        thought.locator("summary").click()
        expect(thought.locator("strong")).to_have_text("here")


def test_nothing_jumps_when_an_answer_ends(chromium: Chromium, chat: Browser, gate: Gate) -> None:
    """The speaker's name is there from the first word, so the words stay where they are."""
    with window(chromium, chat.port) as shown:
        shown.open().say("wait for me")
        words = shown.thread.locator(".output .prose p", has_text="First half,")
        expect(words).to_be_visible()
        expect(shown.thread.locator(".output .who b")).to_have_text("talker")
        before = words.bounding_box()
        gate.open()
        shown.rest()
        expect(shown.thread.locator(".output .spent")).to_have_text(re.compile(r"\d s"))
        after = words.bounding_box()
        assert before is not None
        assert after is not None
        assert (before["x"], before["y"]) == (after["x"], after["y"])
        expect(shown.thread.locator(".output .actions")).to_have_css("opacity", "1")


def test_a_lost_network_is_shown_and_the_turn_continues(chromium: Chromium, chat: Browser, gate: Gate) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().say("wait for me")
        shown.sees("First half,")
        shown.page.context.set_offline(True)
        expect(shown.page.locator("#notices")).to_contain_text("Your draft is saved")
        gate.open()
        shown.page.context.set_offline(False)
        shown.sees("second half.")
        shown.rest()


def test_a_server_that_was_killed_and_started_again_is_found_again(chromium: Chromium, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code = f"serve_chat(ChatSettings(model='offline/plain', store={str(tmp_path / 'chats.db')!r}), port={port})"
    command = [
        sys.executable,
        "-c",
        f"from antiphon_chat.page.server import serve_chat; from antiphon_chat.shared.session import ChatSettings; {code}",
    ]

    @contextmanager
    def started() -> Iterator[None]:
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                assert process.stderr is not None
                while b"the chat is at" not in process.stderr.readline():
                    assert process.poll() is None
                yield
            finally:
                process.kill()

    with window(chromium, port) as shown:
        with started():
            shown.open().ask("Hello")
        expect(shown.page.locator("#notices")).to_contain_text("Connection lost")
        shown.box.fill("Are you back?")
        with started():
            expect(shown.page.locator("#notices")).to_contain_text("Reconnected")
            expect(shown.box).to_have_value("Are you back?")
            shown.ask("Are you back?")
            kinds = [entry["kind"] for entry in Browser(port).show(shown.conversation)["entries"]]
            for name in ("input", "output"):  # each once, though it was sent before and after
                expect(shown.thread.locator(f".message.{name}")).to_have_count(kinds.count(f"model_{name}"))


def test_two_windows_show_one_conversation(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as one, window(chromium, chat.port) as other:
        one.open().ask("Hello")
        other.open(one.conversation).sees("You wrote: Hello")
        other.ask("From the other window")
        one.sees("You wrote: From the other window")


def test_a_message_is_edited_in_a_fork_and_the_original_stays(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().ask("Hello")
        shown.ask("This is worng")
        original = shown.conversation
        edit_in_fork(shown, "This is right")
        assert shown.conversation != original
        assert "worng" not in shown.thread.inner_text()
        assert "Hello" in shown.thread.inner_text()
        expect(shown.page.locator("#conversations .family a[aria-current]")).to_be_visible()
        assert "worng" in str(chat.show(original)["entries"])


def test_a_rollback_takes_out_of_sight_what_came_after(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().ask("Hello")
        shown.ask("Forget this")
        message = shown.thread.locator(".message.input").last
        message.hover()
        message.get_by_role("button", name="Roll back to here").click()
        shown.sees("Rolled back to version")
        expect(shown.thread.locator(".message.input")).to_have_count(1)
        assert "Forget this" not in shown.thread.inner_text()


@pytest.mark.journey
def test_a_call_waits_for_a_person_who_approves_denies_or_edits_it(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        card = shown.open().thread.locator(".approval")
        chip = shown.thread.locator(".chip").last

        def decided(outcome: str) -> None:
            expect(card).to_have_count(0)
            shown.rest()
            chip.locator("summary").click()
            expect(chip).to_contain_text(outcome)

        shown.say("fly Oslo")
        expect(card).to_contain_text("Oslo")
        shown.page.reload()  # the decision may come later, in another window
        card.get_by_role("button", name="Approve once").click()
        decided("booked: Oslo")

        shown.say("fly Sydney")
        card.get_by_text("Say why not").click()
        card.get_by_placeholder("Why not").fill("too far")
        card.get_by_role("button", name="Deny").click()
        decided("denied: too far")

        shown.say("fly Rome")
        card.get_by_role("button", name="Edit the arguments").click()
        card.get_by_role("textbox", name="Arguments").fill('{"to": "Bergen"')
        card.get_by_role("button", name="Run with these arguments").click()
        expect(card.get_by_role("alert")).to_contain_text("Invalid JSON")
        card.get_by_role("textbox", name="Arguments").fill('{"to": "Bergen"}')
        card.get_by_role("button", name="Run with these arguments").click()
        decided("booked: Bergen")


def test_a_free_form_call_is_edited_as_text(chromium: Chromium, tmp_path: Path) -> None:
    @ap.tool(needs_approval=True)
    def shell(command: str) -> str:
        "Run a command."
        return f"ran: {command}"

    model = ap.ScriptedModel(ToolCallRequest("shell", "a", "rm -r everything", freeform=True), "Done.")
    with served(tmp_path / "chats.db", model, tools=[shell]) as browser, window(chromium, browser.port) as shown:
        shown.open().say("Clean up")
        card = shown.thread.locator(".approval")
        expect(card.locator(".arguments")).to_have_text("rm -r everything")
        card.get_by_role("button", name="Edit the arguments").click()
        card.get_by_role("textbox", name="Arguments").fill("ls")
        card.get_by_role("button", name="Run with these arguments").click()
        expect(card).to_have_count(0)
        shown.sees("Done.")
        (decision,) = [
            entry for entry in browser.show(shown.conversation)["entries"] if entry["kind"] == "human_decision"
        ]
        assert (decision["decision"], decision["arguments"]) == ("edit", "ls")


def test_a_provider_failure_is_shown_and_can_be_retried(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open(chat.create(model="broken")).say("Hello")
        expect(shown.thread.locator(".failed")).to_contain_text("the key was refused")
        expect(shown.button("Try again")).to_be_visible()


def test_conversations_are_searched(chromium: Chromium, chat: Browser) -> None:
    chat.ask(chat.create(), "The heron stands in the reeds")
    chat.ask(chat.create(), "Nothing of the kind")
    with window(chromium, chat.port) as shown:
        rows = shown.open().page.locator("#conversations a")
        shown.page.locator("#search").fill("heron")
        expect(rows).to_have_count(1)
        expect(rows.locator("mark").first).to_have_text("heron")
        rows.click()
        shown.sees("The heron stands in the reeds")


def test_settings_are_changed_and_a_conversation_is_deleted(chromium: Chromium, chat: Browser) -> None:
    with window(chromium, chat.port) as shown:
        shown.open().ask("Hello")
        shown.page.locator("#more summary").click()
        shown.button("Conversation").click()
        shown.page.get_by_label("Title").fill("Herons")
        shown.page.get_by_label("Memory notebook").fill("Likes birds.")
        shown.button("Save").click()
        expect(shown.page.locator("#title")).to_have_text("Herons")
        assert chat.show(shown.conversation)["memory"] == "Likes birds."
        shown.page.locator("#more summary").click()
        conversation = shown.conversation
        shown.button("Delete").click()
        row = shown.page.locator("#conversations a", has_text="Herons")
        expect(row).to_have_count(0)
        expect(shown.thread).to_contain_text("Your turn.")
        shown.button("Undo").click()
        expect(row).to_have_count(1)
        row.hover()
        shown.page.get_by_label("Actions for Herons").click()
        shown.button("Rename").click()
        shown.page.get_by_role("dialog").get_by_label("Title").fill("Grey herons")
        shown.button("Save").click()
        expect(row).to_have_text(re.compile("Grey herons"))
        assert chat.show(conversation)["info"]["title"] == "Grey herons"
        row.hover()
        shown.page.get_by_label("Actions for Grey herons").click()
        shown.button("Delete").click()
        expect(row).to_have_count(0)
        assert chat.show(conversation)["info"]["title"] == "Grey herons"  # as long as it can be undone
        shown.page.reload()
        until(lambda: chat.request("GET", f"/chat/api/conversations/{conversation}").status == 404)
        expect(row).to_have_count(0)


@pytest.fixture
def long_chat(tmp_path: Path) -> Iterator[tuple[Browser, str]]:
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.create(title="Long")
        for number in range(150):
            history.append(ModelInputEntry.of(f"Question {number}?"))
            text = f"Answer **{number}**.\n\n## Why\n\n- one\n- two\n\n```\ncode\n```\n\nEnd of answer {number}."
            history.append(ModelOutputEntry.of(text))
    with served(tmp_path / "chats.db") as browser:
        yield browser, str(history.id)


def test_a_long_conversation_draws_what_is_near_and_the_rest_when_it_comes_into_view(
    chromium: Chromium, long_chat: tuple[Browser, str]
) -> None:
    browser, conversation = long_chat
    with window(chromium, browser.port) as shown:
        shown.open(conversation).sees("Answer 149.")
        assert shown.thread.locator(".message").count() < 120
        shown.sees("Answer 0.")  # its words are there, so that they can be searched for
        shown.page.locator("#scroller").evaluate("(node) => { node.scrollTop = 0; }")
        expect(shown.thread.locator(".message .prose", has_text="Answer 0.").first).to_be_visible()
        shown.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        expect(shown.thread.locator(".message.output")).to_have_count(150)


def test_reading_upwards_draws_turns_without_moving_what_is_read(
    chromium: Chromium, long_chat: tuple[Browser, str]
) -> None:
    browser, conversation = long_chat
    with window(chromium, browser.port) as shown:
        shown.open(conversation).sees("Answer 149.")
        far = shown.thread.locator(".far").count()
        shown.page.mouse.move(700, 300)
        read = shown.thread.locator(".message.output", has_text="Answer 149.")

        def top() -> float:
            return float(read.evaluate("(node) => node.getBoundingClientRect().top"))

        begin = top()
        for scrolled in range(400, 10_000, 400):
            shown.page.mouse.wheel(0, -400)
            until(lambda scrolled=scrolled: top() > begin + scrolled - 5)
            assert top() == pytest.approx(begin + scrolled, abs=5)
        assert shown.thread.locator(".far").count() < far - 5


def test_find_in_page_finds_what_is_not_drawn_and_stays_there(
    chromium: Chromium, long_chat: tuple[Browser, str]
) -> None:
    browser, conversation = long_chat
    with window(chromium, browser.port) as shown:
        shown.open(conversation).sees("Answer 149.")
        assert shown.page.evaluate("window.find('End of answer 40.', false, false, true)")
        # A browser without a window selects what it found and does not scroll to it.
        shown.page.evaluate(
            """() => {
              const { top } = getSelection().getRangeAt(0).getBoundingClientRect();
              document.getElementById("scroller").scrollBy(0, top - 300);
            }"""
        )
        found = shown.thread.locator(".message .prose p", has_text="End of answer 40.")
        expect(found).to_be_in_viewport()
        expect(shown.button("Jump to latest")).to_be_visible()
        browser.ask(conversation, "And now?")
        shown.sees("And now?")
        expect(found).to_be_in_viewport()


def test_limits_of_a_turn_are_set_on_the_page(chromium: Chromium, tmp_path: Path) -> None:
    def look() -> str:
        "Look."
        return "nothing yet"

    model = ap.FunctionModel(lambda context, options: "Enough." if options.settings.tool_choice else call("look"))
    with served(tmp_path / "chats.db", model, tools=[look]) as chat, window(chromium, chat.port) as shown:
        shown.open(chat.create())
        shown.page.locator("#more summary").click()
        shown.button("Conversation").click()
        rounds = shown.page.get_by_label("Rounds of tool calls")
        expect(rounds).to_have_value("5")
        rounds.fill("0")
        shown.button("Save").click()
        expect(rounds).to_be_visible()  # the browser refuses it
        rounds.fill("1")
        shown.page.get_by_label("Rounds in a row without a successful call").fill("4")
        shown.page.get_by_label("Seconds").fill("90")
        shown.button("Save").click()
        expect(rounds).to_have_count(0)
        shown.ask("Go.")
        shown.sees("Stopped: round limit reached.")
        assert chat.show(shown.conversation)["limits"] == {"max_rounds": 1, "max_failed_rounds": 4, "seconds": 90}
        shown.page.reload()
        shown.page.locator("#more summary").click()
        shown.button("Conversation").click()
        expect(rounds).to_have_value("1")
        expect(shown.page.get_by_label("Seconds")).to_have_value("90")


def test_a_key_is_asked_for_once_and_kept_in_the_tab(chromium: Chromium, tmp_path: Path) -> None:
    from antiphon_gateway.config.settings import ClientKeySettings

    keys = [ClientKeySettings(name="ada", key="env:CHAT_KEY")]
    with (
        served(tmp_path / "chats.db", keys=keys, environ={"CHAT_KEY": "open sesame"}) as browser,
        window(chromium, browser.port) as shown,
    ):
        shown.open()
        shown.page.get_by_label("Client key").fill("wrong")
        shown.page.keyboard.press("Enter")
        expect(shown.page.get_by_role("dialog")).to_contain_text("Key rejected (401)")
        shown.page.get_by_label("Client key").fill("open sesame")
        shown.page.keyboard.press("Enter")
        shown.ask("Hello")
        assert "sesame" not in shown.page.content()
        assert "sesame" not in shown.page.url
