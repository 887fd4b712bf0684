"""A process that has imported `antiphon` and forks to run a command. `antiphon_process.py` starts it, as a script.

A message on its socket is the arguments, environment and folder of a command, with the files for its standard input, output and
error. The answer is the id of the new process, which is then the child of the subreaper among our ancestors: the process that
forked it has ended.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import runpy
import socket
import sys
import termios
import time
import warnings
from importlib.util import find_spec
from typing import Any

PRELOADED = (
    "antiphon_chat.terminal.app",
    "antiphon_chat.terminal.one_shot",
    "antiphon.cli.formats.convert",
    "antiphon_gateway.cli.doctor",
    "antiphon_gateway.cli.serve",
    "antiphon.cli.history",
    "antiphon.cli.worker",
    "antiphon_gateway.workers",
    "antiphon_gateway.serve",
    "antiphon_chat.page.mounted.gateway_chat",
    "antiphon.wire.anthropic.request",
    "antiphon.wire.openai_chat.request",
    "antiphon.wire.openai_chat.rules",
    "jsonschema_rs",
    "markdown_it",
    "prompt_toolkit.shortcuts",
    "rich.live",
    "rich.markdown",
    "rich.syntax",
    "rich.table",
)
"""What commands import, and the larger packages that they import when they need them."""
LONGEST = 1 << 18


def serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each message until the other side is gone. In the process of a command, return its message and files."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, LONGEST, 3)
        if not message:
            os._exit(0)
        answer, answered = os.pipe()
        between = os.fork()
        if between == 0:
            process = os.fork()
            if process == 0:
                os.close(answer)
                os.close(answered)
                channel.close()
                return json.loads(message), files
            os.write(answered, b"%d" % process)
            os._exit(0)
        os.waitpid(between, 0)
        channel.send(os.read(answer, 20))
        for file in (answer, answered, *files):
            os.close(file)


def become(command: dict[str, Any], files: list[int]) -> None:
    """Take over what a new process gets from its parent."""
    for target, file in enumerate(files):
        os.dup2(file, target)
    os.closerange(3, max(files) + 1)
    if command["has_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    time.tzset()
    for rule in filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")):
        action, _, message = rule.partition(":")
        warnings.filterwarnings(action, message)  # type: ignore[arg-type]
    sys.path[0:1] = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = ["antiphon", *command["arguments"]]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    for name in PRELOADED:
        if find_spec(name.partition(".")[0]) is not None:  # the tests of one package have only what it needs
            __import__(name)
    gc.freeze()
    become(*serve(socket.socket(fileno=int(sys.argv[1]))))
    runpy.run_module("antiphon", run_name="__main__", alter_sys=True)
