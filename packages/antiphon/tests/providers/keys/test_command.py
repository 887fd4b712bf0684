"""Keys that a command prints: without a shell, in bounded time, cached as long as it says, and never shown."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

import pytest

from antiphon.errors import CredentialError
from antiphon.providers.keys.command import Command, parse_command, run_command, secret_in
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.keys.secret import Credential, scrub_text
from providers.http_client import CHAT, ONCE, client_of
from providers.sample_answers import deltas_from, error_of, text_of
from providers.scripted_server import Received, Reply, ScriptedServer

ENVIRON = dict(os.environ)


def script(folder: Path, code: str) -> str:
    """A reference to a Python program with that code."""
    path = folder / "print-key"
    path.write_text(f"import sys, os, json, time\n{code}\n")
    return f"command:{sys.executable} {path}"


def printed(reference: str) -> tuple[str, float | None]:
    command = parse_command(reference)
    output = run_command(command, ENVIRON)
    return secret_in(command, output), output.lifetime


def test_options_come_before_the_program() -> None:
    command = parse_command("command:ttl=60 timeout=5 vault read 'a b' ttl=1")
    assert command == Command(("vault", "read", "a b", "ttl=1"), 60.0, 5.0)
    assert command.display_name == "command:vault"


def test_text_is_the_key(tmp_path: Path) -> None:
    assert printed(script(tmp_path, "print('  sk-canary-key  ')")) == ("sk-canary-key", None)


@pytest.mark.parametrize(
    ("code", "lifetime"),
    [
        ("{'access_token': 'canary', 'expires_in': 120}", 120),
        ("{'accessToken': 'canary', 'expires_on': time.time() + 500, 'expiresOn': '2001-01-01 00:00:00'}", 500),
        ("{'token': 'canary', 'expires_at': (time.time() + 500) * 1000}", 500),
        ("{'token': 'canary', 'expires_at': 'nan', 'expiry': time.time() + 500}", 500),
        ("{'token': 'canary', 'expiry': '2999-01-01T00:00:00Z'}", None),
        ("{'status': {'token': 'canary', 'expirationTimestamp': '2999-01-01T00:00:00+00:00'}}", None),
        ("{'key': 'canary'}", 0),
    ],
)
def test_an_object_has_the_key_and_its_lifetime(tmp_path: Path, code: str, lifetime: float | None) -> None:
    secret, given = printed(script(tmp_path, f"print(json.dumps({code}))"))
    assert secret == "canary"
    if lifetime is None:
        assert given is not None
        assert given > 1e9
    else:
        assert (given or 0) == pytest.approx(lifetime, abs=60)


def test_the_stated_time_wins(tmp_path: Path) -> None:
    reference = script(tmp_path, "print(json.dumps({'token': 'canary', 'expires_in': 9}))")
    assert printed(reference.replace("command:", "command:ttl=77 ")) == ("canary", 77.0)


def test_no_shell_reads_the_arguments(tmp_path: Path) -> None:
    reference = script(tmp_path, "print(sys.argv[1])") + " '$(id);`id`|x'"
    assert printed(reference)[0] == "$(id);`id`|x"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sys.exit(3)", "failed with exit code 3; run it in a shell"),
        ("pass", "printed nothing; it must print the key"),
        ("print('two\\nlines')", "characters that an HTTP header cannot carry"),
        ("print('{\"a\": ')", "printed invalid JSON"),
        ("print('{\"password_hint\": 1}')", "a JSON object without a key"),
        ("sys.stdout.buffer.write(bytes([255]))", "bytes that are not text"),
        ("print('x' * 300000)", "printed 300,001 bytes"),
    ],
)
def test_output_that_is_not_a_key_is_an_error_without_the_output(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(CredentialError, match=message) as raised:
        printed(script(tmp_path, f"print('sk-canary', file=sys.stderr)\n{code}"))
    assert "canary" not in str(raised.value)
    assert "command:python" in str(raised.value)


def test_a_command_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
    code += f"open({str(marker)!r}, 'w').write(str(child.pid))\nchild.wait()"
    reference = script(tmp_path, code).replace("command:", "command:timeout=2 ")
    with pytest.raises(CredentialError, match=r"did not finish within 2 s; make it faster, or set timeout=SECONDS"):
        printed(reference)
    child = int(marker.read_text())
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and is_running(child):
        time.sleep(0.02)
    assert not is_running(child)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("command:", "names no program; use command:PROGRAM ARGUMENTS"),
        ("command:ttl=60", "names no program"),
        ("command:'open", "cannot parse the command of a key: no closing quotation"),
        ("command:ttl=soon x", "ttl=soon of a command is not a number of seconds"),
        ("command:timeout=0 x", "timeout=0 of a command is not a number of seconds up to 300"),
    ],
)
def test_bad_references(reference: str, message: str) -> None:
    with pytest.raises(CredentialError, match=message):
        parse_command(reference)


def test_a_missing_program_is_named() -> None:
    with pytest.raises(CredentialError, match=r"cannot find the program no-such-program-at-all .* give its full path"):
        run_command(parse_command("command:no-such-program-at-all x"), ENVIRON)


def test_names_and_texts_show_only_the_program(tmp_path: Path) -> None:
    reference = script(tmp_path, "print('x')") + " --account private"
    assert Credential(secret=reference).display_name == f"command:{Path(sys.executable).name}"
    pool = KeyRing([reference])
    assert "private" not in repr(pool)
    assert scrub_text("run command: again", pool.secrets) == "run command: again"  # a reference is not a secret


def counting(folder: Path, ttl: str = "") -> str:
    """A command that prints key-1, key-2, … and leaves how often it ran in `folder`."""
    counter = folder / "count"
    counter.write_text("0")
    code = f"n = int(open({str(counter)!r}).read()) + 1\nopen({str(counter)!r}, 'w').write(str(n))\nprint(f'sk-canary-{{n:06}}')"
    return script(folder, code).replace("command:", f"command:{ttl}")


def key_of(request: Received) -> str:
    return request.headers["authorization"].removeprefix("Bearer ")


def test_a_command_runs_once_for_many_calls(tmp_path: Path) -> None:
    with ScriptedServer(Reply(body=CHAT)) as server:
        client = client_of(server, keys=[counting(tmp_path)])

        async def calls() -> list[str]:
            return [text_of(deltas) for deltas in await asyncio.gather(*(deltas_from(client) for _ in range(5)))]

        assert asyncio.run(calls()) == ["Rain."] * 5
    assert {key_of(request) for request in server.received} == {"sk-canary-000001"}


def test_it_runs_again_after_a_401_and_the_call_succeeds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def answer(request: Received) -> Reply:
        if key_of(request) == "sk-canary-000002":
            return Reply(body=CHAT)
        return Reply(status=401, body=b'{"error":{"message":"bad key %b"}}' % key_of(request).encode())

    with caplog.at_level(logging.DEBUG), ScriptedServer(answer) as server:
        client = client_of(server, keys=[counting(tmp_path)], retry=ONCE)
        assert text_of(asyncio.run(deltas_from(client))) == "Rain."
        assert [key_of(request) for request in server.received] == ["sk-canary-000001", "sk-canary-000002"]
    assert "canary" not in caplog.text


def test_a_second_401_is_the_answer_without_the_key(tmp_path: Path) -> None:
    def answer(request: Received) -> Reply:
        body = b'{"error":{"message":"bad key %b"}}' % key_of(request).encode()
        return Reply(status=401, body=body, content_type="application/json")

    with ScriptedServer(answer) as server:
        client = client_of(server, keys=[counting(tmp_path)], retry=ONCE)
        error = error_of(asyncio.run(deltas_from(client)))
    assert len(server.received) == 2
    assert error.kind == "authentication"
    assert "sk-canary-0" not in error.message


def test_a_command_that_fails_is_an_authentication_error_of_the_call(tmp_path: Path) -> None:
    with ScriptedServer(Reply(body=CHAT)) as server:
        client = client_of(server, keys=[script(tmp_path, "sys.exit(4)")], retry=ONCE)
        error = error_of(asyncio.run(deltas_from(client)))
    assert (error.kind, error.code) == ("authentication", "no_token")
    assert "failed with exit code 4" in error.message
    assert server.received == []
