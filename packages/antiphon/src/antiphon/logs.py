"""Log lines as JSON or for a terminal, each with the id of its request.

One handler at the root logger, so that lines of every package pass through it. `request_id_scope` sets the id as a context
variable where a request is handled; the handler reads it when the record is made.

Lines may contain text from clients and providers. Line breaks, control characters and direction marks are escaped, and every
known secret is masked (law L10). A JSON line is always valid JSON. A line that cannot be written is counted; the next one that
can be written reports how many were lost.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, TextIO, TypeAlias

import msgspec

from antiphon.errors import AntiphonError
from antiphon.http.request_ids import current_request_id
from antiphon.providers.keys.secret import longest_first, mask

LogFormat: TypeAlias = Literal["json", "console"]

_ROOT = logging.getLogger()
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
_RECORD_DEFAULTS = vars(
    logging.makeLogRecord({"pathname": __file__, "filename": "logs.py", "module": "logs", "funcName": "log_request"})
)
_NAMES = {number: name for name, number in _LEVELS.items()}
_STANDARD = {*_RECORD_DEFAULTS, "message", "asctime", "taskName", "color_message"}
_RESERVED_FIELDS = {"time", "level", "logger", "message", "request_id", "exception"}
_DEEPEST = 6
_MOST_HELD = 50
_LONGEST_TEXT = 16_384
_LONGEST_PLAIN = 4096
_LOGGER_WIDTH = 18

# What a terminal or a log viewer may take for an end of line or a command: C0, DEL and C1, the two separators, bidi marks.
_UNSAFE = [*range(32), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
_ESCAPES = {code: f"\\u{code:04x}" for code in _UNSAFE} | {9: "\\t", 10: "\\n", 13: "\\r"}
_encode = msgspec.json.Encoder().encode
_AS_TEXT = frozenset({str, int, float})
"""Types whose values are written as text; others are written as JSON."""
_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}


def log_request(logger: logging.Logger, level: int, message: str, extra: dict[str, Any]) -> None:
    """Log a line that is written for every request. It is the line that `logger.log` would write, at a lower cost.

    If our handler is the only one, a plain line is written directly; otherwise it becomes a record whose caller is
    a constant instead of being looked up.
    """
    listening = _ROOT.handlers
    only = listening[0] if len(listening) == 1 and logger.propagate and not logger.handlers else None
    if isinstance(only, LogHandler) and only.write_plain(logger.name, level, message, extra):
        return
    record = object.__new__(logging.LogRecord)
    now = time.time()
    record.__dict__.update(_RECORD_DEFAULTS)
    record.name, record.levelno, record.levelname, record.msg = logger.name, level, logging.getLevelName(level), message
    record.created, record.msecs = now, now % 1 * 1000
    record.__dict__.update(extra)
    logger.handle(record)


@contextmanager
def lines_written_together() -> Iterator[None]:
    """Lines that are logged inside are written at its end, with one call of the system."""
    handlers = [handler for handler in _ROOT.handlers if isinstance(handler, LogHandler)]
    for handler in handlers:
        handler.hold()
    try:
        yield
    finally:
        for handler in handlers:
            handler.release_held()


def is_for_people() -> bool:
    """Whether log lines go to our console and nowhere else, so that a line need not repeat in fields what its text says."""
    listening = _ROOT.handlers
    return len(listening) == 1 and isinstance(listening[0], LogHandler) and listening[0].is_for_people


def configure_logs(
    log_format: LogFormat = "console",
    level: str = "info",
    *,
    secrets: Callable[[], Iterable[str]] = tuple,
    stream: TextIO | None = None,
    on_failure: Callable[[], None] = lambda: None,
) -> LogHandler:
    """Log to `stream` (standard error by default) from here on; an earlier handler of ours is replaced.

    `level` is for Antiphon's own lines; other libraries log from `warning` on. `secrets` gives the present secrets, and
    `on_failure` is called for each line that could not be written.
    """
    number = _LEVELS.get(level.lower())
    if number is None or log_format not in ("json", "console"):
        raise AntiphonError(
            f"logs cannot be {log_format!r} at level {level!r}; the formats are json and console, "
            f"the levels {', '.join(_LEVELS)}"
        )
    handler = LogHandler(log_format, stream or sys.stderr, secrets=secrets, on_failure=on_failure)
    for known in list(_ROOT.handlers):
        if isinstance(known, LogHandler):
            _ROOT.removeHandler(known)
            known.close()
    _ROOT.addHandler(handler)
    _ROOT.setLevel(max(number, logging.WARNING))
    logging.getLogger("antiphon").setLevel(number)
    return handler


class LogHandler(logging.Handler):
    """Writes records to a stream. `on_failure` is called for each that could not be written."""

    def __init__(
        self,
        log_format: LogFormat,
        stream: TextIO,
        *,
        secrets: Callable[[], Iterable[str]] = tuple,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._stream = stream
        self._secrets = secrets
        self._on_failure = on_failure
        self._lost = 0
        self._held: list[str] | None = None
        self._plain = _Sanitizer(())
        self._is_json = log_format == "json"
        self._line = self._json_line if self._is_json else self._console_line
        self._has_colours = log_format == "console" and _is_terminal(stream) and not os.environ.get("NO_COLOR")

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, or count the failure."""
        try:
            if self._lost:
                lost = f"{self._lost} earlier log lines could not be written"
                self._write(self._line(logging.makeLogRecord({**_AFTER_LOSS, "msg": lost, "created": record.created})))
                self._lost = 0
            self._write(self._line(record))
        except Exception:  # a full disk, a closed pipe, a value that cannot be shown: none may stop a request
            self._count_failures()

    @property
    def is_for_people(self) -> bool:
        """Whether it writes lines for people, not JSON."""
        return not self._is_json

    def write_plain(self, name: str, level: int, message: str, extra: dict[str, Any]) -> bool:
        """Write the line of such a record if nothing in it needs masking, escaping or colour; returns whether it was written.

        `extra` holds the id of the request, then other plain values.
        """
        if self._lost or self._has_colours or level < self.level:
            return False
        now = time.time()
        second = int(now)
        part = f"{int((now - second) * 1000):03d}"
        if self._is_json:
            time_of_day = f"{_date_and_clock(second)}.{part}Z"
            fields = {"time": time_of_day, "level": _NAMES[level], "logger": name, "message": message, **extra}
            line = _encode(fields).decode()
        else:
            shown = [
                f"{key}={value if type(value) in _AS_TEXT else _encode(value).decode()}"
                for key, value in islice(extra.items(), 1, None)
            ]
            line = (
                f"{_clock(second)}.{part} {_beginning(level, name)} {message} {' '.join(shown)} [{extra['request_id']}]"
            )
        if not line.isascii() or not line.isprintable() or len(line) > _LONGEST_PLAIN:
            return False
        for secret in (self._plain if self._held is not None else self._current()).hidden:
            if secret in line:
                return False
        with self.lock or nullcontext():
            try:
                self._write(line)
            except Exception:  # as in `emit`
                self._count_failures()
        return True

    def hold(self) -> None:
        """Keep lines until `release_held`. Not if lines were lost: the next one that is written must say so."""
        self._held = None if self._lost else []
        self._current()

    def release_held(self) -> None:
        """Write the lines that were kept."""
        with self.lock or nullcontext():
            lines, self._held = self._held, None
            try:
                if lines:
                    self._write("\n".join(lines))
            except Exception:  # as in `emit`
                self._count_failures(len(lines or ()))

    def _write(self, line: str) -> None:
        if self._held is not None:
            self._held.append(line)
            return
        self._stream.write(line + "\n")
        self._stream.flush()

    def _count_failures(self, lines: int = 1) -> None:
        self._lost += lines
        for _ in range(lines):
            self._on_failure()

    def _current(self) -> _Sanitizer:
        """The masking of the present secrets."""
        secrets = tuple(self._secrets())
        if secrets is not self._plain.secrets and secrets != self._plain.secrets:
            self._plain = _Sanitizer(secrets)
        return self._plain

    def _json_line(self, record: logging.LogRecord) -> str:
        plain = self._current()
        fields: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": plain.text(record.name),
            "message": plain.text(_message(record)),
        }
        if request_id := _id_of(record):
            fields["request_id"] = plain.text(request_id)
        for name, value in _extras(record):
            # An extra must not override the time or the logger of a line.
            fields[f"{name}_" if name in _RESERVED_FIELDS else name] = plain.value(value)
        if exception := _exception(record):
            fields["exception"] = plain.text(exception)
        # JSON escapes the C0 controls itself; the others occur only inside its strings, where the same escapes are legal.
        return _encode(fields).decode().translate(_ESCAPES)

    def _console_line(self, record: logging.LogRecord) -> str:
        plain = self._current()
        level = record.levelname.lower()
        name = plain.text(record.name).removeprefix("antiphon.")
        pieces = [
            self._colored(datetime.fromtimestamp(record.created).time().isoformat("milliseconds"), "2"),
            self._colored(f"{level:<8}", _COLOURS.get(level, "")),
            self._colored(f"{_escape_controls(name):<{_LOGGER_WIDTH}}", "36"),
            _escape_controls(plain.text(_message(record))),
        ]
        pieces += [
            self._colored(f"{_escape_controls(key)}=", "2") + _escape_controls(_short(plain.value(value)))
            for key, value in _extras(record)
            if f"{key}={value}" not in pieces[3]
        ]
        if request_id := _id_of(record):
            pieces.append(self._colored(f"[{_escape_controls(plain.text(request_id))}]", "2"))
        lines = [" ".join(pieces)]
        if exception := _exception(record):
            # Indented, so that no line of an exception's text can pass for a record.
            lines += [f"    | {_escape_controls(line)}" for line in plain.text(exception).split("\n")]
        return "\n".join(lines)

    def _colored(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._has_colours and colour else text


_AFTER_LOSS = {"name": "antiphon.gateway", "levelname": "WARNING", "levelno": logging.WARNING}


class _Sanitizer:
    """Converts any value to one that can be logged: plain data of bounded size, without secrets."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self.secrets = secrets
        self.hidden = longest_first(secrets)

    def text(self, text: str) -> str:
        for secret in self.hidden:
            if secret in text:
                text = text.replace(secret, mask(secret))
        if len(text) > _LONGEST_TEXT:
            text = f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
        return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()

    def value(self, value: Any, depth: int = 0) -> Any:
        if value is None or isinstance(value, bool | float) or (type(value) is int and value.bit_length() < 64):
            return value
        if isinstance(value, dict) and depth < _DEEPEST:
            return {self.text(str(key)): self.value(value[key], depth + 1) for key in islice(value, _MOST_HELD)}
        if isinstance(value, list | tuple | set | frozenset) and depth < _DEEPEST:
            more = [f"and {len(value) - _MOST_HELD} more"] if len(value) > _MOST_HELD else []
            return [self.value(held, depth + 1) for held in islice(value, _MOST_HELD)] + more
        return self.text(str(value))


def _escape_controls(text: str) -> str:
    """Text on one line. What needs escaping is not printable, and `isprintable` is faster than a lookup per letter."""
    return text if text.isprintable() else text.translate(_ESCAPES)


@lru_cache(maxsize=2)
def _clock(second: int) -> str:
    return datetime.fromtimestamp(second).time().isoformat("seconds")


@lru_cache(maxsize=2)
def _date_and_clock(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat("T", "seconds")


@lru_cache(maxsize=64)
def _beginning(level: int, name: str) -> str:
    """The part of a console line between the time and the message."""
    return f"{_NAMES[level]:<8} {name.removeprefix('antiphon.'):<{_LOGGER_WIDTH}}"


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _id_of(record: logging.LogRecord) -> str:
    return str(getattr(record, "request_id", "")) or current_request_id()


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (
        TypeError,
        ValueError,
        KeyError,
    ):  # arguments that do not fit are a defect of ours; the line is still written
        return f"{record.msg} {record.args!r}"


def _extras(record: logging.LogRecord) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(record).items() if name not in _STANDARD and name != "request_id"]


def _exception(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    text = "".join(traceback.format_exception(error)) if error is not None else record.exc_text or ""
    return "\n".join(filter(None, (text.rstrip(), record.stack_info)))


def _short(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False
