"""`antiphon chat` in its own process, with and without the page, and what it stores."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from antiphon.history import SqliteStore
from antiphon.tools.builtin import PlanStore
from page.rig import Browser
from support.antiphon_process import AntiphonProcess, run_antiphon
from support.terminal import environment_of
from support.waiting import SECONDS


class WebChat(Struct, frozen=True):
    """The address that was printed, and a client for the API there."""

    address: str
    browser: Browser


@contextmanager
def web_chat(place: Path, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[WebChat]:
    """The page, served by the command until the block ends."""
    process = AntiphonProcess(
        *("chat", "--web", "--port", "0", *arguments),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_of(place, environment),
        cwd=place,
    )
    assert process.stderr is not None
    too_long = threading.Timer(SECONDS, process.kill)
    too_long.start()
    written = ""
    try:
        while (found := re.search(r"the chat is at (http://127.0.0.1:(\d+)/chat/\S*)", written)) is None:
            line = process.stderr.readline()
            assert line, f"it ended before it served: {written}"
            written += line
        too_long.cancel()
        yield WebChat(found[1], Browser(int(found[2])))
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        too_long.cancel()
        process.kill()
        process.wait()
        process.stderr.close()


def antiphon_chat(place: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of `antiphon chat`."""
    run = run_antiphon(
        *("chat", *arguments),
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment_of(place, environment),
        cwd=place,
        timeout=60,
    )
    return run.returncode, run.stdout, run.stderr


def store_of(place: Path) -> SqliteStore:
    return SqliteStore(place / "antiphon" / "history.db")


def plans_of(place: Path) -> list[Any]:
    with PlanStore(place / "antiphon" / "plans.db") as plans:
        return list(plans.list())
