"""`antiphon chat --web`: the options of the terminal work on the page too."""

from __future__ import annotations

from pathlib import Path

import pytest

from page.chat_process import antiphon_chat, plans_of, store_of, web_chat
from providers.scripted_server import Reply, ScriptedServer
from support.terminal import Terminal
from support.waiting import until
from terminal.stored_chat import streamed


def test_ask_works_on_the_page(tmp_path: Path) -> None:
    with web_chat(tmp_path, "--ask") as chat:
        asks = {tool["name"]: tool["needs_approval"] for tool in chat.browser.api("GET", "/state")["tools"]}
        assert asks["create_plan"]
        assert not asks["search_web"]  # it only reads
        conversation = chat.browser.create()
        events = chat.browser.ask(conversation, "make me a plan to learn Spanish")
        assert events[-1].data["reason"] == "approval"
        (pending,) = chat.browser.show(conversation)["pending"]
        assert pending["tool_name"] == "create_plan"
        assert plans_of(tmp_path) == []
        decision = {"tool_call_id": pending["tool_call_id"], "decision": "approve"}
        chat.browser.api("POST", f"/conversations/{conversation}/decisions", decision)
        until(lambda: not chat.browser.show(conversation)["running"])
    assert len(plans_of(tmp_path)) == 1


def test_resume_opens_the_conversation_with_its_model(tmp_path: Path) -> None:
    with ScriptedServer(Reply(body=streamed("Hello."))) as server:
        environment = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": server.url, "ANTIPHON_MODEL": "offline/plain"}
        assert antiphon_chat(tmp_path, "-m", "openai/gpt-test", "-p", "Hi.", **environment)[:2] == (0, "Hello.\n")
        assert antiphon_chat(tmp_path, "-p", "say another thing", **environment)[0] == 0
        with store_of(tmp_path) as store:
            another, first = (info.id for info in store.list())
        with web_chat(tmp_path, "--resume", first[-8:], "--system", "Be kind.", environment=environment) as chat:
            assert chat.address.endswith(f"/chat/#/c/{first}")
            shown = chat.browser.show(first)
            assert (shown["model"], shown["system"]) == ("openai/gpt-test", "Be kind.")
            chat.browser.ask(first, "And you?")
            assert len(server.received) == 2
            assert chat.browser.show(another)["model"] == "offline/plain"
        with web_chat(tmp_path, "--resume", "-m", "offline/plain", environment=environment) as chat:
            assert chat.address.endswith(f"/chat/#/c/{first}")  # the one that was changed last
            assert chat.browser.show(first)["model"] == "offline/plain"
        del environment["OPENAI_API_KEY"]
        with store_of(tmp_path) as store:
            without_choice = store.fork(first, 2).id
        with web_chat(tmp_path, "--resume", without_choice, environment=environment) as chat:
            assert chat.browser.show(without_choice)["model"] == "offline/plain"  # the other has no key any more


def test_an_approval_requested_on_the_page_is_asked_for_in_the_terminal(tmp_path: Path) -> None:
    with web_chat(tmp_path, "--ask") as chat:
        conversation = chat.browser.create()
        assert chat.browser.ask(conversation, "make me a plan to learn Spanish")[-1].data["reason"] == "approval"
    with Terminal(tmp_path, "chat", "--resume", conversation) as terminal:
        terminal.sees("Pending approvals")
        terminal.send("/retry")
        terminal.sees("Create this plan?")
        assert plans_of(tmp_path) == []
        terminal.send("a")
        terminal.sees("(plan-1)")
    assert len(plans_of(tmp_path)) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--resume", "nobodys"), "no conversation 'nobodys'"),
        (("-p", "Hi."), "leave them out with --web"),
        (("--json",), "leave them out with --web"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    code, out, err = antiphon_chat(tmp_path, "--web", "--port", "0", *arguments)
    assert (code, out) == (1, "")
    assert reason in err
    assert "Traceback" not in err


def test_tour_can_be_named_without_its_model(tmp_path: Path) -> None:
    """It has its tool, and it writes no titles."""
    with web_chat(tmp_path, "-m", "offline") as chat:
        assert "pause" in {tool["name"] for tool in chat.browser.api("GET", "/state")["tools"]}
        conversation = chat.browser.create()
        chat.browser.ask(conversation, "你好")
        chat.browser.ask(conversation, "find IELTS tips")
        assert chat.browser.show(conversation)["info"]["title"] == "你好"
