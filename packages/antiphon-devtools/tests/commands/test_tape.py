"""`antiphon serve --record | --replay` and `antiphon tape`, run as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.cli import main, terminal
from antiphon_devtools.cassettes.tape import Exchange, RecordedAnswer, RecordedRequest, Tape
from gateway.rig import Client
from gateway.served import connected, served_gateway
from gateway.strict_upstream import StrictUpstream

BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "今天下雨吗？"}]}


def config_of(upstream: StrictUpstream) -> str:
    return (
        f'[[providers]]\nname = "openai"\nbase_url = "{upstream.base_url}"\nkeys = ["env:MINE"]\n'
        '[[models]]\nname = "*"\ntargets = ["openai/*"]\n[ledger]\nenabled = false\n'
    )


def ask(client: Client, text: str = "") -> str:
    got = client.post("/v1/chat/completions", {**BODY, "user": text} if text else BODY)
    content: str = got.json["choices"][0]["message"]["content"]
    return content


def test_a_killed_recording_is_replayed_without_a_provider(tmp_path: Path) -> None:
    with StrictUpstream("openai-chat", ["k"]) as upstream:
        config = tmp_path / "antiphon.toml"
        config.write_text(config_of(upstream))
        with served_gateway(config, "--record", "tape.db", environ={"MINE": "k"}) as gateway:
            with connected(gateway.port) as client:
                live = [ask(client), ask(client, "again")]
            assert "antiphon: recording to tape.db\n" in gateway.log
            gateway.process.send_signal(signal.SIGKILL)
            gateway.process.wait(20)
        assert len(upstream.received) == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    with served_gateway(empty, "--replay", str(tmp_path / "tape.db"), environ={}) as gateway:
        with connected(gateway.port) as client:
            assert [ask(client), ask(client, "again")] == live
            assert client.get("/readyz").status == 200
            missed = client.post("/v1/chat/completions", {**BODY, "user": "other"})
            assert 'user: recorded "again", sent "other"' in missed.json["error"]["message"]
        assert f"antiphon: replaying {tmp_path}/tape.db: 2 recorded exchanges\n" in gateway.log
        assert gateway.stop() == 0
    assert sorted(os.listdir(empty)) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--record", "a", "--replay", "b"], "exclude each other"),
        (["--replay", "b", "--config", "c"], "leave out --config"),
        (["--replay", "b", "--workers", "2"], "leave out --workers"),
        (["--replay", "b", "--redact", "x"], "--redact needs --record"),
        (["--redact", "x"], "--redact needs --record TAPE"),
        (["--replay-once"], "--replay-once needs --replay TAPE"),
        (["--record", "a", "--match", "loose"], "--match needs --replay TAPE"),
        (["--replay", "b", "--ignore", "a..b"], "is not a path of a field"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *arguments]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--replay-speed", "0"], ["--replay-speed", "fast"], ["--match", "x"]])
def test_values_that_are_not_understood(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["serve", "--replay", "b", *arguments])
    assert left.value.code == 2
    assert "usage: antiphon" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--record", "--replay"])
def test_a_file_that_is_not_a_cassette_is_refused_before_the_start(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "text").write_text("no tape " * 1000)
    assert main(["serve", option, str(tmp_path / "text")]) == 1
    assert "not a tape: " in capsys.readouterr().err
    assert main(["serve", option, str(tmp_path / "no" / "tape.db")]) == 1
    assert "tape" in capsys.readouterr().err


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "tape.db"
    opened = Tape(path, records=True)
    request = RecordedRequest(
        at=1_763_300_000_000_000,
        method="POST",
        path="/v1/chat/completions",
        query={"a": "b"},
        headers={"authorization": "[removed]"},
        body=json.dumps(BODY, ensure_ascii=False).encode(),
    )
    stream = RecordedAnswer(
        status=200,
        head_after=250_000,
        is_stream=True,
        is_cut=True,
        pieces=[(0, b"data: 1\n\n"), (1_500_000, b"data: \x1b[2J\n\n")],
    )
    opened.add(Exchange(request, stream))
    opened.add(
        Exchange(
            RecordedRequest(at=1_763_300_000_000_000, method="POST", path="/v1beta/models/gemini-x:countTokens"),
            RecordedAnswer(status=404, pieces=[(0, b'{"error":"x"}')]),
        )
    )
    opened.close()
    return path


def test_exchanges_are_listed_shown_and_deleted(
    tape: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["tape", "list", str(tape)]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["NUMBER", "RECORDED", "REQUEST", "MODEL", "STATUS", "ANSWER", "TOOK"]
    assert first.split()[3:] == ["POST", "/v1/chat/completions", "gpt-4o", "200", "cut", "2", "pieces", "1.750", "s"]
    assert second.split()[3:] == [
        "POST",
        "/v1beta/models/gemini-x:countTokens",
        "gemini-x",
        "404",
        "whole",
        "0.000",
        "s",
    ]
    assert main(["tape", "show", str(tape), "1"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "POST /v1/chat/completions?a=b",
        "  authorization: [removed]",
        '"content": "今天下雨吗？"',
        "200, stream of 2 pieces, 1.750 s, cut",
        "     1.500  data: ␛[2J",
    ):
        assert text in shown
    assert main(["tape", "show", str(tape), "--json"]) == 0
    one, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["request_body"], one["pieces"][0], other["request_body"]) == (BODY, [0.0, "data: 1\n\n"], None)
    assert main(["tape", "list", "--json", str(tape)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["pieces"] == 2
    assert main(["tape", "delete", str(tape), "2", "2"]) == 0
    assert capsys.readouterr().out == "deleted exchange 2\n"
    assert main(["tape", "delete", str(tape), "2"]) == 1
    assert re.search(rf"has no exchange 2; see `\S*antiphon tape list {re.escape(str(tape))}`", capsys.readouterr().err)
    assert main(["tape", "delete", str(tape), "1"]) == 0
    assert main(["tape", "list", str(tape)]) == 0
    assert "has no exchanges" in capsys.readouterr().out


def test_times_of_a_stream_are_dim_on_a_terminal(
    tape: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "use_color", lambda: True)
    assert main(["tape", "show", str(tape), "1"]) == 0
    assert "  \x1b[2m   1.500\x1b[0m  data: ␛[2J" in capsys.readouterr().out


def test_mistakes_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tape", "list", str(tmp_path / "none.db")]) == 1
    assert "there is no tape at" in capsys.readouterr().err
    for arguments in ([], ["show"], ["delete", "t"], ["show", "t", "x"], ["rewind", "t"]):
        with pytest.raises(SystemExit) as left:
            main(["tape", *arguments])
        assert left.value.code == 2


def test_a_closed_pipe_ends_quietly(tape: Path) -> None:
    opened = Tape(tape, records=True)
    (exchange, _) = opened.exchanges()
    for _ in range(2000):
        opened.add(exchange)
    opened.close()
    command = f"{sys.executable} -m antiphon tape list {tape} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_the_modules_of_tapes_are_loaded_only_when_they_are_used() -> None:
    code = "import sys; from antiphon.cli import main; main(['serve', '--check'])"
    code += "; print([name for name in sys.modules if 'tapes' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
