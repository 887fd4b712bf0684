"""What small endpoints read of a request: numbers of the query and JSON bodies, and the errors for everything else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from antiphon.errors import WireError
from antiphon_gateway.runtime.body_fields import query_number, read_body_as, read_object


class Point(Struct):
    x: int


@pytest.mark.parametrize(("given", "found"), [({}, 7), ({"n": ""}, 7), ({"n": "1"}, 1), ({"n": "0100"}, 100)])
def test_a_query_number_has_a_default(given: dict[str, str], found: int) -> None:
    assert query_number(given, "n", 7, most=100) == found


@pytest.mark.parametrize("given", ["0", "101", "-1", "1.5", "a", "١", "9" * 19, " 1"])
def test_another_number_is_refused_with_what_is_expected(given: str) -> None:
    with pytest.raises(WireError, match=r"n: expected a number from 1 to 100, got "):
        query_number({"n": given}, "n", 7, most=100)


def test_the_smallest_number_and_the_words_of_the_error_can_be_set() -> None:
    assert query_number({"n": "0"}, "n", -1, least=0) == 0
    with pytest.raises(WireError, match="n: expected the id of an event, got 'x'"):
        query_number({"n": "x"}, "n", -1, least=0, expected="the id of an event")


def test_bodies() -> None:
    assert read_object(b'{"x": 1}') == {"x": 1}
    assert read_body_as(b'{"x": 1}', Point).x == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"x": "\xff"}', b'{"x":' + b"[" * 100_000])
def test_a_body_that_is_not_such_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(WireError, match="the body is not a JSON object: "):
        read_object(body)
    kinds: tuple[Any, ...] = (Point, dict[str, Any])
    for kind in kinds:
        with pytest.raises(WireError, match=r"; send a point$"):
            read_body_as(body, kind, advice="send a point")
