"""Lines that change with every request: what is made stable, what is left alone, and what is reported."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from antiphon.wire import FORMATS
from antiphon_gateway.config.settings import CacheDoctorSettings
from antiphon_gateway.generate.volatile_lines import VolatileLine, normalise_lines

ALL = get_args(VolatileLine)


def normalised(text: str, *names: str) -> str:
    body, _ = normalise_lines(msgspec.json.encode({"system": text}), "anthropic", names or ALL)
    found: str = msgspec.json.decode(body)["system"]
    return found


@pytest.mark.parametrize(
    ("line", "stable"),
    [
        ("Current time: 2026-11-16T15:50:12.123Z", "Current time: 2026-11-16"),
        ("Current time: 2026-11-16 15:50:12 +01:00", "Current time: 2026-11-16"),
        ("Current date and time: Mon Nov 16 15:40:03 UTC 2026", "Current date and time: Mon Nov 16 UTC 2026"),
        ("The current time is 10:01 PM.", "The current time is."),
        ("timestamp: 2026-11-16T15:50", "timestamp: 2026-11-16"),
        ("<local_time>Nov 16, 9:05 am (local time)</local_time>", "<local_time>Nov 16, (local time)</local_time>"),
        ("当前时间：2026年11月16日 15:50:12", "当前时间：2026年11月16日"),
        ("现在时间15:50", "现在时间"),
        ("request id: 01a1de5a-c4d5-78b2", "request id: (left out)"),
        ("- X-Request-ID: 'req_0123456789'", "- X-Request-ID: (left out)"),
        ("trace_id=0123456789abcdef", "trace_id=(left out)"),
        (
            "x-anthropic-billing-header: cc_version=2.1.325; cc_entrypoint=cli; cch=a1b2c;",
            "x-anthropic-billing-header: cc_version=2.1.325; cc_entrypoint=cli;",
        ),
    ],
)
def test_a_line_becomes_stable_once(line: str, stable: str) -> None:
    assert normalised(f"Before.\n{line}\nAfter.") == f"Before.\n{stable}\nAfter."
    assert normalised(stable) == stable


@pytest.mark.parametrize(
    "line",
    [
        "The shop opens at 10:00.",
        "Ratio 16:9, see 3:16.",
        "Today's date: 2026-11-16",
        "Every request id must be logged.",
        "Use cch=1; in the query.",
        "Current time " + "x" * 600 + " 10:01:02",
    ],
)
def test_other_lines_are_left_alone(line: str) -> None:
    body = msgspec.json.encode({"system": line})
    assert normalise_lines(body, "anthropic", ALL) == (body, [])


def test_only_the_named_kinds_are_changed() -> None:
    text = "Current time: 2026-11-16 10:01\ntrace-id: 0123456789"
    assert normalised(text, "clock") == "Current time: 2026-11-16\ntrace-id: 0123456789"


LINE = "Current time: 2026-11-16 10:01:02"


@pytest.mark.parametrize(
    ("format_name", "body", "paths"),
    [
        ("anthropic", {"system": LINE}, ["system"]),
        ("anthropic", {"system": [{"type": "text", "text": LINE}]}, ["system[0].text"]),
        ("anthropic", {"messages": [{"role": "system", "content": [{"text": LINE}]}]}, ["messages[0].content[0].text"]),
        ("openai-chat", {"messages": [{"role": "developer", "content": LINE}]}, ["messages[0].content"]),
        ("openai-responses", {"instructions": LINE, "input": LINE}, ["instructions"]),
        ("openai-responses", {"input": [{"role": "system", "content": LINE}]}, ["input[0].content"]),
        ("gemini", {"systemInstruction": {"parts": [{"text": LINE}]}}, ["systemInstruction.parts[0].text"]),
        ("gemini-interactions", {"system_instruction": LINE}, ["system_instruction"]),
    ],
)  # fmt: skip
def test_instructions_of_every_format_are_changed_and_reported(
    format_name: str, body: dict[str, Any], paths: list[str]
) -> None:
    data, losses = normalise_lines(msgspec.json.encode({"model": "m", **body}), format_name, ALL)
    assert [(loss.path, loss.what) for loss in losses] == [(path, "clock") for path in paths]
    assert b"10:01:02" not in data or "input" in body
    assert "cache_doctor.normalise" in losses[0].why


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("role", ["user", "assistant", "tool", "model"])
def test_messages_of_people_models_and_tools_are_never_changed(format_name: str, role: str) -> None:
    message = {"role": role, "content": [{"type": "text", "text": LINE}], "parts": [{"text": LINE}]}
    body = msgspec.json.encode({"messages": [message], "input": [message], "contents": [message], "n": 1.0})
    assert normalise_lines(body, format_name, ALL) == (body, [])


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"system": ', b'{"system": 3}', b'{"system": [null, 4]}', b"\xff"])
def test_bodies_that_cannot_be_read_are_left_to_their_reader(body: bytes) -> None:
    assert normalise_lines(body, "anthropic", ALL) == (body, [])


def test_the_configuration_has_every_kind() -> None:
    assert CacheDoctorSettings(normalise=ALL).normalise == ALL
    config = msgspec.convert({"normalise": list(ALL)}, CacheDoctorSettings)
    assert config.normalise == ALL
