"""A process that a test leaves running fails that test and is ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from support import leaks

SLEEPING = (sys.executable, "-c", "import time; time.sleep(600)")


def test_a_process_left_running_fails_its_test_by_name() -> None:
    with (
        subprocess.Popen(SLEEPING) as process,
        pytest.raises(pytest.fail.Exception, match=r"left running: .*time\.sleep\(600\)"),
    ):
        leaks.check()
    assert process.returncode < 0


def test_a_process_that_ended_and_one_of_a_shared_fixture_are_no_leak() -> None:
    ended = subprocess.Popen((sys.executable, "-c", ""))
    shared = subprocess.Popen(SLEEPING)
    leaks.shared.add(shared.pid)
    try:
        leaks.check()
        assert shared.poll() is None
    finally:
        ended.wait()
        shared.kill()
        shared.wait()
        leaks.shared.discard(shared.pid)


def test_a_process_that_its_event_loop_left_open_fails_its_test() -> None:
    loop = asyncio.new_event_loop()
    starting = loop.subprocess_exec(
        asyncio.SubprocessProtocol, sys.executable, "-c", "", stdin=None, stdout=None, stderr=None
    )
    transport: Any = loop.run_until_complete(starting)[0]
    loop.close()
    try:
        with pytest.raises(pytest.fail.Exception, match=r"not closed before their event loop: .*SubprocessTransport"):
            leaks.check()
        leaks.check()
    finally:
        transport._proc.wait()
        transport._closed = True
