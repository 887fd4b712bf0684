"""The command line: `antiphon chat | serve | admin | key | doctor | worker | runs | history | tools | convert | check | repair |
conform | models | prices | spend | cache | replay | tape | sessions | import | export`.

A command is a module with `configure(parser)` and `run(arguments) -> exit code`; only the given one is loaded.
Exit codes: 0 success, 1 failure (the reason on standard error), 2 invalid arguments.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import NoReturn

from antiphon import __version__, extensions
from antiphon.cli.terminal import as_sentence, escape_control_chars, write_error
from antiphon.errors import AntiphonError, ExtraMissing
from antiphon.extensions import load_part, other_parts

COMMANDS = {
    "chat": "chat with a model in the terminal, a pipe or the browser",
    "serve": "run the gateway: any client to any model",
    "admin": "create, limit, rotate and disable client keys of a running gateway; spend and audit log",
    "key": "create client keys for the gateway; list, disable and enable its provider keys",
    "doctor": "diagnose configuration, keys, network, ports and storage",
    "worker": "execute queued runs from a store",
    "runs": "submit, list, follow, approve, cancel and retry runs",
    "convert": "convert request and response bodies between API formats; losses go to stderr",
    "check": "validate request bodies against an API's rules",
    "repair": "repair tool-call sequences; repairs go to stderr",
    "conform": "test any LLM gateway from both ends: what reaches the provider and what comes back",
    "models": "show what a model accepts and where that is known from",
    "prices": "show what a model costs per million tokens",
    "spend": "show what clients of the gateway have spent",
    "replay": "answer a stored conversation again with another model, and compare them step by step",
    "cache": "find what broke the prompt cache in a conversation, a HAR or a list of requests, and what it cost",
    "tape": "list, show and delete exchanges that `serve --record` recorded",
    "history": "list, show, search, export, import, fork and delete stored conversations",
    "tools": "show which tools were called how often, how long they took, how often they failed",
    "sessions": "list the sessions of other coding agents on this machine",
    "import": "read a session of another coding agent into the store",
    "export": "write a conversation as a session of another coding agent, as messages or as training data",
}

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The errors of a disk that takes no more of the output."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _replace_closed_outputs()
    try:
        parser = _parser(given)
    except ExtraMissing as error:
        write_error(f"antiphon: {error}")
        return 2
    parsed = parser.parse_args(given)
    if parsed.command is None:
        parser.print_help()
        return 2
    try:
        with _warnings_shown(parsed), _telemetry(parsed.command):
            code: int = load_command(parsed.command).run(parsed)
        sys.stdout.flush()
    except AntiphonError as error:
        write_error(f"antiphon: {error}")
        return 1
    except KeyboardInterrupt:
        write_error("")
        return 130
    except BrokenPipeError:  # the reader of our output left (`| head`)
        _discard_output()
        return 141
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        _discard_output()
        write_error(f"antiphon: cannot write all of the output: {error.strerror}")
        return 1
    return code


def _replace_closed_outputs() -> None:
    """Discard what is written to an output that is closed (`>&-`). No file that is opened later gets its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends


def _discard_output() -> None:
    """Discard what could not be written: Python would complain once more while closing standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _WarningLines(logging.Handler):
    """Prints warnings of the library as lines on standard error, escaped."""

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("antiphon.repair"):  # commands that repair report it themselves
            write_error(f"antiphon: {self.format(record)}")


@contextmanager
def _warnings_shown(parsed: argparse.Namespace) -> Iterator[None]:
    """Print warnings while a command runs. A chat draws its own screen; the servers write a log of their own."""
    if parsed.command in ("serve", "worker"):
        yield
        return
    draws = parsed.command == "chat" and not parsed.web
    handler = logging.NullHandler() if draws else _WarningLines(logging.WARNING)
    logger = logging.getLogger("antiphon")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def _telemetry(command: str) -> Iterator[None]:
    """Export spans and metrics if the environment names an endpoint. The gateway does so itself, in each worker process."""
    if command not in ("chat", "worker") or not any(name.startswith("OTEL_EXPORTER_OTLP") for name in os.environ):
        yield
        return
    from antiphon import telemetry

    telemetry.enable_from_environment()
    try:
        yield
    finally:
        telemetry.disable()


class _ArgumentParser(argparse.ArgumentParser):
    """A parser whose errors, which quote the arguments, are escaped."""

    def error(self, message: str) -> NoReturn:
        super().error(escape_control_chars(message))


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = _ArgumentParser(prog="antiphon", description="One history, every model; every call answered.")
    parser.add_argument("--version", action="version", version=f"antiphon {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    wanted = next((word for word in given if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=as_sentence(summary))
        if name == wanted:
            load_command(name).configure(command)
    if wanted not in COMMANDS:  # a command of other people's, or the help that lists them all
        for name, module in other_parts(extensions.COMMANDS):
            command = commands.add_parser(name, help=f"from {module}")
            if name == wanted:
                load_command(name).configure(command)
    return parser


def load_command(name: str) -> ModuleType:
    """The module of a command. Raises `ExtraMissing` if it is in a package that is not installed."""
    return load_part(extensions.COMMANDS, name, f"the command {name}")
