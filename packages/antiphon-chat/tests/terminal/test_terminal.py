"""`antiphon chat` at a real pseudo-terminal, against the offline model and a scripted server on this machine."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.history import (
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
)
from antiphon.parts import Document, Image
from antiphon.tools.builtin import PlanStore
from providers.scripted_server import Received, Reply, ScriptedServer
from support.terminal import Terminal, with_model
from terminal.stored_chat import called, inputs, kept, streamed

INTERRUPT, LEAVE, EXPAND, NEWLINE = "\x03", "\x04", "\x0f", "\x1b\r"
COLOURS = re.compile(rb"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])[;m]")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(Reply(body=streamed("Hello."))) as server:
        yield server


def test_the_first_minute_needs_no_setup_and_runs_several_rounds(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat") as terminal:
        terminal.sees(
            "▫▪ Antiphon", "guided tour · no key", "1 search, then plan", "/key use a real model", "Ctrl-D: quit"
        )
        terminal.send("find IELTS tips, then make me a plan")
        screen = terminal.sees("3 rounds")
        for words in (
            "▪ guided tour",
            "✓ Searched “IELTS tips” · 3 results",
            "(Ctrl-O)",
            "✓ Created the plan IELTS",
            "☐ t1 Read the title",
            " 0/6",
        ):
            assert words in screen
        terminal.send("/history")
        screen = terminal.sees("version 8, ")
        assert re.search(r"^VERSION +KIND +ROUND +TIME +TOKENS +TEXT$", screen, re.MULTILINE)
        assert re.search(r"^7 +ToolCallResults +1\.2 ", screen, re.MULTILINE)
        assert re.search(r"^8 +ModelOutput +1\.3 +[\d:]+ +[\d,]+\+\d+ ", screen, re.MULTILINE)
        terminal.type(EXPAND)  # the last result, which was folded
        terminal.sees("t6: Check what you learned, and decide the next step (due", "Created plan-1.")
        terminal.send("/plans")
        terminal.sees("plan-1 active 0/6 IELTS tips")
        terminal.send("/tools")
        terminal.sees("search_web read")
        terminal.send("/tokens")
        terminal.sees("Context: ")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
        assert "Saved as " in terminal.words
        assert "Traceback" not in terminal.text
    assert kept(tmp_path).version == 8


def test_an_answer_is_drawn_while_it_streams_and_appears_once(server: ScriptedServer, tmp_path: Path) -> None:
    begun, ended = (
        "First *block*.\n\n| a | b |\n|---|---|\n| one | 二 |\n\n",
        "```python\nx = 1\n```\n\nThe last words.",
    )
    body = streamed(begun, "Second blo", "ck.\n\n", ended)
    ellipsize = body.index(b"ck.\\n")  # in the middle of the second block
    gate = threading.Event()
    server.play(Reply(body=body[:ellipsize], hangs=True))
    with with_model(server, tmp_path) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("draw")
        screen = terminal.sees("First block.", "Second blo")  # the open block is there before it is finished
        assert "*block*" not in screen
        assert re.search(r"one +二", screen)
        terminal.resize(60, 24)
        terminal.type("x")  # typed while it runs, in a window of another size
        terminal.sees("Second blo", "› x")
        terminal.type("\x7f" + INTERRUPT)
        terminal.sees("stopped; the partial answer is saved")
        server.play(Reply(body=body, gate=gate))
        terminal.send("again")
        terminal.sees("gpt-test 0 s")  # it is waited for
        terminal.send("queued before")
        terminal.sees("queued: queued before")
        gate.set()
        screen = terminal.sees("The last words.", "▫ queued before")
        terminal.waits(lambda: len(server.received) == 3, "the third question")
        terminal.waits(lambda: terminal.words.count("The last words.") == 2, "the third answer")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
        assert terminal.text.count("The last words.") == 2  # drawn once for each answer
        assert terminal.text.count("x = 1") == 2
        assert COLOURS.search(terminal.raw)  # code is highlighted
    history = kept(tmp_path)
    assert inputs(history) == ["draw", "again", "queued before"]
    first = next(entry for entry in history.entries if isinstance(entry, ModelOutputEntry))
    assert first.response_markdown == f"{begun}Second blo"


def test_ctrl_c_gives_what_was_queued_back_and_clears_a_line(server: ScriptedServer, tmp_path: Path) -> None:
    server.play(Reply(body=streamed("never")[:0], hangs=True))
    with with_model(server, tmp_path) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("wait")
        terminal.sees("(Ctrl-C: stop)")
        terminal.send("for later")
        terminal.sees("queued: for later")
        terminal.type(INTERRUPT)
        terminal.sees("(stopped)", "› for later")
        server.play(Reply(body=streamed("Hello.")))
        terminal.send(", edited")  # after what came back
        terminal.sees("▫ for later, edited", "▪ gpt-test Hello.")
        terminal.type("a line to discard")
        terminal.sees("to discard")
        terminal.type(INTERRUPT)
        terminal.waits(lambda: "to discard" not in terminal.text, "an empty line")
        terminal.type(INTERRUPT)
        terminal.sees("Ctrl-D: quit")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
    assert inputs(kept(tmp_path)) == ["wait", "for later, edited"]


def test_thoughts_are_folded_and_control_characters_shown(server: ScriptedServer, tmp_path: Path) -> None:
    hostile = "Look: \x1b[2J\x1b]0;owned\x07 [link](https://example.org/x)"
    server.play(Reply(body=streamed(hostile, reasoning="First I think of everything.")))
    environment = {"DEEPSEEK_API_KEY": "sk-secret-2", "DEEPSEEK_BASE_URL": server.url}
    with Terminal(tmp_path, "chat", environment=environment) as terminal:
        terminal.sees("deepseek/deepseek-v4-flash: DEEPSEEK_API_KEY is set; change it with")  # picked, with the reason
        terminal.send("think")
        screen = terminal.sees("∴ thought for", "https://example.org/x")
        assert "First I think" not in screen
        assert "␛[2J" in screen
        assert b"\x1b]0;" not in terminal.raw
        terminal.send("/expand")
        terminal.sees("First I think of everything.")
        assert b"sk-secret" not in terminal.raw


def test_mistakes_in_commands_are_explained(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", columns=80, rows=60) as terminal:
        terminal.sees("Ctrl-D: quit")
        for line, reply in {
            "/memory x": "unknown subcommand 'x'; usage: /memory [edit|add TEXT|set TEXT|clear]",
            "/memory add": "usage: /memory [edit|add TEXT|set TEXT|clear]",
            "/history x": "invalid number 'x'; usage: /history [N|all|rounds]",
            "/expand x": "invalid number 'x'; usage: /expand [N]",
            "/key openai forget": "no key of openai was pasted or stored here",
        }.items():
            terminal.send(line)
            terminal.sees(f"▫ {line} {reply}")
        terminal.send("/help")
        terminal.sees(".html to share")  # nothing is cut off
        terminal.type(LEAVE)
        assert terminal.ends() == 0


def test_a_conversation_is_saved_to_read_elsewhere(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", "--language", "zh", columns=250) as terminal:
        terminal.sees("Ctrl-D 退出")
        terminal.send("你是谁？")
        terminal.sees("1 回合")
        for name in ("talk.md", "talk.html", "talk.json"):
            terminal.send(f"/export {tmp_path / name}")
            terminal.sees(f"已保存为 {tmp_path / name}")
        terminal.send("/title auto")
        terminal.sees("没有写出标题")  # the tour writes none
        terminal.type(LEAVE)
        assert terminal.ends() == 0
    assert "## 你\n\n你是谁？" in (tmp_path / "talk.md").read_text()
    assert '<html lang="zh">' in (tmp_path / "talk.html").read_text()
    assert b"model_output" in (tmp_path / "talk.json").read_bytes()


def test_an_approval_is_readable_in_a_small_terminal(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", "--ask", columns=60, rows=20) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("make me a plan to learn Spanish")
        screen = terminal.sees("Create this plan?", "☐ Write the goal down", "n no [reason]")
        assert "\\n" not in screen
        terminal.send("a")
        terminal.sees("✓ Created the plan")
        terminal.send("see @nothing.txt")
        terminal.sees("@nothing.txt: no such file;", "› see @nothing.txt")  # the message is back in the input
        terminal.type(INTERRUPT)
        terminal.type(LEAVE)
        assert terminal.ends() == 0


def test_long_arguments_are_cut_to_the_terminal_and_expand(server: ScriptedServer, tmp_path: Path) -> None:
    tasks = [f"Task number {number} of many" for number in range(60)]
    arguments = json.dumps({"title": "Much", "tasks": tasks})
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "create_plan", "arguments": arguments}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    body = b"".join(b"data: " + json.dumps(part).encode() + b"\n\n" for part in (chunk, end)) + b"data: [DONE]\n\n"
    server.play(Reply(body=body), Reply(body=streamed("Done.")))
    with with_model(server, tmp_path, "--ask", columns=60, rows=20) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("plan")
        screen = terminal.sees("Create this plan?", "more lines; Ctrl-O shows all of it", "n no [reason]")
        assert "Task number 59" not in screen
        terminal.type(EXPAND)
        terminal.sees("Task number 59 of many")
        terminal.send("d no")
        terminal.sees("Done.")
        terminal.type(LEAVE)
        assert terminal.ends() == 0


def test_calls_wait_for_a_person_who_asked_to_be_asked(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", "--ask") as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("make me a plan to learn Spanish")
        terminal.sees("Create this plan?", "y yes")
        terminal.send("perhaps")
        terminal.sees("Enter y, n, e, t or l;")
        terminal.send("d not today")
        terminal.sees("✗ create_plan", "not today", "2 rounds")
        terminal.send("make me a plan to learn Norwegian")
        terminal.sees("Create this plan?", again=True)
        terminal.send("e")
        terminal.sees("arguments ›")
        terminal.type("\x15" * 40)  # the whole of what was given
        terminal.send("nonsense")
        terminal.sees("cannot be given these arguments")
        terminal.send("e")
        terminal.sees("arguments ›")
        terminal.type("\x15" * 40)
        terminal.send('{"title": "Norsk", "tasks": ["Begynn"]}')
        terminal.sees("☐ t1 Begynn", "Norsk (plan-1)")
        terminal.send("make me a plan to learn Danish")
        terminal.sees("Create this plan?", again=True)
        terminal.type(INTERRUPT * 2)  # the second one finds the question answered
        terminal.sees("Approval still pending.")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
        assert b"InvalidStateError" not in terminal.raw
    decisions = [entry for entry in kept(tmp_path).entries if isinstance(entry, HumanDecisionEntry)]
    assert [(each.decision, each.reason) for each in decisions] == [("deny", "not today"), ("edit", "")]
    with Terminal(tmp_path, "chat", "--resume") as terminal:  # asked for already: without --ask it waits all the same
        terminal.sees("Pending approvals; /retry to decide:", "create_plan {")
        terminal.send("/retry")
        terminal.sees("Create this plan?")
        terminal.send("a")
        terminal.sees("(plan-2)")
    with PlanStore(tmp_path / "antiphon" / "plans.db") as plans:
        assert [plan.title == "Norsk" for plan in plans.list()] == [True, False]


def test_back_and_forth_in_the_history(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s, always." "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    environment = {"EDITOR": str(editor)}
    with Terminal(tmp_path, "chat", "--no-tools", "--system", "Be brief.", environment=environment) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("first")
        terminal.sees("I cannot answer that")
        terminal.send("secnod")
        terminal.sees("I cannot answer that", again=True)
        terminal.send("/rollback")
        terminal.sees("Rolled back to version 3.", "Undo with /rollback 5")
        terminal.type("\x7f" * 3)  # the question came back to be edited
        terminal.send("ond")
        terminal.sees("I cannot answer that", again=True)
        terminal.send("/title 你好 title")
        terminal.sees("你好 title")
        terminal.send("/fork 3")
        terminal.sees("forked from", "at version 3")
        terminal.send("third")
        terminal.sees("I cannot answer that", again=True)
        terminal.send("/memory add 我喜欢茶")
        terminal.sees("Notebook saved")
        terminal.send("/memory edit")
        terminal.sees("Notebook saved", again=True)
        terminal.send("/memory")
        terminal.sees("我喜欢茶, always.")
        terminal.send("/compact")
        terminal.sees("the offline model writes no summaries")
        terminal.send("/export kept.jsonl")
        terminal.sees("Exported to kept.jsonl")
        terminal.send("/histroy")
        terminal.sees("unknown command /histroy; did you mean /history?")
        terminal.send("/resume 1")
        terminal.sees("你好 title · ", "▫ second")
        terminal.send("/new")
        terminal.sees("New conversation with")
        terminal.send("/quit")
        assert terminal.ends() == 0
    with SqliteStore(tmp_path / "antiphon" / "history.db") as store:
        found = store.list()
        assert len(found) == 2  # the new one had nothing in it
        forked, first = (store.open(info.id) for info in sorted(found, key=lambda info: info.parent is None))
        assert inputs(first) == ["first", "second"]
        assert inputs(forked) == ["first", "third"]
        assert forked.memory_notebook == "我喜欢茶, always."
        assert first.system_instruction == "Be brief."
    assert (tmp_path / "kept.jsonl").read_text().count("\n") == forked.version + 1


def test_a_conversation_is_resumed_with_its_model(server: ScriptedServer, tmp_path: Path) -> None:
    environment = {"OPENAI_API_KEY": "sk-secret-1", "OPENAI_BASE_URL": server.url, "ANTIPHON_MODEL": "offline/plain"}
    with Terminal(tmp_path, "chat", "--model", "openai/gpt-test", environment=environment) as terminal:
        terminal.sees("openai/gpt-test; change it with /model")
        terminal.send("remember me")
        terminal.sees("Hello.")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
    with Terminal(tmp_path, "chat", "--resume", environment=environment) as terminal:
        terminal.sees("openai/gpt-test; change it with /model", "▫ remember me", "Hello.")
        terminal.type("\x1b[A")  # what was typed before
        terminal.sees("tokens › remember me")
        kept(tmp_path, note="another writer")
        terminal.type("\r")
        terminal.sees("Another process added 1 entries", "tokens › remember me")
        terminal.type("\r")  # what was typed is still there
        terminal.sees("Hello.", again=True)


def test_a_session_deletes_only_unused_conversations_it_created(tmp_path: Path) -> None:
    """A template or an imported greeting has no input of a person, and is not the session's to delete."""
    (tmp_path / "antiphon").mkdir()
    with SqliteStore(tmp_path / "antiphon" / "history.db") as store:
        template = store.create()
        template.set_system_instruction("You are a tutor.")
        greeting = store.create()
        greeting.append(ModelOutputEntry.of("Welcome! What shall we learn?"))
        empty = store.create()
        given = {template.id, greeting.id, empty.id}
        for conversation in given:
            with Terminal(tmp_path, "chat", "--resume", conversation) as terminal:
                terminal.sees("Ctrl-D: quit")
                terminal.type(LEAVE)
                assert terminal.ends() == 0
        assert {info.id for info in store.list()} == given
        with Terminal(tmp_path, "chat", "--system", "Be kind.") as terminal:
            terminal.sees("Ctrl-D: quit")
            terminal.send(f"/resume {template.id}")  # away from a new one, and from one that is not the session's
            terminal.sees(f"{template.id}")
            terminal.send("/new")
            terminal.sees("New conversation with")
            terminal.type(LEAVE)
            assert terminal.ends() == 0
        assert {info.id for info in store.list()} == given
        with Terminal(tmp_path, "chat") as terminal:
            terminal.sees("Ctrl-D: quit")
            terminal.send("/memory set Likes tea.")
            terminal.sees("Notebook saved")
            terminal.type(LEAVE)
            assert terminal.ends() == 0
        assert len(store.list()) == 4
        with Terminal(tmp_path, "chat") as terminal:
            terminal.sees("Ctrl-D: quit")
            kept(tmp_path, "another writer wrote this")
            terminal.type(LEAVE)
            assert terminal.ends() == 0
        assert len(store.list()) == 5


