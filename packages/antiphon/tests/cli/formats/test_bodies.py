"""`antiphon convert | check | repair`, run as a user runs them."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.cli.formats.bodies import Progress
from support.antiphon_process import run_antiphon

CALL = {"id": "a", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
BROKEN: dict[str, Any] = {
    "model": "gpt-4o",
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": "Find it."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "user", "content": "Wait!"},
        {"role": "tool", "tool_call_id": "a", "content": "found"},
    ],
}
LOSSY: dict[str, Any] = {"model": "gpt-4o", "seed": 7, "messages": [{"role": "user", "content": "Hi."}]}


def antiphon(*arguments: str | Path, given: object = b"") -> tuple[int, bytes, str]:
    data = given if isinstance(given, bytes) else msgspec.json.encode(given)
    run = run_antiphon(*map(str, arguments), input=data)
    return run.returncode, run.stdout, run.stderr.decode()


def test_convert_repairs_and_reports_it() -> None:
    code, out, err = antiphon("convert", "--from", "openai-chat", "--to", "anthropic", given=BROKEN)
    assert code == 0
    body = msgspec.json.decode(out)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text"]
    assert "standard input: repaired messages[2]: moved: a user message stood between a call and its result" in err


def test_losses_are_reported_as_text_or_json_and_strict_refuses() -> None:
    command = ("convert", "--from", "openai-chat", "--to", "anthropic")
    code, out, err = antiphon(*command, given=LOSSY)
    assert (code, b"seed" in out) == (0, False)
    assert err.startswith("standard input: lost seed: ")
    _, _, err = antiphon(*command, "--losses", "json", given=LOSSY)
    assert msgspec.json.decode(err)["path"] == "seed"
    code, out, err = antiphon(*command, "--strict", given=LOSSY)
    assert (code, out) == (1, b"")
    assert "would drop 1 items" in err


def test_many_bodies_a_line_each(tmp_path: Path) -> None:
    file, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    good = msgspec.json.encode(LOSSY)
    file.write_bytes(b"\n".join([good, b"", b"{not json", good, b"[1]"]) + b"\n")
    code, _, err = antiphon("convert", "--from", "openai-chat", "--to", "gemini", "--jsonl", file, "-o", out)
    assert code == 1
    assert len(out.read_bytes().splitlines()) == 2
    assert f"{file}, line 3: not valid JSON" in err
    assert f"{file}, line 5: a body is a JSON object, not list" in err
    assert list(tmp_path.glob(".*")) == []


def test_check_prints_one_line_per_violation() -> None:
    code, out, err = antiphon("check", "--format", "openai-chat", given=BROKEN)
    assert (code, err) == (1, "")
    lines = out.decode().splitlines()
    assert lines[0].startswith("standard input: messages[1].tool_calls: OC-03 error: has a call without a result")
    assert len(lines) == 2
    assert antiphon("check", "--format", "openai-chat", given=LOSSY) == (0, b"", "")
    code, out, _ = antiphon("check", "--format", "openai-chat", "--json", given=BROKEN)
    assert msgspec.json.decode(out.splitlines()[0])["rule"] == "OC-03"
    long_id = {
        "model": "m",
        "messages": [
            {"role": "assistant", "tool_calls": [{**CALL, "id": "x" * 41}]},
            {"role": "tool", "tool_call_id": "x" * 41, "content": "r"},
        ],
    }
    assert antiphon("check", "--format", "openai-chat", given=long_id)[0] == 0
    code, out, _ = antiphon("check", "--format", "openai-chat", "--advisories", given=long_id)
    assert (code, b"OC-09 advisory" in out) == (0, True)


def test_a_number_that_no_float_holds_stays_as_it_is_written() -> None:
    given = msgspec.json.encode(BROKEN).replace(b"{", b'{"seed":1e400,', 1)
    assert b"OC-03 error" in antiphon("check", "--format", "openai-chat", given=given)[1]
    code, out, _ = antiphon("repair", "--format", "openai-chat", given=given)
    assert (code, b'"seed":1e400' in out) == (0, True)


def test_repair_explains_itself() -> None:
    code, out, err = antiphon("repair", "--format", "openai-chat", "--explain", given=BROKEN)
    assert code == 0
    roles = [message["role"] for message in msgspec.json.decode(out)["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]
    assert "messages[2]: moved" in err
    assert "+tool       ← (a) found" in err
    legal = {**BROKEN, "messages": [BROKEN["messages"][i] for i in (0, 1, 3, 2)]}
    code, out, err = antiphon("repair", "--format", "openai-chat", given=legal)
    assert (code, msgspec.json.decode(out), err) == (0, legal, "")


def test_a_stream_is_converted_as_it_comes() -> None:
    stream = (
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
        b'"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}\n\n'
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},'
        b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    command = ("convert", "--kind", "stream", "--from", "openai-chat", "--to", "anthropic")
    code, out, _ = antiphon(*command, given=stream)
    assert code == 0
    assert b"event: message_start" in out
    assert b'"text":"Hi"' in out
    assert b"event: message_stop" in out
    code, out, _ = antiphon(*command, given=stream[:250])
    assert (code, b"message_stop" in out, b"event: error" in out) == (1, False, True)


def test_a_response_is_converted() -> None:
    response = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    }
    code, out, _ = antiphon("convert", "--kind", "response", "--from", "openai-chat", "--to", "gemini", given=response)
    assert code == 0
    assert msgspec.json.decode(out)["candidates"][0]["content"]["parts"] == [{"text": "Hi"}]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (b"", "standard input: empty"),
        (b"{", "standard input: not valid JSON"),
        (b'{"messages": [{"role": "user", "content": NaN}]}', "not valid JSON"),
        (b'{"messages": "\\ud800"}', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"7", "a body is a JSON object, not int"),
        (b'{"messages": 3}', "messages"),
        (b'{"contents": []}', "not an openai-chat body; it looks like gemini"),
        (b'{"input": "x"}', "not an openai-chat body; it looks like openai-responses"),
        (b'{"system": "x", "messages": []}', "not an openai-chat body; it looks like anthropic"),
    ],
)
def test_an_invalid_body_gets_one_clear_line(given: bytes, complaint: str) -> None:
    code, out, err = antiphon("convert", "--from", "openai-chat", "--to", "anthropic", given=given)
    assert (code, out) == (1, b"")
    assert err.startswith("antiphon: standard input: ")
    assert complaint in err
    assert err.count("\n") == 1


def test_duplicate_keys_are_reported() -> None:
    given = b'{"model": "a", "model": "b", "messages": [{"role": "user", "content": "x", "content": "y"}]}'
    code, _, err = antiphon("convert", "--from", "openai-chat", "--to", "openai-chat", given=given)
    assert code == 0
    assert "duplicate key 'model'; using the last value" in err
    assert "'content'" in err


def test_formats_and_files_that_are_not_there(tmp_path: Path) -> None:
    code, _, err = antiphon("convert", "--from", "openai", "--to", "anthropic")
    assert code == 2
    assert "openai-responses" in err
    code, _, err = antiphon("check", "--format", "gemini", tmp_path / "nowhere.json")
    assert (code, "cannot read" in err, err.count("\n")) == (1, True, 1)
    code, _, err = antiphon("check", "--format", "gemini", "-o", tmp_path / "no" / "x", given={"contents": []})
    assert (code, "cannot write" in err) == (1, True)


def test_progress_is_for_terminals() -> None:
    """Lines are sent until there is a report: however fast the machine is, a report is due after a while."""
    shown, terminal = pty.openpty()
    command = [sys.executable, "-m", "antiphon", "repair", "--format", "openai-chat", "--jsonl"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    assert process.stdin is not None
    line = msgspec.json.encode(LOSSY) + b"\n"
    output = b""
    deadline = time.monotonic() + 60
    try:
        while b" lines  " not in output:
            assert time.monotonic() < deadline, f"no progress was reported: {output!r}"
            process.stdin.write(line)
            process.stdin.flush()
            if select.select([shown], [], [], 0.05)[0]:
                output += os.read(shown, 65536)
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(shown)


def test_progress_reports_the_part_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(written, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", written)
    seconds = iter([0.0, 0.05, 1.0])
    progress = Progress(4_000_000, clock=lambda: next(seconds))
    progress.advance(1_000_000)
    assert written.getvalue() == ""  # too early to be worth a line
    progress.advance(1_000_000)
    assert written.getvalue() == "\r 50%  2 lines  2.0 MB/s\x1b[K"
    progress.done()
    assert written.getvalue().endswith("\r\x1b[K")


def test_standard_input_is_read_once() -> None:
    for command in (["check", "--format", "openai-chat"], ["repair", "--format", "openai-chat", "--jsonl"]):
        code, _, err = antiphon(*command, "-", "-", given=b"{}")
        assert (code, err) == (1, "antiphon: - is given more than once; standard input can be read once\n")
