"""The library's log lines: silent until the application configures logging, and one line per repair."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from antiphon.repair import fix_tool_call_sequence, repair
from antiphon.wire import formats

# A repair that misses a result, a tool that fails, and a schema with a pattern that cannot be read: each is worth a warning.
USE = """
import asyncio
{configure}
import antiphon as ap
from antiphon.repair import fix_tool_call_sequence

call = {{"id": "a", "type": "function", "function": {{"name": "search", "arguments": "{{}}"}}}}
fix_tool_call_sequence([{{"role": "assistant", "tool_calls": [call]}}, {{"role": "user", "content": "?"}}], "r")
ap.Tool.from_schema("read", "", {{"type": "object", "properties": {{"a": {{"pattern": "a\\\\Z"}}}}}}, print)

@ap.tool
def fail() -> str:
    "Fails."
    raise RuntimeError("it broke")

executor = ap.ToolExecutor(ap.ToolRegistry([fail]))
asyncio.run(executor.execute([ap.ToolCallRequest("fail", "1", "{{}}")]))
"""


def run(configure: str) -> str:
    code = USE.format(configure=configure)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr


def test_without_configuration_standard_error_stays_empty() -> None:
    assert run("") == ""


def test_an_application_that_configures_logging_gets_the_warnings() -> None:
    lines = run("import logging; logging.basicConfig()")
    for name in ("WARNING:antiphon.repair:[r] repaired", "WARNING:antiphon.tools:the schema of tool read", "it broke"):
        assert name in lines


def broken(count: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number in range(count):
        function = {"name": "search", "arguments": "{}"}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        result = {"role": "tool", "tool_call_id": f"call_{number}", "content": "found"}
        between = {"role": "user", "content": "?"}
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}, between]
        if number % 2:
            messages.append(result)
    return messages


def test_a_repair_is_one_line_with_counts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        fix_tool_call_sequence(broken(200), "req-1")
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("antiphon.repair", logging.WARNING)
    assert record.getMessage() == (
        "[req-1] repaired the sequence: 100 synthesised, 100 moved; "
        "such as messages[0]: synthesised: search (call_0) has no result"
    )
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        request = formats["openai-chat"].read_request({"model": "m", "messages": broken(2)[2:]})
        fixed, actions = repair(request, "anthropic", request_id="req-2")
    (record,) = caplog.records
    assert (record.levelno, len(actions)) == (logging.INFO, 1)
    assert record.getMessage().startswith("[req-2] repaired the sequence: 1 moved; such as messages[1]: moved: ")
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        assert repair(fixed, "anthropic").request is fixed
    assert not caplog.records