def test_several_lines_and_files(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "notes of mine.txt").write_text("Tea at five.")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    (tmp_path / "archive.bin").write_bytes(b"\0\1\2\3")
    with with_model(server, tmp_path) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.type(f"one{NEWLINE}two\\\rthree")
        terminal.sees("one two three")
        terminal.type("\r")
        terminal.sees("Hello.")
        long = "line\n" * 1_000
        terminal.type(f"\x1b[200~short\nlines\x1b[201~ and \x1b[200~{long}\x1b[201~")
        terminal.sees("short lines and [pasted 1: 5,000 characters]")
        terminal.type("\r")
        terminal.waits(lambda: len(server.received) == 2, "the second question")
        terminal.type("look at @no")
        terminal.sees("notes of mine.txt")  # it is completed
        terminal.type("\t")
        terminal.send(" and @dot.png, will you")
        terminal.waits(lambda: len(server.received) == 3, "the third question")
        terminal.send("and @archive.bin")
        terminal.sees("archive.bin is not an image", "› and @archive.bin", again=False)
        terminal.type(INTERRUPT)  # the line that came back
        terminal.type(LEAVE)
        assert terminal.ends() == 0
    history = kept(tmp_path)
    assert inputs(history) == [
        "one\ntwo\nthree",
        f"short\nlines and {long}",
        'look at @"notes of mine.txt" and @dot.png, will you',
    ]
    with_files = next(entry for entry in reversed(history.entries) if isinstance(entry, ModelInputEntry))
    document, image = with_files.content[1:]
    assert isinstance(document, Document)
    assert isinstance(image, Image)
    assert (document.text, document.name) == ("Tea at five.", "notes of mine.txt")


