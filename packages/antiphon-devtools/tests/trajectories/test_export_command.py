"""`antiphon export --as openai-finetune|sharegpt|atif`: what is printed, what is reported, which mistakes are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import atif
import msgspec
import pytest

from antiphon.cli import main
from antiphon.history import SqliteStore
from antiphon.history.export import lines_of
from trajectories.example_history import example_history


class Store:
    """A store with the example and a fork of it, and the command line over it."""

    def __init__(self, path: Path, capture: pytest.CaptureFixture[bytes]) -> None:
        self.path = path
        self._capture = capture
        with SqliteStore(path) as store:
            self.id = store.import_lines(lines_of(example_history().entries, "Rain"), source="test").id
            self.fork = store.fork(self.id, 5).id

    def export(self, *arguments: str | Path) -> tuple[int, list[dict[str, Any]], str]:
        code = main(["export", "--store", str(self.path), *map(str, arguments)])
        printed = self._capture.readouterr()
        return code, [msgspec.json.decode(line) for line in printed.out.splitlines()], printed.err.decode()


@pytest.fixture
def store(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Store:
    return Store(tmp_path / "chats.db", capfdbinary)


def test_a_conversation_is_one_line_and_losses_go_to_standard_error(store: Store) -> None:
    code, lines, errors = store.export(store.id, "--as", "atif", "--finished")
    assert code == 0
    (document,) = lines
    atif.Trajectory.model_validate(document)
    assert document["extra"]["title"] == "Rain"
    assert f"{store.id}: turn 4: left out: not finished (interrupted)" in errors
    assert f"{store.id}: turn 1: lost image: it is not a file; --media FOLDER writes it to one" in errors


def test_history_export_is_the_same_command(store: Store, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    _, expected, _ = store.export(store.id, "--as", "sharegpt")
    assert main(["history", "--store", str(store.path), "export", store.id, "--as", "sharegpt"]) == 0
    assert msgspec.json.decode(capfdbinary.readouterr().out) == expected[0]


def test_branches_and_forks_are_lines(store: Store) -> None:
    _, lines, _ = store.export(store.id, "--as", "openai-finetune", "--branch", "all", "--forks")
    weights = [[m.get("weight", 1) for m in line["messages"] if m["role"] == "assistant"] for line in lines]
    assert weights[0] == [1] * len(weights[0])
    assert weights[1:] == [[0, 0, 1], [0, 0]]


def test_conversations_are_chosen_by_id_and_tag_or_all(store: Store) -> None:
    assert len(store.export(store.id, store.fork, "--as", "sharegpt")[1]) == 2
    assert len(store.export("--all", "--as", "sharegpt")[1]) == 2
    assert store.export("--tag", "weather", "--as", "sharegpt")[1] == []


def test_the_file_has_what_would_be_printed(store: Store, tmp_path: Path) -> None:
    _, expected, _ = store.export("--all", "--as", "openai-finetune", "--model", "anthropic/*")
    target = tmp_path / "train.jsonl"
    assert store.export("--all", "--as", "openai-finetune", "--model", "anthropic/*", "-o", target)[:2] == (0, [])
    assert [msgspec.json.decode(line) for line in target.read_bytes().splitlines()] == expected
    assert target.stat().st_mode & 0o077 == 0


def test_definitions_come_from_json_and_python(store: Store, tmp_path: Path) -> None:
    listed = [{"type": "function", "function": {"name": "weather", "description": "From JSON.", "parameters": {}}}]
    (tmp_path / "tools.json").write_bytes(msgspec.json.encode(listed))
    anthropic = {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 1,
        "tools": [{"name": "weather", "description": "From a body.", "input_schema": {"type": "object"}}],
    }
    (tmp_path / "body.json").write_bytes(msgspec.json.encode(anthropic))
    (tmp_path / "tools.py").write_text(
        'import antiphon\n\n@antiphon.tool\ndef weather(city: str) -> str:\n    "From Python."\n    return city\n'
    )
    described = []
    for name in ("tools.json", "body.json", "tools.py"):
        _, (example,), _ = store.export(store.id, "--as", "openai-finetune", "--tools", tmp_path / name)
        described.append(example["tools"][0]["function"]["description"])
    assert described == ["From JSON.", "From a body.", "From Python."]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--as", "atif"], 2, "give the ID of a conversation, or --all, or --tag TAG"),
        ([], 2, "give the ID of a conversation"),
        (["a", "b"], 2, "only openai-finetune, sharegpt, atif take several conversations"),
        (["a", "--finished"], 2, "--finished needs --as openai-finetune, sharegpt, atif"),
        (["a", "--as", "anthropic", "--branch", "all"], 2, "--branch needs --as openai-finetune, sharegpt, atif"),
        (["a", "--as", "claude-code", "--media", "x"], 2, "--media needs --as openai-finetune, sharegpt, atif"),
        (["last", "--as", "atif", "--branch", "main"], 1, "unknown branch 'main'; expected current, abandoned, all"),
        (["last", "--as", "atif", "--branch", "99"], 1, "has no version 99; its versions are 1 to 18"),
        (["zzzz", "--as", "atif"], 1, "zzzz"),
        (["last", "--as", "atif", "--tools", "missing.json"], 1, "--tools missing.json: No such file or directory"),
    ],
)
def test_mistakes_are_refused_in_one_line(store: Store, arguments: list[str], code: int, reason: str) -> None:
    found, lines, errors = store.export(*arguments)
    assert (found, lines) == (code, [])
    assert errors.startswith("antiphon: ")
    assert reason in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[", "not valid JSON"),
        ('"text"', "expected a list of tools or a request body, not str"),
        ("[]", "no tools that are functions"),
    ],
)
def test_a_file_without_definitions_is_refused(store: Store, tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "tools.json").write_text(content)
    code, _, errors = store.export("last", "--as", "atif", "--tools", tmp_path / "tools.json")
    assert code == 1
    assert reason in errors
