"""Whatever a tool returns becomes parts, always the same, never too many characters."""

from __future__ import annotations

import base64
import datetime
import decimal
import enum
import json
import os
import re
import subprocess
import sys
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from antiphon.history import ToolCallResultsEntry
from antiphon.history.codec import encode_readable
from antiphon.parts import Document, Image, Native, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.results import (
    MAX_MEDIA_CHARACTERS,
    as_content,
    as_text,
    is_plain_text,
    size_of,
    to_result,
    truncate_content,
    truncate_text,
)
from support.cases import each_case

CALL = ToolCallRequest("t", "call_1")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


class Unit(enum.Enum):
    KELVIN = "kelvin"


class Place(NamedTuple):
    x: int
    y: int


@dataclass
class Point:
    x: int
    tags: set[str] = field(default_factory=set)


class Tagged(msgspec.Struct, tag="tagged", rename="camel"):
    some_value: float
    when: datetime.date | None = None


class Model(BaseModel):
    name: str
    when: datetime.date


class Silent:
    pass


class Speaking:
    def __str__(self) -> str:
        return "I speak"


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Mute:
    def __repr__(self) -> str:
        raise LookupError


circular: list[Any] = []
circular.append(circular)
deep: list[Any] = []
for _ in range(100_000):
    deep = [deep]

TEXTS: list[tuple[Any, str]] = [
    ("words", "words"),
    ("", "(no output)"),
    (None, "(no output)"),
    (True, "true"),
    (5, "5"),
    (1.5, "1.5"),
    (float("nan"), '"NaN"'),
    ({"b": 1, "a": float("-inf")}, '{"b":1,"a":"-Infinity"}'),
    ([1, "二"], '[1,"二"]'),
    ((1, None), "[1,null]"),
    ({"z", "a", "m"}, '["a","m","z"]'),
    (frozenset({3, 20, 1}), "[1,3,20]"),
    ({1: "a", (2, 3): "b", Unit.KELVIN: "c", None: "d"}, '{"1":"a","[2,3]":"b","kelvin":"c","null":"d"}'),
    (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
    (Unit.KELVIN, '"kelvin"'),
    (Place(1, 2), "[1,2]"),
    (Point(1, {"b", "a"}), '{"x":1,"tags":["a","b"]}'),
    ([Tagged(float("inf"))], '[{"type":"tagged","someValue":"Infinity","when":null}]'),
    (Model(name="A", when=datetime.date(2026, 1, 31)), '{"name":"A","when":"2026-01-31"}'),
    (datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC), '"2026-01-31T12:00:00Z"'),
    ({"u": uuid.UUID(int=1), "d": decimal.Decimal("1.50")}, '{"u":"00000000-0000-0000-0000-000000000001","d":"1.50"}'),
    (Path("a/b"), '"a/b"'),
    (ValueError("bad"), "ValueError: bad"),
    ([ValueError("bad"), KeyError()], '["ValueError: bad","KeyError"]'),
    (ExceptionGroup("two", [ValueError("a"), OSError("b")]), "ExceptionGroup: two: ValueError: a; OSError: b"),
    (Broken(), "Broken"),
    (b"plain", "plain"),
    (b"", "(no output)"),
    (b"\x00\xff\xfe", "(3 bytes of binary data, beginning with 00 ff fe)"),
    ({"data": b"\xff"}, '{"data":"/w=="}'),
    ("half \ud800 a pair", "half ? a pair"),
    (Silent(), '"(Silent object)"'),
    (Speaking(), '"I speak"'),
    (deque([1]), "[1]"),
    ({"rows": range(3), "names": {1: "b", 2: "a"}.values()}, '{"rows":[0,1,2],"names":["b","a"]}'),
    ((n for n in "ab"), '"(generator that was not read; the tool must return a list)"'),
    ({"rows": map(str, [1])}, '{"rows":"(map that was not read; the tool must return a list)"}'),
]  # fmt: skip


@each_case(("value", "text"), TEXTS)
def test_values_as_text(value: Any, text: str) -> None:
    assert as_content(value) == (Text(text),)
    text.encode()


@pytest.mark.parametrize("value", [circular, deep, {"a": circular}, Mute(), [Mute()], {(1,): Mute()}])
def test_unserialisable_results_are_reported(value: Any) -> None:
    (part,) = as_content(value)
    assert isinstance(part, Text)
    assert "cannot be written as JSON" in part.text
    assert len(part.text) < 1_000


def test_media() -> None:
    encoded = base64.b64encode(PNG).decode()
    assert as_content(PNG) == (Image(media_type="image/png", data=encoded),)
    assert as_content(memoryview(PNG)) == as_content(bytearray(PNG)) == as_content(PNG)
    assert as_content(b"%PDF-1.7") == (Document(media_type="application/pdf", data="JVBERi0xLjc="),)
    image = Image(url="https://example.org/a.png")
    assert as_content(image) == (image,)
    assert as_content(["see", image, {"a": 1}]) == (Text("see"), image, Text('{"a":1}'))