def test_provider_errors_are_one_line_and_the_turn_can_be_retried(server: ScriptedServer, tmp_path: Path) -> None:
    refusal = b'{"error": {"message": "Incorrect API key provided: sk-secret-1"}}'
    server.play(Reply(body=streamed("Half an answer", "never"), cut_after=80))
    with with_model(server, tmp_path) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("hello?")
        terminal.sees("Half an answer", "/retry to try")
        server.play(Reply(body=streamed("There you are.")))
        terminal.send("/retry")
        terminal.sees("There you are.")
        terminal.send("/retry")
        terminal.sees("the last turn is finished; send a new message")
        server.play(Reply(status=401, body=refusal, content_type="application/json"))
        terminal.send("and now?")
        terminal.sees("openai 401: Incorrect API key", "Check the key in OPENAI_API_KEY, or switch with /model.")
        terminal.send("/retry")  # at once: the provider is asked, although its only key was rejected
        terminal.sees("Incorrect API key provided", again=True)
        assert "no usable key" not in terminal.words
        terminal.send("/model offline")
        terminal.sees("Model set to offline/plain")
        terminal.send("/retry")
        terminal.sees("I cannot answer that")
        assert "Traceback" not in terminal.text
        assert b"sk-secret" not in terminal.raw
    assert inputs(kept(tmp_path)) == ["hello?", "and now?"]


