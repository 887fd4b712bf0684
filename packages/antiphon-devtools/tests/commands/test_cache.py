"""`antiphon cache`: files of requests, stored and exported conversations, and what it says to bad input."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon as ap
from antiphon.cli import main
from antiphon.history import EntryMetadata, ModelOutputEntry, Origin
from antiphon.history.location import open_location
from antiphon.parts import Text, TokenUsage
from antiphon_devtools.cassettes.tape import Exchange, RecordedAnswer, RecordedRequest, Tape

RULES = "Answer in one sentence, and name the source of every number. " * 300
CLAUDE = Origin("anthropic", "anthropic", "claude-sonnet-5")


def body(*texts: str, system: str = RULES) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {
        "model": "claude-sonnet-5",
        "max_tokens": 9,
        "system": system,
        "cache_control": {"type": "ephemeral"},
        "messages": messages,
    }


@pytest.fixture
def requests(tmp_path: Path) -> str:
    path = tmp_path / "requests.jsonl"
    bodies = [
        body("Hi.", system="It is 10:01. " + RULES),
        body("Hi.", "Yes?", "你好\x1b[31m", system="It is 10:01. " + RULES),
        body("Hi.", "Yes?", "你好\x1b[31m", "Go on.", "And?", system="It is 10:07. " + RULES),
    ]
    path.write_bytes(b"\n".join(map(msgspec.json.encode, bodies)))
    return str(path)


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with a conversation that changes its model once, and its instruction once."""
    place = str(tmp_path / "history.db")
    with open_location(place) as opened:
        history = opened.create("A talk")
        history.set_system_instruction(RULES)
        for number, origin in enumerate([CLAUDE, CLAUDE, Origin("openai", "openai-chat", "gpt-5.5")]):
            history.append(ap.ModelInputEntry.of(f"Question {number}?"))
            usage = TokenUsage(prompt_tokens=5_000 + number, completion_tokens=2)
            history.append(ModelOutputEntry((Text("An answer."),), origin=origin, metadata=EntryMetadata(usage=usage)))
    return place


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]


def test_the_table_names_the_field_and_the_loss(
    requests: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["cache", requests]) == 0
    shown = capsys.readouterr().out
    head, *rows = shown.splitlines()[:4]
    assert head.split() == ["#", "MODEL", "PROMPT", "PREDICTED", "CACHED", "LOST", "COST", "WHY"]
    assert rows[1].endswith("continues the request before")
    assert rows[2].endswith("system changed at byte 10")
    assert "$0.0" in rows[2]
    assert "first difference: byte" in shown
    assert '"It is 10:07. Answer' in shown
    assert "1 lost" in shown
    assert "\x1b" not in shown


def test_json_has_one_object_per_request(requests: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", requests, "--json"]) == 0
    first, second, third = lines_of(capsys)
    assert [one["verdict"] for one in (first, second, third)] == ["first", "hit", "changed"]
    assert third["difference"]["path"] == "system"
    assert third["difference"]["offset"] == 10
    assert third["lost_tokens"] > 2_000
    assert float(third["lost_usd"]) > 0
    assert third["advice"]


def test_standard_input(requests: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(requests).read_bytes())))
    assert main(["cache", "-", "--json"]) == 0
    assert lines_of(capsys)[2]["where"] == "standard input, line 3"


def test_a_stored_conversation_as_it_was_sent(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "last", "--store", store, "--json"]) == 0
    first, second, third = lines_of(capsys)
    assert [first["where"], first["format"], first["prompt_tokens"]] == ["entry 3", "anthropic", 5_000]
    assert second["verdict"] == "no_breakpoints"
    assert second["lost_tokens"] > 4_000
    assert third["format"] == "openai-chat"
    assert third["difference"]["path"] == "model"


def test_the_model_shown_is_the_one_that_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "history.db")
    chat = ap.Conversation("offline/plain", store=place)
    ap.ToolLoop(chat).run_sync("Hello?")
    chat.close()
    assert main(["cache", "last", "--store", place, "--json"]) == 0
    (one,) = lines_of(capsys)
    answer = chat.turn.output
    assert answer is not None
    assert answer.origin is not None
    assert (one["model"], one["format"]) == (answer.origin.model, "openai-chat")


def test_a_stored_conversation_in_another_format(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "last", "--store", store, "--format", "openai-responses", "--json"]) == 0
    verdicts = [one["verdict"] for one in lines_of(capsys)]
    assert verdicts == ["first", "hit", "hit"]


def test_an_exported_conversation(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported = str(tmp_path / "talk.jsonl")
    assert main(["history", "export", "last", "--store", store, "-o", exported]) == 0
    assert main(["cache", exported, "--json"]) == 0
    assert len(lines_of(capsys)) == 3


def test_a_tape_of_a_gateway(requests: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Yes."}], "usage": {"input_tokens": 4_000, "output_tokens": 2},
    }  # fmt: skip
    path = str(tmp_path / "tape.db")
    tape = Tape(path, records=True)
    for number, line in reversed(list(enumerate(Path(requests).read_bytes().splitlines()))):
        request = RecordedRequest(method="POST", path="/v1/messages", at=number * 1_000_000, body=line)
        tape.add(Exchange(request, RecordedAnswer(status=200, pieces=[(0, msgspec.json.encode(answer))])))
    tape.add(Exchange(RecordedRequest(method="GET", path="/v1/models"), RecordedAnswer(status=200)))
    tape.close()
    assert main(["cache", path, "--json"]) == 0
    first, second, third = lines_of(capsys)
    assert (first["where"], first["prompt_tokens"]) == (f"{path}, exchange 3", 4_000)
    assert [one["verdict"] for one in (first, second, third)] == ["first", "missed", "changed"]


def test_prices_of_a_configuration(requests: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "antiphon.toml"
    config.write_text('[[prices]]\nmodel = "claude-*"\ninput = 1000\ncache_read = 0\noutput = 1\n')
    assert main(["cache", requests, "--json", "--config", str(config)]) == 0
    third = lines_of(capsys)[2]
    assert float(third["lost_usd"]) == third["lost_tokens"] / 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl"], "cannot read nowhere.jsonl: no such file"),
        ([str(Path(__file__).parent)], "Is a directory"),
        ([__file__], "line 1: not valid JSON"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_ids_stores_and_empty_conversations(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "zzzzzz", "--store", store]) == 2
    assert "zzzzzz" in capsys.readouterr().err
    assert main(["cache", store]) == 2
    assert "antiphon cache ID --store" in capsys.readouterr().err
    with open_location(store) as opened:
        opened.create("Empty")
    assert main(["cache", "last", "--store", store]) == 2
    assert "no model has answered in this conversation yet" in capsys.readouterr().err