def test_results_and_exceptions_that_are_returned() -> None:
    own = ToolCallResult("x", "y", ToolExecutionStatus.FAILED, (Text("no"),), native={"mcp": {"a": 1}})
    assert to_result(CALL, own) == ToolCallResult(
        "t", "call_1", ToolExecutionStatus.FAILED, (Text("no"),), native=own.native
    )
    assert to_result(CALL, ToolCallResult("x", "y")).content == (Text("(no output)"),)
    assert to_result(CALL, ValueError("bad")).status is ToolExecutionStatus.FAILED
    assert to_result(CALL, "fine") == ToolCallResult.of(CALL, "fine")


def test_the_same_in_every_process() -> None:
    code = "from antiphon.tools.results import as_text; print(as_text({'a', 'b', 'c', 'd', 'e', 1, None, (1, 2)}))"
    expected = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert expected == {'[1,null,"a","b","c","d","e",[1,2]]\n'}


def test_fifty_megabytes_are_cut_visibly() -> None:
    text = "head" + "x" * 50_000_000 + "tail"
    (part,) = truncate_content((Text(text),), 10_000)
    assert isinstance(part, Text)
    assert part.text.startswith("headxxx")
    assert part.text.endswith("xxxtail")
    assert "49,990,085 of 50,000,008 characters omitted" in part.text
    assert len(part.text) == 10_000


def test_several_parts_share_the_room() -> None:
    image = Image(media_type="image/png", data="AAAA")
    parts = (Text("a" * 600), image, Text("b" * 600), Text("c"))
    first, second, third, fourth = truncate_content(parts, 1_000)
    assert (first, second) == parts[:2]
    assert isinstance(third, Text)
    assert isinstance(fourth, Text)
    assert "characters omitted" in third.text
    assert "1 of 1 characters omitted" in fourth.text


def test_media_no_model_takes_is_left_out() -> None:
    huge = Image(media_type="image/png", data="A" * (MAX_MEDIA_CHARACTERS + 1))
    assert truncate_content((huge,), 10) == (
        Text("(image left out: 20,000,001 characters of data are more than a model takes)"),
    )
    assert as_content(PNG + bytes(MAX_MEDIA_CHARACTERS))[0] == Text(
        "(20,000,016 bytes of binary data, beginning with 89 50 4e 47 0d 0a 1a 0a 00 00 00 00 00 00 00 00)"
    )


def test_sizes() -> None:
    assert size_of((Text("abc"), Image(data="AAAA"), Document(text="ab"), Native("mcp", {"a": 1}))) == 3 + 4 + 2 + 7


@given(st.text(), st.integers(1, 300))
def test_short_results_are_untouched_and_long_ones_bounded(text: str, limit: int) -> None:
    parts = (Text(text),)
    if len(text) <= limit:
        assert truncate_content(parts, limit) is parts
    else:
        assert len(truncate_text(text, limit)) <= max(limit, 130)
        shown = truncate_text(text, limit)
        mark = re.search(
            rf"\n\n\[… ([\d,]+) of {len(text):,} characters omitted; request a smaller part …\]\n\n", shown
        )
        assert mark is not None
        assert int(mark[1].replace(",", "")) == len(text) - (len(shown) - len(mark[0])), "what is gone is counted"


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3) | st.uuids(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=3)
    ),
)


@given(plain_values)
def test_text_is_legal_json_and_stable(value: Any) -> None:
    text = as_text(value)
    json.loads(text, parse_constant=pytest.fail)
    assert as_text(value) == text


class OwnText(str):
    """A text of another type."""


EXTRAS = ("native", "source")
ODD: tuple[Any, ...] = (5, b"x", True, (), [], {}, {"openai-chat": 5}, "x\ud800", OwnText("x"), "pending")


def test_a_plain_result_is_read_back_as_it_is() -> None:
    plain = to_result(CALL, "Rain, 7 degrees")
    (text,) = plain.content
    odd = [
        *(
            msgspec.structs.replace(plain, **{name: value})
            for name in ("tool_name", "status", "content", *EXTRAS)
            for value in ODD
        ),
        *(
            msgspec.structs.replace(plain, content=(msgspec.structs.replace(text, **{name: value}),))
            for name in ("text", *EXTRAS)
            for value in ODD
        ),
        msgspec.structs.replace(plain, content=[text]),
    ]
    wrong = [result for result in odd if encode_readable(ToolCallResultsEntry((result,))) is None]
    assert is_plain_text(plain)
    assert len(wrong) > len(odd) / 2
    assert [result for result in wrong if is_plain_text(result)] == []
