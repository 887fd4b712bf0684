"""The objects of a JSON array come out as they went in, however they are written and cut."""

from __future__ import annotations

import json
from itertools import cycle
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.wire.streams.json_array import JsonStreamReader
from support.cases import each_case
from support.examples import scaled

words = st.sampled_from(["rain", "}", "{", "\n}", '"', "\\", 'a}\n,{"b":1}', "é", "", "]"])
values = st.recursive(
    words | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=12,
)
objects = st.lists(st.dictionaries(words, values, max_size=3), max_size=6)
indents = st.lists(st.sampled_from([None, 0, 2, 2, 2]), min_size=1, max_size=6)
borders = st.sampled_from([",", ",\r\n", "\n,\r\n", " , "])
sizes = st.lists(st.sampled_from([1, 3, 17, 60, 5_000]), min_size=1, max_size=8)


def read(data: bytes, cuts: list[int]) -> tuple[list[Any], JsonStreamReader]:
    reader, found, at = JsonStreamReader(), [], 0
    while at < len(data):
        size = cuts[at % len(cuts)]
        found += reader.feed(data[at : at + size])
        at += size
    return [json.loads(each.data) for each in (*found, *reader.close())], reader


@each_case("data", [b'[{"a":1},2,{"b":2}]', b'[{"a":1} [{"b":2}]', b'[{"a":1},null]'])
def test_an_array_ends_at_a_value_of_another_type(data: bytes) -> None:
    for cut in range(len(data)):
        reader = JsonStreamReader()
        found = [event.data for event in (*reader.feed(data[:cut]), *reader.feed(data[cut:]))]
        assert found == [b'{"a":1}', b"}"]
        assert not reader.is_complete


@settings(max_examples=scaled(25))
@given(objects, indents, borders, sizes, st.integers(0, 2_000))
def test_an_array_in_any_layout_and_any_cut(
    given_objects: list[Any], each_indent: list[int | None], border: str, cuts: list[int], end: int
) -> None:
    lines = [json.dumps(each, indent=indent) for each, indent in zip(given_objects, cycle(each_indent), strict=False)]
    data = f"[{border.join(lines)}\n]".encode()
    found, reader = read(data, cuts)
    assert found == given_objects
    assert reader.is_complete
    started = data[: 1 + end % (len(data) - 1)]
    found, reader = read(started, cuts)
    assert found == given_objects[: len(found)]
    assert reader.is_complete is (started == data)


def test_a_deeper_object_is_read_after_one_on_several_lines() -> None:
    deep = json.loads("[" * 3 + '{"a":' * 12 + "1" + "}" * 12 + "]" * 3)
    data = f"[{json.dumps({'a': 1}, indent=2)},{json.dumps({'deep': deep})}]".encode()
    found, reader = read(data, [5_000])
    assert found == [{"a": 1}, {"deep": deep}]
    assert reader.is_complete
