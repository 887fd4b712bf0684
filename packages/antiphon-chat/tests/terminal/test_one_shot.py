"""`antiphon chat -p` and pipes: words in, words out, and an exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from antiphon.history import ModelInputEntry, SqliteStore
from antiphon.parts import Document, Text
from providers.scripted_server import Received, Reply, ScriptedServer
from support.antiphon_process import AntiphonProcess, run_antiphon
from support.terminal import environment_of
from support.waiting import until
from terminal.stored_chat import inputs, kept, outputs, streamed

NOTHING: Mapping[str, str] = MappingProxyType({})


def antiphon(
    place: Path, *arguments: str, given: bytes = b"", environment: Mapping[str, str] = NOTHING
) -> tuple[int, str, str]:
    run = run_antiphon(
        *("chat", *arguments), input=given, env=environment_of(place, environment), cwd=place, timeout=60
    )
    assert b"Traceback" not in run.stderr
    return run.returncode, run.stdout.decode(), run.stderr.decode()


def model_at(server: ScriptedServer) -> dict[str, str]:
    return {"OPENAI_API_KEY": "sk-secret-1", "OPENAI_BASE_URL": server.url, "ANTIPHON_MODEL": "openai/gpt-test"}


def test_only_the_answer_is_written_to_a_pipe(tmp_path: Path) -> None:
    code, out, err = antiphon(tmp_path, "-p", "find IELTS tips, then make me a plan")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert out.endswith("\n")
    assert "I call `search_web`: IELTS tips\n\nI call `create_plan`" in out
    assert "I made the plan “IELTS tips: 4-week plan” with 6 tasks" in out
    code, out, _ = antiphon(tmp_path, "--resume", "-p", "use list_plans")
    assert code == 0
    assert "IELTS tips: 4-week plan" in out
    assert inputs(kept(tmp_path)) == ["find IELTS tips, then make me a plan", "use list_plans"]


def test_piped_input_is_added_to_the_message(tmp_path: Path) -> None:
    with ScriptedServer(Reply(body=streamed("It is ", "short. \x1b[1m"))) as server:
        code, out, err = antiphon(tmp_path, "-p", "sum up", given="长文 of mine".encode(), environment=model_at(server))
        assert (code, out, err) == (0, "It is short. \x1b[1m\n", "")  # a pipe gets the exact text
        assert "长文 of mine" in server.received[0].body.decode()
        code, out, _ = antiphon(tmp_path, given=b"just this", environment=model_at(server))
        assert code == 0
    with SqliteStore(tmp_path / "antiphon" / "history.db") as store:
        questions = [next(iter(store.open(info.id).entries)) for info in reversed(store.list())]
    assert [entry.content for entry in questions if isinstance(entry, ModelInputEntry)] == [
        (Text("sum up"), Document("text/plain", text="长文 of mine", name="standard input")),
        (Text("just this"),),
    ]


def test_events_as_json_lines(tmp_path: Path) -> None:
    code, out, err = antiphon(tmp_path, "-p", "find tea", "--json")
    events = [msgspec.json.decode(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [events[0]["type"], events[-1]["type"]] == ["EntryAppended", "LoopFinished"]
    assert {"TextDelta", "ToolCallStarted", "ToolCallFinished", "RoundUsage"} < {event["type"] for event in events}
    assert "".join(event["text"] for event in events if event["type"] == "TextDelta").endswith(events[-1]["text"])


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["-p", "hi", "-m", "openia/gpt-5.5"], {}, "unknown model 'openia/gpt-5.5'; did you mean openai/gpt-5.5"),
        (["-p", "hi", "-m", "openai/gpt-5.5"], {}, "openai/gpt-5.5 needs a key: set OPENAI_API_KEY"),
        (["-p", "hi", "--folder", "nowhere"], {}, "no folder nowhere; give an existing one with --folder"),
        (["-p", "hi", "--resume", "nothing"], {}, "no conversation"),
        (["-p", "hi", "--store", "/proc/none/chats.db"], {}, "cannot create the folder"),
        (["-p", "  "], {}, "empty message"),
        (
            ["-p", "hi", "-m", "openai/gpt-5.5"],
            {"OPENAI_API_KEY": "sk-secret-1", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
            "Check the network connection. Try again, or choose another model with --model.",
        ),
        (
            ["-p", "make me a plan to learn Spanish", "--ask"],
            {},
            "antiphon chat --resume",
        ),
    ],
)
def test_impossible_requests_get_a_one_line_error(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], message: str
) -> None:
    code, _, err = antiphon(tmp_path, *arguments, environment=environment)
    assert code == 1
    assert message in err
    assert err.startswith("antiphon: ")
    assert err.count("\n") == 1
    assert "sk-secret" not in err


def test_ctrl_c_exits_with_130_and_keeps_the_partial_answer(tmp_path: Path) -> None:
    body = streamed("Some words", " and more")
    with ScriptedServer(Reply(body=body[: body.index(b" and")], hangs=True)) as server:
        process = AntiphonProcess(
            *("chat", "-p", "talk"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment_of(tmp_path, model_at(server)),
        )
        assert process.stdout is not None
        assert process.stdout.read(10) == b"Some words"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (130, b"\n", b"")
        assert server.gone.wait(10)
    assert outputs(kept(tmp_path)) == ["Some words"]


def test_a_second_ctrl_c_exits_immediately_without_a_traceback(tmp_path: Path) -> None:
    body = streamed("Some words", " and more")
    with ScriptedServer(Reply(body=body[: body.index(b" and")], hangs=True)) as server:
        for _ in range(5):  # the second one may come at any moment of what the first one does
            process = AntiphonProcess(
                *("chat", "-p", "talk"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment_of(tmp_path, model_at(server)),
            )
            assert process.stdout is not None
            assert process.stdout.read(10) == b"Some words"
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
            assert process.returncode in (130, -signal.SIGINT)
            assert err == b""


def test_a_background_job_of_a_script_ignores_sigint(tmp_path: Path) -> None:
    go_on = threading.Event()
    with ScriptedServer(Reply(body=streamed("All of it."), gate=go_on)) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", "chat", "-p", "talk"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment_of(tmp_path, model_at(server)),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        until(lambda: bool(server.received))
        process.send_signal(signal.SIGINT)
        go_on.set()
        assert process.communicate(timeout=30) == (b"All of it.\n", b"")
        assert process.returncode == 0


def test_a_response_without_text_is_an_error_with_its_reason(tmp_path: Path) -> None:
    thought = streamed(reasoning="I think, and think.").replace(b'"stop"', b'"length"')
    with ScriptedServer(Reply(body=thought)) as server:
        for arguments in (("-p", "talk"), ("-p", "talk", "--json")):
            code, out, err = antiphon(tmp_path, *arguments, environment=model_at(server))
            assert code == 1
            assert err.startswith("antiphon: no answer: the model's last response has no text (stop reason: "), err
            assert err.count("\n") == 1
            assert ("--json" in arguments) == bool(out)


def test_an_end_by_a_bound_is_stated(tmp_path: Path) -> None:
    """The reason is on standard error, and the exit code says whether there is an answer."""
    call = {"index": 0, "id": "c1", "function": {"name": "list_plans", "arguments": "{}"}}
    delta = {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    calling = b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode(delta)

    def answer(words: bytes) -> Callable[[Received], Reply]:
        return lambda request: Reply(body=calling if b'"tool_choice":"none"' not in request.body else words)

    with ScriptedServer(answer(streamed("Enough."))) as server:
        code, out, err = antiphon(tmp_path, "-p", "plans?", environment=model_at(server))
    assert (code, out.strip()) == (0, "Enough.")
    assert err.startswith("antiphon: stopped: the model repeated the same calls"), err
    with ScriptedServer(answer(streamed())) as server:
        code, out, err = antiphon(tmp_path, "-p", "plans?", environment=model_at(server))
    assert (code, out.strip()) == (1, "")
    assert "no answer" in err
    assert "the model repeated the same calls" in err


def test_round_limit_and_embedded_calls_are_options(tmp_path: Path) -> None:
    written = streamed('我来看看<tool_call>{"tool": "list_plans"}</tool_call>')

    def answer(request: Received) -> Reply:
        return Reply(body=streamed("Enough.") if b'"tool_choice":"none"' in request.body else written)

    with ScriptedServer(answer) as server:
        arguments = ("-p", "plans?", "--max-rounds", "1", "--embedded-calls", "on")
        code, out, err = antiphon(tmp_path, *arguments, environment=model_at(server))
    assert (code, out) == (0, "我来看看\n\nEnough.\n")
    assert err.startswith("antiphon: stopped: round limit reached"), err
    for option, why in (
        (("--embedded-calls", "maybe"), "expected off, on"),
        (("--token-limit", "x"), "expected a number"),
    ):
        code, _, err = antiphon(tmp_path, "-p", "Hi.", *option)
        assert code == 1
        assert why in err


def test_host_without_tools_is_served_in_text(tmp_path: Path) -> None:
    """The host refuses tools as Ollama does; the tools then go into the prompt."""

    def answer(request: Received) -> Reply:
        if b'"tools":' in request.body:
            refusal = {"error": {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}}
            return Reply(status=400, body=msgspec.json.encode(refusal))
        if b"Result of list_plans" in request.body:
            return Reply(body=streamed("没有计划。"))
        return Reply(body=streamed('我来看看<tool_call>{"tool": "list_plans"}</tool_call>'))

    with ScriptedServer(answer) as server:
        code, out, err = antiphon(tmp_path, "-p", "我的计划?", environment=model_at(server))
    assert (code, out, err) == (0, "我来看看\n\n没有计划。\n", "")


def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    command = f"{sys.executable} -m antiphon chat --no-tools -p 'say something' | head -c 5; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(
        ["bash", "-c", command], capture_output=True, env=environment_of(tmp_path), check=False, timeout=60
    )
    assert run.stdout == b"I can"
    assert run.stderr == b""
