"""`antiphon replay` as a user runs it: a stored conversation, another model on a scripted server, and the table."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.cli import main
from antiphon.cli.terminal import width_of
from antiphon.conversation.replay import compare
from antiphon.providers.scripted import call
from antiphon_chat.terminal.comparison_table import comparison_lines
from providers.scripted_server import Reply, ScriptedServer
from terminal.stored_chat import streamed

MODEL = "openai/gpt-4o"
TOOLS = """
import antiphon
from pathlib import Path

@antiphon.tool
def weather(city: str) -> str:
    "The weather in a city."
    Path(__file__).with_name("ran.txt").write_text(city)
    return f"Snow in {city}"
"""


def calling(city: str) -> bytes:
    """A stream of Chat Completions with a call of the tool."""
    function = {"name": "weather", "arguments": msgspec.json.encode({"city": city}).decode()}
    delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
    bodies: list[dict[str, Any]] = [
        {"id": "c", "choices": [{"index": 0, "delta": delta}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}},
    ]
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(body) for body in bodies) + b"data: [DONE]\n\n"


def replay(arguments: list[str]) -> int:
    """Run the command; the language it sets is forgotten after it."""
    return copy_context().run(main, ["replay", *arguments])


@pytest.fixture
def conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a stored conversation of two turns; the tools are in the file `tools.py`."""
    monkeypatch.setenv("ANTIPHON_STORE", str(tmp_path / "chats.db"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1")
    monkeypatch.delenv("ANTIPHON_LANGUAGE", raising=False)
    (tmp_path / "tools.py").write_text(TOOLS)

    @ap.tool
    async def weather(city: str) -> str:
        "The weather in a city."
        return f"Rain in {city}"

    async def run() -> str:
        model = ap.ScriptedModel("Hello!", call("weather", city="Oslo"), "It rains in Oslo 奥斯陆下雨.", name="old")
        with ap.SqliteStore(tmp_path / "chats.db") as store:
            history = store.create("Weather")
            loop = ap.ToolLoop(ap.Conversation(model, tools=[weather], history=history))
            await loop.run("Hi")
            await loop.run("Weather in Oslo?")
            return history.id

    return asyncio.run(run())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer(Reply(body=calling("Oslo")), Reply(body=streamed("Rain."))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server


def test_the_table_fits_80_columns_and_shows_both_models(
    conversation: str, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay([conversation, "--model", MODEL, "--from", "2", "--no-tools"]) == 0
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(lines)
    assert max(map(width_of, lines)) <= 80
    assert "old/old (original)" in lines[0]
    assert "openai/gpt-4o" in lines[0]
    assert "Turn 2: Weather in Oslo?" in text
    assert text.count('→ weather {"city":"Oslo"}') == 2
    assert "(from the log)" in text
    row = next(line for line in lines if "It rains" in line)
    assert "Rain." in row, "the answers are beside each other"
    assert "$0.0035" in text  # 1000 and 100 tokens of gpt-4o
    assert "? tokens · $?" in text, "the second answer came without usage"
    assert len(server.received) == 2


def test_chinese_and_narrow(conversation: str, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay([conversation, "-m", MODEL, "--from", "2.1", "--no-tools", "--language", "zh"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(width_of, lines)) <= 80
    assert "第 2 轮：Weather in Oslo?" in lines
    assert "（来自记录）" in "\n".join(lines)
    with ap.open_store(_store()) as store:
        branch, original = (store.open(info.id) for info in store.list())
        narrow = comparison_lines(compare(original, branch), 30)
    assert max(map(width_of, narrow[:-2])) <= 30
    assert sum("old/old" in line for line in narrow) == 3, "one block for each model where two columns do not fit"


def _store() -> str:
    return os.environ["ANTIPHON_STORE"]


def test_json(conversation: str, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay([conversation, "-m", MODEL, "--from", "2", "--no-tools", "--json"]) == 0
    comparison = msgspec.json.decode(capsys.readouterr().out)
    assert [branch["stopped"] for branch in comparison["branches"]] == ["", ""]
    assert [(row["turn"], row["round"]) for row in comparison["steps"]] == [(2, 1), (2, 2)]
    assert comparison["steps"][0]["steps"][1]["cost"] == "0.0035"
    assert comparison["branches"][1]["conversation"] != conversation
    assert len(server.received) == 2


def test_an_unknown_call_stops_and_nothing_runs(
    conversation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = ["--no-tools", "--tools", str(tmp_path / "tools.py")]
    with ScriptedServer(Reply(body=calling("Rome")), Reply(body=streamed("Snow."))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        assert replay([conversation, "-m", MODEL, "--from", "2", *tools]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "(waiting: not in the log)" in shown
    assert "other calls than the original" in shown
    assert "openai/gpt-4o stopped: weather needs your decision; decide with `" in shown
    assert "antiphon chat --resume" in shown
    assert not (tmp_path / "ran.txt").exists()

    with ScriptedServer(Reply(body=calling("Rome")), Reply(body=streamed("Snow."))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        assert replay([conversation, "-m", MODEL, "--from", "2", "--calls", "run", *tools]) == 0
    assert (tmp_path / "ran.txt").read_text() == "Rome"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--from", "two"], 2, "invalid step 'two'"),
        (["--from", "7"], 1, "no turn 7 in this conversation; it has the turns 1 to 2"),
        (["--turns", "0"], 2, "expected 1 or more"),
        (["--calls", "ask"], 2, "--calls ask needs a terminal"),
        (["--model", "nowhere/x"], 1, "nowhere"),
    ],
)
def test_mistakes_are_reported(
    conversation: str, arguments: list[str], code: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        result = replay([conversation, "-m", MODEL, *arguments])
    except SystemExit as error:
        result = int(str(error.code))
    assert result == code
    assert reason in capsys.readouterr().err
    with ap.open_store(_store()) as store:
        assert store.count() == 1, "nothing was forked"