def test_forty_columns_chinese_and_no_colour(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", columns=40, rows=16, environment={"NO_COLOR": "1"}) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("搜索 IELTS 备考方法，然后帮我制定一个3个月的学习计划")
        screen = terminal.sees("3 rounds")
        assert "▫ 搜索 IELTS 备考方法" in terminal.words
        assert "☐ t1 第 1-2 周" in screen
        terminal.send("/history")
        terminal.sees("8 ModelOutput")
        terminal.resize(72, 20)
        terminal.send("hello")
        terminal.sees("I am the guided tour of Antiphon", "1 round")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
        assert not COLOURS.search(terminal.raw)
        assert "Traceback" not in terminal.text


def test_a_terminal_that_can_only_print(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", "--ask", environment={"TERM": "dumb"}) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.type("make me a plan \\\nto learn Spanish\n")
        terminal.sees("Create this plan?", "y yes")
        terminal.type("what?\n")
        terminal.sees("Enter y, n, e, t or l; Ctrl-C to decide later. y yes")  # asked again after the reply
        terminal.type("a\n")
        terminal.sees("* create_plan", "done in", "I made the plan “Learn Spanish")
        assert terminal.words.count("y yes") == 2
        terminal.type("/tokens\n")
        terminal.sees("Context: ")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
        assert b"\x1b" not in terminal.raw
    assert inputs(kept(tmp_path)) == ["make me a plan \nto learn Spanish"]


def test_one_shot_on_a_terminal_is_drawn(server: ScriptedServer, tmp_path: Path) -> None:
    text = "".join(f"Line {number} of *many*.\n\n" for number in range(1, 31))
    server.play(Reply(body=streamed(text[:40], text[40:], "第一 and `last`."), piece=200, pause=0.01))
    with with_model(server, tmp_path, "-p", "hi", rows=10) as terminal:
        assert terminal.ends() == 0
        words = terminal.words
    assert [f"Line {number} of many." in words for number in range(1, 31)] == [True] * 30
    assert words.count("第一 and last.") == 1
    assert words.count("Line 1 of many.") == 1


def test_a_long_turn_says_what_was_compacted(server: ScriptedServer, tmp_path: Path) -> None:
    tools = tmp_path / "own.py"
    tools.write_text(
        "import antiphon as ap\n\n\n@ap.tool\ndef look(at: int) -> str:\n    'Look.'\n    return 'lorem ipsum ' * 80\n"
    )
    looked = 0

    def reply(request: Received) -> Reply:
        nonlocal looked
        if b"has grown long" in request.body:
            return Reply(body=streamed("Nothing was found yet."))
        looked += 1
        return Reply(body=called("look", at=looked) if looked <= 30 else streamed("That is all."))

    server.play(reply)
    limits = ("--no-tools", "--token-limit", "1500", "--max-rounds", "40")
    with with_model(server, tmp_path, "--tools", str(tools), *limits) as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("look around")
        terminal.sees("That is all.")
        assert re.search(r"\d+ results shortened to notes", terminal.words)
        assert re.search(r"entries \d+ to \d+ summarised", terminal.words)
        assert "over the limit" not in terminal.words
        terminal.type(LEAVE)
        assert terminal.ends() == 0
