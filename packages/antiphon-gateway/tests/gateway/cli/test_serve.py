"""`antiphon serve | key | doctor`, run as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import main
from antiphon_gateway.access.client_keys import hash_key
from antiphon_gateway.ledger.database import open_operator_database
from providers.scripted_server import Received, Reply, ScriptedServer
from support.antiphon_process import AntiphonProcess, run_antiphon
from support.installed import needs_chat
from support.repository import ROOT
from support.waiting import free_port

KEY = "sk-a-real-secret-that-must-not-show"
CLEAN = {"PATH": os.environ["PATH"], "COLUMNS": "160", "ANTIPHON_STORE": os.devnull + "/no"}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {**CLEAN, "HOME": str(tmp_path), "ANTIPHON_STORE": str(tmp_path / "new" / "own.db")}


@pytest.fixture
def run(environ: dict[str, str], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str | Path, **variables: str) -> tuple[int, str, str]:
        done = run_antiphon(*map(str, arguments), text=True, env={**environ, **variables}, cwd=tmp_path)
        assert KEY not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    return run


Run = Callable[..., tuple[int, str, str]]


def config_for(address: str) -> str:
    return (
        f"[gateway]\nport = {free_port()}\nformat_port = 0\n"
        f'[[providers]]\nname = "mine"\nformat = "openai-chat"\nbase_url = "{address}"\nkeys = ["env:MINE"]\n'
        '[[models]]\nname = "*"\ntargets = ["mine/*"]\n'
    )


def test_check_prints_what_a_file_configures(run: Run, tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(config_for("http://127.0.0.1:9/v1"))
    code, out, err = run("serve", "--check", "--config", "antiphon.toml", "--port", "7999", "--host", "::1", MINE=KEY)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "antiphon.toml: ok",
        "  listens    http://[::1]:7999, format proxy on 0",
        "  clients    no keys; loopback only",
        "  provider   mine: openai-chat at http://127.0.0.1:9/v1, 1 key",
        "  model      * -> mine/*",
    ]


def test_check_refuses_with_every_problem(run: Run, tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(f'[gateway]\nprot = 1\n[[providers]]\nname = "openai"\nkeys = ["{KEY}"]\n')
    code, out, err = run("serve", "--check", "--config", "antiphon.toml")
    assert (code, out) == (1, "")
    head, *lines = err.splitlines()
    assert head == "antiphon: 2 problems in the configuration:"
    assert lines[0] == "  antiphon.toml:2: gateway.prot unknown key; did you mean port?"
    assert lines[1].startswith("  antiphon.toml:5: providers[0].keys[0] contains a literal key")
    # Serving refuses just as well.
    assert run("serve", "--config", "antiphon.toml") == (1, "", err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", "65536"),
        ("--port", "-1"),
        ("--port", "८"),
        ("--format-port", "x"),
        ("--workers", "0"),
        ("--workers", "9" * 5000),
        ("--log", "xml"),
        ("--nope",),
    ],
)
def test_invalid_arguments_are_refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["serve", *arguments])
    assert left.value.code == 2
    assert "usage: antiphon" in capsys.readouterr().err


def test_ports_of_the_command_line_are_checked_too(run: Run) -> None:
    code, _, err = run("serve", "--check", "--port", "7999", "--format-port", "7999")
    assert code == 1
    assert "the environment: gateway.format_port same as port" in err


def test_without_a_file_the_environment_is_served(run: Run) -> None:
    code, out, _ = run("serve", "--check")
    assert code == 0
    assert out.startswith("no configuration file; using offline/plain: not a language model")
    code, out, _ = run("serve", "--check", OPENAI_API_KEY=KEY, ANTIPHON_CLIENT_KEY=f"{KEY}2")
    assert out.startswith("no configuration file; using openai, openai-responses with API keys from the environment\n")
    assert "  clients    ANTIPHON_CLIENT_KEY\n" in out


def test_a_file_that_is_there_and_not_named_is_mentioned(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = run("serve", "--check")
    assert "is not read" not in out
    Path("antiphon.toml").write_text("")
    _, out, _ = run("serve", "--check")
    assert "; antiphon.toml in this folder is not read without --config\n" in out


def test_the_schema_is_json(run: Run) -> None:
    code, out, _ = run("serve", "--schema")
    assert code == 0
    assert json.loads(out)["$defs"]["GatewaySettings"]["properties"]["port"]["maximum"] == 65535


def answer_of(port: int, path: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"accept": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stderr is not None
    return iter(process.stderr.readline, "")


@needs_chat
@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_serves_reloads_and_stops(environ: dict[str, str], tmp_path: Path, workers: str) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('[[providers]]\nname = "offline"\n[[models]]\nname = "one"\ntargets = ["offline/plain"]\n')
    command = ("serve", "--config", str(file), "--port", "0", "--format-port", "0", "--workers", workers)
    process = AntiphonProcess(*command, stderr=subprocess.PIPE, text=True, env=environ)
    try:
        output = lines_of(process)
        port = int(
            next(found[1] for line in output if (found := re.search(r"listening on http://127.0.0.1:(\d+)", line)))
        )
        assert answer_of(port, "/healthz")[0] == 200
        assert [model["id"] for model in answer_of(port, "/v1/models")[1]["data"]] == ["one"]
        file.write_text(file.read_text().replace('"one"', '"two"'))
        deadline = time.monotonic() + 30
        while [model["id"] for model in answer_of(port, "/v1/models")[1]["data"]] != ["two"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        file.write_text("[gateway\n")
        assert next(line for line in output if "invalid configuration" in line)
        assert answer_of(port, "/healthz")[0] == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_new_key_and_the_lines_that_let_it_in(run: Run, tmp_path: Path) -> None:
    code, out, err = run("key", "new")
    key, *lines = out.splitlines()
    assert code == 0
    assert tomllib.loads("\n".join(lines)) == {"client_keys": [hash_key(key)]}
    assert key not in err
    _, out, _ = run("key", "new", "--name", 'Zoë\'s "laptop" \\')
    key, *lines = out.splitlines()
    (tmp_path / "antiphon.toml").write_text("\n".join(lines))
    assert tomllib.loads("\n".join(lines)) == {"keys": [{"name": 'Zoë\'s "laptop" \\', "key": hash_key(key)}]}
    assert run("serve", "--check", "--config", "antiphon.toml")[0] == 0
    for name in ("", " ", "a\nb"):
        assert run("key", "new", "--name", name)[0] == 1


def test_doctor_finds_all_well(run: Run, tmp_path: Path) -> None:
    def answer(received: Received) -> Reply:
        has_key = received.headers.get("authorization") == f"Bearer {KEY}"
        status = 404 if received.target != "/v1/models" else 200 if has_key else 401
        headers = {"Date": formatdate(usegmt=True)}
        return Reply(status=status, body=b'{"data": []}', content_type="application/json", headers=headers)

    with ScriptedServer(answer) as server:
        (tmp_path / "antiphon.toml").write_text(config_for(f"{server.url}/v1"))
        code, out, err = run("doctor", "--config", "antiphon.toml", MINE=KEY)
        seen = [(received.method, received.target, KEY in str(received.headers)) for received in server.received]
    assert (code, err) == (0, "")
    assert seen == [("GET", "/v1", False), ("GET", "/v1/models", True), ("GET", "/v1/models", False)]
    assert KEY not in out
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    checks = {what: (state, rest) for state, what, rest in lines}
    assert checks["config"] == ("ok", "antiphon.toml: ok")
    assert "key           mine: env:MINE holds sk-…show" in out
    assert checks["reachable"] == ("ok", f"mine: 127.0.0.1:{server.port} answers")
    assert "key tried     mine: env:MINE ok (200)" in out
    assert checks["clock"] == ("ok", "agrees with the providers'")
    assert checks["client"][0] == "warn"
    assert checks["port"][1].endswith("is free")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("reply", "said", "code"),
    [
        (
            Reply(status=401, body=b'{"error": {"message": "bad key " }}', content_type="application/json"),
            "fail  key tried     mine: env:MINE rejected (401): bad key; replace the key in env:MINE",
            1,
        ),
        (Reply(status=404), "warn  key tried     mine: env:MINE cannot be tried: no list of models at", 0),
        (Reply(status=0), "fail  key tried     mine: env:MINE unreachable: ", 1),
        (Reply(body=b"{}"), "ok    key tried     mine: env:MINE cannot be tried: the host lists its models without", 0),
        (Reply(status=500), "warn  key tried     mine: env:MINE answered 500", 0),
        (Reply(status=429), "ok    key tried     mine: env:MINE ok, but rate limited now (429)", 0),
    ],
)
def test_doctor_tries_each_key(run: Run, tmp_path: Path, reply: Reply, said: str, code: int) -> None:
    with ScriptedServer(lambda received: reply if received.target == "/v1/models" else Reply(status=404)) as server:
        (tmp_path / "antiphon.toml").write_text(config_for(f"{server.url}/v1"))
        done, out, _ = run("doctor", "--config", "antiphon.toml", MINE=KEY)
    assert said in out
    assert done == code
    assert KEY not in out


@pytest.mark.parametrize(
    ("status", "date", "state", "code"),
    [(200, 60.0, "warn", 0), (200, -3600.0, "fail", 1), (200, None, None, 0), (503, 60.0, None, 0)],
)
def test_doctor_compares_clocks(
    run: Run, tmp_path: Path, status: int, date: float | None, state: str | None, code: int
) -> None:
    headers = {} if date is None else {"Date": formatdate(time.time() + date, usegmt=True)}
    with ScriptedServer(Reply(status=status, headers=headers)) as server:
        (tmp_path / "antiphon.toml").write_text(config_for(server.url))
        done, out, _ = run("doctor", "--json", "--config", "antiphon.toml", MINE=KEY)
    found = {one["what"]: one for one in json.loads(out)}
    assert done == code
    assert found.get("clock", {}).get("state") == state
    assert found["reachable"]["state"] == ("warn" if status >= 500 else "ok")
    if date:
        assert state is None or ("slow" if date > 0 else "fast") in found["clock"]["said"]


def test_doctor_reports_problems_and_how_to_fix_them(run: Run, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "antiphon.toml").write_text(config_for(f"http://127.0.0.1:{port}"))
    code, out, _ = run("doctor", "--config", "antiphon.toml", MINE=KEY)
    assert code == 1
    assert f"fail  reachable     mine: cannot connect to 127.0.0.1:{port}" in out
    code, out, _ = run("doctor", "--offline", "--config", "antiphon.toml", MINE=KEY)
    assert code == 0
    assert "reachable" not in out
    code, out, _ = run("doctor", "--offline", "--config", "antiphon.toml")
    assert code == 1
    assert "fail  config        antiphon.toml:8: providers[0].keys[0] not usable: environment variable MINE" in out
    (tmp_path / "file").write_text("")
    code, out, _ = run("doctor", "--offline", ANTIPHON_STORE=str(tmp_path / "file" / "own.db"))
    assert code == 1
    assert "fail  store" in out


def test_doctor_looks_at_the_ledger(run: Run, tmp_path: Path, postgres: str) -> None:
    def looked(address: str, *options: str) -> tuple[int, str]:
        text = (
            f'[gateway]\nport = 0\nformat_port = 0\n[[providers]]\nname = "offline"\n[ledger]\naddress = "{address}"\n'
        )
        (tmp_path / "antiphon.toml").write_text(text)
        code, out, _ = run("doctor", *options, "--config", "antiphon.toml")
        (line,) = [line for line in out.splitlines() if line[6:].startswith("ledger ")]
        return code, line

    assert looked("new/ledger.db") == (0, f"ok    ledger        {tmp_path}/new/ledger.db can be written")
    assert not (tmp_path / "new").exists()
    (tmp_path / "notes.txt").write_text("not a ledger")
    code, line = looked("notes.txt")
    assert code == 1
    assert line.startswith("fail  ledger")
    code, line = looked(f"postgresql://gateway@127.0.0.1:{free_port()}/x")
    assert code == 1
    assert "does not answer" in line
    assert looked("postgresql://gateway@127.0.0.1:1/x", "--offline")[0] == 0
    assert looked(postgres) == (0, "ok    ledger        the server answers; the tables are made at the first start")
    open_operator_database(postgres).close()
    code, line = looked(postgres)
    assert code == 0
    assert line.endswith(" answers")


def test_doctor_looks_at_ports(run: Run, tmp_path: Path) -> None:
    config = '[gateway]\nport = {}\nformat_port = 0\n[[providers]]\nname = "offline"\n'
    with ScriptedServer(Reply(status=404, has_length=True)) as other_server:
        (tmp_path / "antiphon.toml").write_text(config.format(other_server.port))
        code, out, _ = run("doctor", "--config", "antiphon.toml")
    assert code == 1
    assert "cannot be listened on: Address already in use; choose another" in out
    with ScriptedServer(Reply(body=b"{}", content_type="application/json", has_length=True)) as gateway:
        (tmp_path / "antiphon.toml").write_text(config.format(gateway.port))
        code, out, _ = run("doctor", "--config", "antiphon.toml")
    assert code == 0
    assert "is served by a gateway already" in out
    assert gateway.received[0].target == "/healthz"


def test_doctor_warns_of_a_key_that_can_be_guessed(run: Run) -> None:
    code, out, _ = run("doctor", "--offline", "--json", ANTIPHON_CLIENT_KEY="short")
    assert code == 0
    assert "the key in env:ANTIPHON_CLIENT_KEY is short enough to guess" in out


def test_the_command_lines_of_the_unit_and_the_container_parse(run: Run, tmp_path: Path) -> None:
    unit = (ROOT / "deploy" / "antiphon.service").read_text()
    started = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    container = (ROOT / "deploy" / "Containerfile").read_text()
    command = re.search(r"^CMD (\[.*\])$", container, re.MULTILINE)
    assert started is not None
    assert command is not None
    for arguments in (shlex.split(started[1])[1:], json.loads(command[1])):
        there = [str(ROOT / "deploy/antiphon.toml") if word.endswith(".toml") else word for word in arguments]
        keys = {"ANTIPHON_CLIENT_KEY": KEY, "ANTHROPIC_API_KEY": f"{KEY}1", "OPENAI_API_KEY": f"{KEY}2"}
        assert run(*there, "--check", **keys)[0] == 0
    assert "DynamicUser=yes" in unit
    assert "LoadCredential=" in unit
    assert re.search(r"^USER (?!0|root)", container, re.MULTILINE)
    assert "/healthz" in container
