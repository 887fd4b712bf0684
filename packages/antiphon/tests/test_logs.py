"""A log line is one line, says whose request it belongs to, and holds no secret; an unwritable log stops no request."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import AntiphonError
from antiphon.http.request_ids import request_id_scope
from antiphon.logs import (
    LogFormat,
    LogHandler,
    configure_logs,
    lines_written_together,
    log_request,
)
from antiphon.repair import repair
from antiphon.wire import formats

SECRET = "sk-test-0123456789abcdef"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FullDisk(io.StringIO):
    """Takes nothing while it is full."""

    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("antiphon")
    levels = root.level, ours.level
    yield
    for handler in [handler for handler in root.handlers if isinstance(handler, LogHandler)]:
        root.removeHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def logged(
    log_format: LogFormat, *args: Any, level: int = logging.INFO, name: str = "antiphon.gateway", **more: Any
) -> str:
    """What is written for one record."""
    stream = io.StringIO()
    configure_logs(log_format, "debug", stream=stream, secrets=lambda: [SECRET, "no"])
    logging.getLogger(name).log(level, *args, **more)
    return stream.getvalue()


def test_a_json_line_has_all_fields() -> None:
    line = logged("json", "%s answered in %.1f s", "openai", 1.25, extra={"status": 200, "what": ["a", {"b": 1.5}]})
    fields = json.loads(line)
    assert line.endswith("}\n")
    assert line.count("\n") == 1
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "info",
        "logger": "antiphon.gateway",
        "message": "openai answered in 1.2 s",
        "status": 200,
        "what": ["a", {"b": 1.5}],
    }


def test_a_console_line_is_aligned_and_plain() -> None:
    with request_id_scope("01abc"):
        first = logged("console", "hello", extra={"status": 200, "model": "m"})
        second = logged("console", "careful", level=logging.WARNING, name="antiphon.providers")
    assert first.index("hello") == second.index("careful")
    assert first.endswith("hello status=200 model=m [01abc]\n")
    assert "\x1b" not in first + second


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for log_format, is_coloured in (("console", True), ("json", False)):
        stream = Terminal()
        configure_logs(log_format, stream=stream)  # type: ignore[arg-type]
        logging.getLogger("antiphon.x").error("hello")
        assert ("\x1b[31m" in stream.getvalue()) is is_coloured
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    configure_logs("console", stream=stream)
    logging.getLogger("antiphon.x").error("hello")
    assert "\x1b" not in stream.getvalue()


def test_every_line_of_a_request_has_its_id() -> None:
    stream = io.StringIO()
    configure_logs("json", "debug", stream=stream)
    orphan = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
    body = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}, orphan]}

    async def one(request_id: str) -> None:
        with request_id_scope(request_id):
            await asyncio.sleep(0)
            repair(formats["openai-chat"].read_request(body), "openai-chat", request_id=request_id)
            await asyncio.to_thread(logging.getLogger("antiphon.providers").info, "from a thread of %s", request_id)
            await asyncio.sleep(0)
            logging.getLogger("aiohttp.server").warning("of a library, for %s", request_id)

    async def both() -> None:
        await asyncio.gather(one("first"), one("second"))
        logging.getLogger("antiphon.gateway").info("of no request")

    asyncio.run(both())
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["logger"] for line in lines} >= {"antiphon.repair", "antiphon.providers", "aiohttp.server"}
    for line in lines[:-1]:
        assert line["request_id"] in line["message"], line
    assert "request_id" not in lines[-1]


@pytest.mark.parametrize("log_format", ["json", "console"])
@given(
    text=st.text(st.characters(), max_size=40), name=st.sampled_from(["note", "level", "time", "message_", "exception"])
)
def test_log_lines_cannot_be_forged(log_format: LogFormat, text: str, name: str) -> None:
    evil = f"{text}\r\n\x1b[31m\u2028\x85\u202e{{}}\ud800 2025 ERROR forged"
    with request_id_scope(evil):
        line = logged(log_format, "%s", evil, extra={name: {evil: [evil]}})
    assert line.count("\n") == 1
    assert line.endswith("\n")
    for forbidden in "\r\x1b\u2028\x85\u202e\x7f\x00":
        assert forbidden not in line
    if log_format == "json":
        fields = json.loads(line)
        assert fields["level"] == "info"
        assert fields["message"].startswith(text.encode("utf-8", "backslashreplace").decode())


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_secrets_are_masked_everywhere(log_format: LogFormat) -> None:
    error = RuntimeError(f"refused: {SECRET}")
    line = logged(
        log_format,
        "key %s of %s",
        SECRET,
        error,
        level=logging.ERROR,
        exc_info=error,
        extra={"deep": {SECRET: [{"x": f"Bearer {SECRET}!"}]}, "thing": error},
    )
    assert SECRET not in line
    assert SECRET[:10] not in line
    assert line.count("sk-…cdef") >= 5
    assert "no" in logged(log_format, "no")  # two letters are not a secret, and mask nothing


def test_a_secret_that_is_a_prefix_of_another_is_fully_masked() -> None:
    stream = io.StringIO()
    configure_logs("json", stream=stream, secrets=lambda: [SECRET, SECRET + "-and-more-of-it"])
    logging.getLogger("antiphon").info(SECRET + "-and-more-of-it")
    assert "and-more" not in stream.getvalue()


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        10**30,
        b"\xff",
        {1: object()},
        {"a", "b"},
        "x" * 100_000,
        [[[[[[[[1]]]]]]]],
        range(3),
        list(range(9999)),
    ],
)
def test_any_value_can_be_logged(value: object) -> None:
    line = logged("json", "value", extra={"value": value})
    assert "value" in json.loads(line)
    assert len(line) < 20_000


def test_a_self_referencing_value_is_logged() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert json.loads(logged("json", "ring", extra={"ring": ring}))["message"] == "ring"


def test_arguments_that_do_not_fit_are_shown() -> None:
    stream = io.StringIO()
    LogHandler("json", stream).handle(logging.makeLogRecord({"name": "x", "msg": "%d things", "args": ("many",)}))
    assert json.loads(stream.getvalue())["message"] == "%d things ('many',)"


def test_an_exception_is_one_json_line_and_a_block_on_a_console() -> None:
    error = ValueError("first\n12:00:00 INFO forged")
    json_line = json.loads(logged("json", "broken", exc_info=error))
    shown = logged("console", "broken", exc_info=error)
    assert json_line["exception"].endswith("INFO forged")
    assert all(line.startswith("    | ") for line in shown.splitlines()[1:])


def test_a_full_disk_is_counted_and_reported_later() -> None:
    stream = FullDisk()
    failures: list[None] = []
    configure_logs("json", stream=stream, on_failure=lambda: failures.append(None))
    logger = logging.getLogger("antiphon.gateway")
    logger.info("one")
    logger.info("two")
    assert len(failures) == 2
    stream.is_full = False
    logger.info("three")
    logger.info("four")
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert messages == ["2 earlier log lines could not be written", "three", "four"]


def test_lines_of_several_requests_are_one_write() -> None:
    written: list[str] = []

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    configure_logs("json", stream=Pipe())
    logger = logging.getLogger("antiphon.gateway")
    with lines_written_together():
        log_request(logger, logging.INFO, "one", {"request_id": "r1"})
        logger.info("two")
    logger.info("three")
    assert [[json.loads(line)["message"] for line in text.splitlines()] for text in written] == [
        ["one", "two"],
        ["three"],
    ]


def test_lines_that_cannot_be_written_together_are_all_counted() -> None:
    stream = FullDisk()
    failures: list[None] = []
    configure_logs("json", stream=stream, on_failure=lambda: failures.append(None))
    logger = logging.getLogger("antiphon.gateway")
    with lines_written_together():
        logger.info("one")
        logger.info("two")
    assert len(failures) == 2
    stream.is_full = False
    with lines_written_together():
        logger.info("three")
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert messages == ["2 earlier log lines could not be written", "three"]


def test_a_closed_log_stream_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    failures: list[None] = []
    configure_logs("console", stream=stream, on_failure=lambda: failures.append(None))
    stream.close()
    logging.getLogger("antiphon").warning("not shown")
    assert len(failures) == 1
    assert capsys.readouterr() == ("", "")


def test_configuring_again_replaces_and_levels_are_kept_apart() -> None:
    configure_logs("json", "debug", stream=io.StringIO())
    stream = io.StringIO()
    configure_logs("console", "info", stream=stream)
    logging.getLogger("antiphon.x").debug("too quiet")
    logging.getLogger("another.library").info("not ours")
    logging.getLogger("antiphon.x").info("ours")
    assert len(stream.getvalue().splitlines()) == 1
    assert sum(isinstance(handler, LogHandler) for handler in logging.getLogger().handlers) == 1


@pytest.mark.parametrize(("log_format", "level"), [("xml", "info"), ("json", "loud")])
def test_invalid_log_settings_are_refused(log_format: Any, level: str) -> None:
    with pytest.raises(AntiphonError, match="the formats are json and console, the levels debug"):
        configure_logs(log_format, level)


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    "message",
    ["a line", f"a line with {SECRET} in it", "two\nlines", "más", "long " * 2000],
    ids=["plain", "secret", "lines", "accents", "long"],
)
def test_the_formatted_line_equals_the_logged_line(log_format: LogFormat, message: str) -> None:
    extra = {"request_id": "request-1", "key": "k", "overhead_ms": 0.25, "repairs": [], "losses": ["one"]}
    lines = []
    for way in ("formatted", "logged"):
        stream = io.StringIO()
        handler = LogHandler(log_format, stream, secrets=lambda: (SECRET,))
        logger = logging.getLogger("antiphon.gateway")
        root, level = logging.getLogger(), logger.level
        before, root.handlers = root.handlers, [handler]
        logger.setLevel("INFO")
        try:
            if way == "formatted":
                log_request(logger, logging.INFO, message, dict(extra))
            else:
                logger.info(message, extra=dict(extra))
        finally:
            root.handlers = before
            logger.setLevel(level)
        # all but the time
        lines.append(re.sub(r"\d\d:\d\d:\d\d\.\d{3}|\d{4}-\d\d-\d\dT", "", stream.getvalue()))
    assert lines[0] == lines[1]
    assert lines[0].count("\n") == 1
    assert SECRET not in lines[0]
