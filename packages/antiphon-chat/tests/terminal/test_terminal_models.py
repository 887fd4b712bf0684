"""The models and keys of `antiphon chat` at a real pseudo-terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.history import (
    ModelOutputEntry,
    SqliteStore,
)
from providers.scripted_server import Reply, ScriptedServer
from support.terminal import Terminal, with_model
from terminal.stored_chat import inputs, kept, outputs, streamed

INTERRUPT, LEAVE, EXPAND, NEWLINE = "\x03", "\x04", "\x0f", "\x1b\r"
COLOURS = re.compile(rb"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])[;m]")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(Reply(body=streamed("Hello."))) as server:
        yield server


def test_an_answer_is_made_again_in_a_branch(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat") as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("/regenerate")
        terminal.sees("there is no message to answer again")
        terminal.send("who are you?")
        terminal.sees("1 round")
        terminal.send("/regenerate")
        terminal.sees("the first answer stays in", "1 round")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
    with SqliteStore(tmp_path / "antiphon" / "history.db") as store:
        branch, first = (store.open(info.id) for info in store.list())
    assert inputs(branch) == inputs(first) == ["who are you?"]
    assert len(outputs(branch)) == len(outputs(first)) == 1


def test_another_model_answers_too_and_both_are_shown(server: ScriptedServer, tmp_path: Path) -> None:
    with with_model(server, tmp_path, "--model", "offline/plain") as terminal:
        terminal.sees("Ctrl-D: quit")
        terminal.send("/compare")
        terminal.sees("usage: /compare MODEL")
        terminal.send("/compare openai/gpt-test")
        terminal.sees("there is no message to answer again")
        terminal.send("who are you?")
        terminal.sees("1 round")
        terminal.send("/compare openai/gpt-test")
        terminal.sees("offline/plain (original)", "openai/gpt-test answered in", "Still in", "guided tour · ")
        terminal.send("/resume 1")
        terminal.sees("gpt-test · ", again=True)  # the other answer, with the model that gave it
        terminal.type(LEAVE)
        assert terminal.ends() == 0
    with SqliteStore(tmp_path / "antiphon" / "history.db") as store:
        branch, first = (store.open(info.id) for info in store.list())
    assert inputs(branch) == inputs(first) == ["who are you?"]
    assert outputs(branch) == ["Hello."]
    assert len(outputs(first)) == 1


def test_the_model_is_switched_in_mid_conversation(server: ScriptedServer, tmp_path: Path) -> None:
    environment = {"OPENAI_API_KEY": "sk-secret-1", "OPENAI_BASE_URL": server.url, "ANTIPHON_MODEL": "offline/plain"}
    with Terminal(tmp_path, "chat", environment=environment) as terminal:
        terminal.sees("named by ANTIPHON_MODEL")
        terminal.send("hello")
        terminal.sees("1 round")
        terminal.send("/model")
        terminal.sees("→ guided tour", "openai/gpt-5.5 OPENAI_API_KEY is set", "/key PROVIDER paste an API key")
        terminal.send("/model gtp-5.5")
        terminal.sees("unknown model 'gtp-5.5'; did you mean openai/gpt-5.5?")
        terminal.send("/model anthropic/claude-x")
        terminal.sees("anthropic/claude-x needs a key: set ANTHROPIC_API_KEY")
        terminal.send("/model gpt")
        terminal.sees("Model set to openai/gpt-5.5")
        terminal.send("and you?")
        terminal.sees("offline/plain → openai/gpt-5.5", "Hello.")
        terminal.send("/history rounds")
        terminal.sees("1.1 offline/plain", "2.1 openai/gpt-5.5")
    origins = [entry.origin for entry in kept(tmp_path).entries if isinstance(entry, ModelOutputEntry)]
    assert [origin.provider for origin in origins if origin] == ["offline", "openai"]


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_pasted_key_is_used_and_never_shown(server: ScriptedServer, tmp_path: Path, is_stored: bool) -> None:
    secret = "sk-pasted-in-the-terminal"
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1"}
    with Terminal(tmp_path, "chat", environment=environment) as terminal:
        terminal.sees("/key use a real model")
        terminal.send("/key unknown")
        terminal.sees("no provider 'unknown' that takes a key")
        terminal.send("/key openai")
        terminal.sees("key of openai (not shown) ›")
        terminal.type(f"\x1b[200~{secret}\x1b[201~\r")
        terminal.sees("store it on this machine? y/n ›")
        terminal.send("y" if is_stored else "n")
        terminal.sees("Key of openai set.", "Model set to openai/gpt-5.5")
        terminal.send("hi")
        terminal.sees("Hello.")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
        assert secret.encode() not in terminal.raw
    assert server.received[-1].headers["authorization"] == f"Bearer {secret}"
    file = tmp_path / "antiphon" / "keys.json"
    assert file.exists() == is_stored
    others = [path for path in file.parent.iterdir() if path.is_file() and path != file]
    assert others
    assert not any(secret.encode() in path.read_bytes() for path in others)


def test_a_key_typed_after_the_command_is_refused_and_not_kept(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat") as terminal:
        terminal.sees("/key use a real model")
        terminal.send("/key openai sk-typed-by-mistake")
        terminal.sees("do not type a key after the command", "▫ /key openai …")
        terminal.type(LEAVE)
        assert terminal.ends() == 0
    history = tmp_path / "antiphon" / "input.history"
    assert not history.exists() or "sk-typed" not in history.read_text()
