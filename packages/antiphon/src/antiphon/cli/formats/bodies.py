"""Input and output of `convert`, `check` and `repair`: bodies from files and standard input, each with its location."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from antiphon.cli.terminal import data_writer, write_error
from antiphon.errors import AntiphonError, WireError
from antiphon.json_text import NOT_JSON, decode_json
from antiphon.private_files import open_private_file
from antiphon.wire import FORMATS
from antiphon.wire.spec import detect_format

_PROGRESS_EVERY = 0.1


class Body(Struct, frozen=True):
    """A decoded body and where it came from: a file, or a line of it."""

    where: str
    value: dict[str, Any]


def add_input(parser: argparse.ArgumentParser) -> None:
    """The arguments every command over bodies takes."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="bodies (default: standard input; - is standard input too)"
    )
    parser.add_argument("--jsonl", action="store_true", help="one body per line")
    parser.add_argument("-o", "--output", metavar="FILE", help="output file (default: standard output)")


def add_format(parser: argparse.ArgumentParser, flag: str, description: str) -> None:
    parser.add_argument(
        flag,
        required=True,
        choices=FORMATS,
        metavar="FORMAT",
        dest=flag.strip("-").replace("from", "source"),
        help=f"{description}: {', '.join(FORMATS)}",
    )


def process_bodies(arguments: argparse.Namespace, work: Callable[[Body], bytes | None], format_name: str) -> int:
    """Call `work` with every body and write its results, one per line; errors go to standard error. Returns how many failed."""
    failed = 0
    with _output(arguments.output) as out:
        for where, data in _inputs(arguments):
            try:
                written = work(Body(where, _decoded(where, data, format_name)))
            except AntiphonError as error:
                failed += 1
                text = str(error)
                write_error(f"antiphon: {text if text.startswith(where) else f'{where}: {text}'}")
                continue
            if written is not None:
                out(written + b"\n")
    return failed


def _inputs(arguments: argparse.Namespace) -> Iterator[tuple[str, bytes]]:
    for source, stream in open_inputs(arguments.files or ["-"]):
        if not arguments.jsonl:
            yield source, stream.read()
            continue
        size = os.fstat(stream.fileno()).st_size if stream is not sys.stdin.buffer else 0
        progress = Progress(size)
        for number, line in enumerate(stream, 1):
            progress.advance(len(line))
            if line.strip():
                yield f"{source}, line {number}", line
        progress.done()


def open_inputs(names: Sequence[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Each file, open for reading, and its name for messages; `-` is standard input."""
    if names.count("-") > 1:
        raise WireError("- is given more than once; standard input can be read once")
    for name in names:
        if name == "-":
            yield "standard input", sys.stdin.buffer
            continue
        try:
            stream = open(name, "rb")  # noqa: SIM115 - closed below: only errors of opening are reported here
        except OSError as error:
            raise WireError(f"cannot read {name}: {error.strerror or error}") from error
        with stream:
            yield name, stream


def _decoded(where: str, data: bytes, format_name: str) -> dict[str, Any]:
    try:
        value = decode_json(data)
    except RecursionError as error:
        raise WireError(f"{where}: nested too deeply to be a body") from error
    except NOT_JSON as error:
        what = "empty" if not data.strip() else f"not valid JSON: {error}"
        raise WireError(f"{where}: {what}") from error
    if not isinstance(value, dict):
        raise WireError(f"{where}: a body is a JSON object, not {type(value).__name__}")
    for path in _duplicate_keys(data):
        write_error(f"antiphon: {where}: duplicate key {path!r}; using the last value")
    guess = detect_format(value)
    if guess is not None and guess != format_name:
        raise WireError(f"{where}: not {_article(format_name)} {format_name} body; it looks like {guess}")
    return value


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeio" else "a"


def _duplicate_keys(data: bytes) -> list[str]:
    """Duplicate keys of one object. Decoders keep the last without an error."""
    twice: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            twice.extend(sorted({key for key in keys if keys.count(key) > 1}))

    json.loads(data, object_pairs_hook=note)
    return twice


class Progress:
    """One line on the terminal with how much of `size` bytes is done; nothing where standard error is not a terminal."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._clock = clock
        self._lines = self._bytes = 0
        self._started = self._reported_at = clock()
        self._is_terminal = sys.stderr.isatty()

    def advance(self, length: int) -> None:
        self._lines += 1
        self._bytes += length
        now = self._clock()
        if self._is_terminal and now - self._reported_at > _PROGRESS_EVERY:
            self._reported_at = now
            part = f"{self._bytes * 100 // self._size:3d}%  " if self._size else ""
            speed = self._bytes / max(now - self._started, 1e-9) / 1e6
            sys.stderr.write(f"\r{part}{self._lines:,} lines  {speed:.1f} MB/s\x1b[K")
            sys.stderr.flush()

    def done(self) -> None:
        if self._is_terminal and self._reported_at != self._started:
            sys.stderr.write("\r\x1b[K")


@contextmanager
def _output(name: str | None) -> Iterator[Callable[[bytes], object]]:
    """Where results go: standard output, or a file that appears when everything is written."""
    if name is None:
        yield data_writer()
        return
    with atomic_write(Path(name)) as file:
        yield file.write


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Write under another name, and rename when the block succeeds. Errors of the disk name the file.

    A new file is readable by its owner only, as it may hold a conversation; a replaced one keeps its mode.
    """
    is_stream = path.exists() and not path.is_file()  # a pipe or a device is written to, never replaced
    target = Path(os.path.realpath(path))  # a link stays a link
    place = path if is_stream else target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            with _open_temporary(place, target, is_stream) as file:
                yield file
                file.flush()
                if not is_stream:
                    os.fsync(file.fileno())
            if not is_stream:
                os.replace(place, target)
        finally:
            if not is_stream:
                place.unlink(missing_ok=True)
    except OSError as error:
        raise AntiphonError(f"cannot write {path}: {error.strerror or error}") from error


def _open_temporary(place: Path, target: Path, is_stream: bool) -> BinaryIO:
    if is_stream:
        return open(place, "wb")
    place.unlink(missing_ok=True)  # left by a killed process with the same pid
    descriptor = open_private_file(place)
    if target.exists():
        os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
    return os.fdopen(descriptor, "wb")
