"""The plain views of a turn: words as they come, for pipes and dumb terminals; and events as JSON Lines, for programs."""

from __future__ import annotations

import sys
from typing import Protocol

import msgspec

from antiphon.cli.chat.advice import told
from antiphon.cli.terminal import cut, data_writer, escape_control_chars, write_error
from antiphon.conversation import (
    LoopEvent,
    LoopFinished,
    RoundStarted,
    TextDelta,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
)


class View(Protocol):
    """Somebody who sees the events of a turn."""

    def handle(self, event: LoopEvent) -> None:
        """Take an event in."""

    async def flush(self) -> None:
        """Show what was taken in. Called now and then, and at the end."""


class PlainView:
    """The words of the answer and nothing else on standard output; what went wrong on standard error.

    With `tells_calls`, tool calls are told too, a line each: for a person at a terminal that can only print.
    """

    def __init__(self, *, tells_calls: bool = False) -> None:
        self._tells_calls = tells_calls
        self._has_written = False
        self._is_in_line = False
        self._model = ""

    def handle(self, event: LoopEvent) -> None:
        match event:
            case TextDelta():
                # A pipe gets the words as they are; a terminal must not be steered by them.
                self._write(escape_control_chars(event.text) if sys.stdout.isatty() else event.text)
            case RoundStarted():
                self._model = event.model
                self._end_line()
                if self._has_written and not self._tells_calls:
                    self._write("\n")
            case ToolCallStarted() if self._tells_calls:
                self._line(f"* {event.call.tool_name} {event.call.arguments}")
            case ToolCallFinished() if self._tells_calls:
                self._line(f"  done in {event.seconds:.1f} s: {event.result.result_markdown}")
            case ToolCallFailed() if self._tells_calls:
                self._line(f"  failed: {event.result.result_markdown}")
            case LoopFinished():
                self._end_line()
                self._finished(event)

    async def flush(self) -> None:
        sys.stdout.flush()

    def _finished(self, event: LoopFinished) -> None:
        if event.reason == "failed" and event.error is not None:
            sys.stdout.flush()
            write_error(f"antiphon: {told(event.error, self._model, is_at_prompt=self._tells_calls)}")
        elif self._tells_calls and event.reason not in ("answered", "approval"):
            self._line(f"({event.reason})")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        self._has_written = True
        self._is_in_line = not text.endswith("\n") if text else self._is_in_line

    def _line(self, text: str) -> None:
        self._end_line()
        self._write(cut(escape_control_chars(text), 78) + "\n")

    def _end_line(self) -> None:
        if self._is_in_line:
            self._write("\n")


class JsonView:
    """Every event as a line of JSON, its `type` being the name of the event."""

    def handle(self, event: LoopEvent) -> None:
        data_writer()(msgspec.json.encode(event) + b"\n")

    async def flush(self) -> None:
        sys.stdout.flush()
