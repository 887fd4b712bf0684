"""`antiphon worker` and `antiphon runs`, run as a user runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from antiphon.cli import main
from antiphon.runs import Runs
from runs.workers import Place, WorkerProcess, placed
from support.installed import needs_chat
from support.waiting import until


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = placed(tmp_path)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTIPHON_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    place.open().close()
    return place


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says that is done."""
    code = main(["runs", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Why a command is not done."""
    code = main(["runs", *arguments])
    captured = capsys.readouterr()
    assert code == 1
    assert captured.err.startswith("antiphon: ")
    return captured.out + captured.err


def test_invalid_title_is_rejected(here: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """An argument with an invalid UTF-8 byte arrives as a lone surrogate."""
    title = os.fsdecode(b"rain \xff")
    assert "the title is not Unicode (a lone surrogate at character 5)" in refused(
        capsys, "submit", "--title", title, "Is it raining?"
    )
    assert "no run '\\udcff\\udcff\\udcff\\udcff'" in refused(capsys, "show", os.fsdecode(b"\xff\xff\xff\xff"))
    assert printed(capsys, "list") == "no runs\n"


@needs_chat
def test_worker_without_app_runs_chat(here: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "list") == "no runs\n"
    run = printed(capsys, "submit", "Find out what IELTS 7 needs, then make me a 3 month plan.").strip()
    assert "waiting" in printed(capsys, "list", "--state", "waiting")
    code, _, log = here.antiphon("worker", "--once")
    assert code == 0
    assert "offline/plain" in log
    assert f"{run} (chat): done, answered" in log
    listed = printed(capsys, "list")
    assert f"{run}  done   chat" in listed
    assert listed.splitlines()[-1] == "1 done"
    shown = printed(capsys, "show", run[:12])
    assert shown.splitlines()[:3] == [f"{run}  done", "  why           answered", "  kind          chat, code 0"]
    followed = printed(capsys, "follow", "last")
    assert "→ search_web" in followed
    assert "→ create_plan" in followed
    assert followed.endswith("done: answered\n")
    lines = printed(capsys, "follow", run, "--json").splitlines()
    assert msgspec.json.decode(lines[0])["kind"] == "model_input"
    (facts,) = msgspec.json.decode(printed(capsys, "--store", here.store, "list", "--json"))
    assert (facts["id"], facts["standing"]) == (run, "done")
    again = printed(capsys, "submit", "Thank you.", "--conversation", facts["conversation"], "--json")
    assert msgspec.json.decode(again)["conversation"] == facts["conversation"]


@needs_chat
def test_unknown_model_fails_run(here: Place, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["model=antropic/claude", "depth=3", "deep=" + "[" * 5_000]
    printed(capsys, "submit", "Hello?", *(word for option in options for word in ("--option", option)))
    assert here.antiphon("worker", "--once")[0] == 0
    shown = printed(capsys, "show", "last")
    assert "failed" in shown
    assert "antropic/claude" in shown
    assert '"depth":3' in shown
    assert "is queued again" in printed(capsys, "retry", "last")


def test_cli_approves_call(here: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with WorkerProcess(here), here.open() as store:
        run = printed(capsys, "submit", "Fly.", "--kind", "trip", "--option", "to=Oslo").strip()
        until(lambda: store.runs.get(run).state == "suspended")
        shown = printed(capsys, "show", run)
        assert re.search(r'call_1_1_1 +book_flight +\{"to": ?"Oslo"\}', shown)
        assert msgspec.json.decode(printed(capsys, "show", run, "--json"))["pending"][0]["tool_name"] == "book_flight"
        assert "is not pending approval" in refused(capsys, "approve", run, "call_of_nobody")
        assert "open calls: call_1_1_1 (book_flight)" in refused(capsys, "settle", run, "call_of_nobody", "Booked.")
        edit = printed(capsys, "approve", run, "--edit", '{"to": "Bari"}', "--reason", "warmer")
        assert edit == f"run {run} continues\n"
        assert "Your flight is booked." in printed(capsys, "follow", run)
        assert "no pending calls" in refused(capsys, "approve", run)
        assert "only failed runs" in refused(capsys, "retry", run)
        assert "is done already" in refused(capsys, "cancel", run)


def test_submit_with_wait_prints_answer(here: Place) -> None:
    with WorkerProcess(here):
        (here.folder / "back").touch()
        assert here.antiphon("runs", "submit", "-", "--kind", "away", "--wait", given="Hello?") == (
            0,
            "Back again.\n",
            "",
        )
        code, output, why = here.antiphon("runs", "submit", "Fly.", "--kind", "trip", "--wait")
        assert (code, output) == (1, "")
        assert "antiphon runs approve" in why
        code, output, _ = here.antiphon("runs", "submit", "Hello?", "--kind", "away", "--wait", "--json")
        assert (code, msgspec.json.decode(output)["answer"]) == (0, "Back again.")


def test_ctrl_c_stops_follow_but_not_run(here: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with WorkerProcess(here), here.open() as store:
        run = Runs(store).submit("Go.", kind="work", options={"plan": [["hold_put"]]})
        command = [sys.executable, "-m", "antiphon", "runs", "follow", run.id]
        with subprocess.Popen(command, env=here.environment, stdout=-1, stderr=-1, text=True) as following:
            assert following.stdout is not None
            assert following.stderr is not None
            try:
                while "hold_put (" not in (line := following.stdout.readline()):
                    assert line, "it ended before the call began"
                following.send_signal(signal.SIGINT)
                assert following.wait(30) == 130
                assert "continues" in following.stderr.read()
            finally:
                following.kill()
        assert "is being cancelled" in printed(capsys, "cancel", run.id, "--reason", "enough")
        until(lambda: store.runs.get(run.id).state == "cancelled")
        waiting = printed(capsys, "submit", "Hello?", "--kind", "nobodys").strip()
        assert printed(capsys, "cancel", waiting) == f"run {waiting} is cancelled\n"


def test_follow_in_background_ignores_sigint(here: Place) -> None:
    """A script's background job starts with SIGINT ignored, so a Ctrl-C meant for the script does not end it."""
    with WorkerProcess(here), here.open() as store:
        run = Runs(store).submit("Go.", kind="work", options={"plan": [["hold_put"]]})
        command = [sys.executable, "-m", "antiphon", "runs", "follow", run.id]
        with subprocess.Popen(
            command,
            env=here.environment,
            stdout=-1,
            stderr=-1,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        ) as following:
            try:
                assert following.stdout is not None
                while "hold_put (" not in (line := following.stdout.readline()):
                    assert line, "it ended before the call began"
                following.send_signal(signal.SIGINT)
                Runs(store).cancel(run.id, "enough")
                out, err = following.communicate(timeout=30)
            finally:
                following.kill()
        assert (following.returncode, "continues" in err) == (1, False)
        assert "is cancelled" in err, out + err


def test_submit_creates_default_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ANTIPHON_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert "there is no store" in refused(capsys, "list")
    run = printed(capsys, "submit", "Hello?").strip()
    assert run in printed(capsys, "list")
    assert (tmp_path / "data" / "antiphon" / "history.db").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["submit", " "], "empty message"),
        (["submit", "Hello?", "--conversation", "nobodys"], "no conversation 'nobodys'"),
        (["submit", "Hello?", "--max-waiting", "0"], "try again later"),
        (["show", "nobodys"], "no run 'nobodys'"),
        (["follow", "last"], "no run 'last'"),
        (["cancel", "nobodys"], "no run 'nobodys'"),
        (["approve", "nobodys"], "no run 'nobodys'"),
        (["retry", "nobodys"], "no run 'nobodys'"),
    ],
)
def test_cli_errors_name_the_problem(
    here: Place, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert why in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--app", "no_colon"], "module:name"),
        (["--app", "no_such_module:registry"], "No module named"),
        (["--app", "runs.sample_runs:trace"], "is a function"),
        (["--app", "runs.sample_runs:nothing"], "is not defined"),
        (["--app", "runs.sample_runs:registry", "--ask"], "--ask"),
        (["--store", "chats.db/no/folder.db", "--app", "runs.sample_runs:registry"], "cannot create the folder"),
        (
            ["--store", "postgresql://me:not-shown@127.0.0.1:1/x", "--app", "runs.sample_runs:registry"],
            "Is the server running?",
        ),
    ],
)
def test_worker_start_errors(here: Place, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str) -> None:
    assert main(["worker", "--once", *arguments]) == 1
    output = capsys.readouterr().err
    assert why in output
    assert "not-shown" not in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["worker", "--slots", "0"],
        ["worker", "--lease", "0"],
        ["worker", "--grace", "-1"],
        ["worker", "--limit", "openai"],
        ["runs", "submit", "Hi.", "--option", "novalue"],
        ["runs", "list", "--state", "dreaming"],
        ["runs"],
    ],
)
def test_invalid_arguments_exit_with_2(here: Place, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
