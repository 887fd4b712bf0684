"""When two requests are the same, and what is said when none is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon_devtools.cassettes.differences import describe_miss, find_nearest
from antiphon_devtools.cassettes.matching import (
    ComparedRequest,
    MatchRules,
    RequestMatcher,
    check_ignored_paths,
    read_request,
)
from antiphon_devtools.cassettes.redaction import Redactor

PATH = "/v1/chat/completions"


def compared(
    body: Any, rules: MatchRules | None = None, *, kind: str = "application/json", path: str = PATH, **query: str
) -> ComparedRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request, _ = read_request(
        Redactor(), method="POST", path=path, query=query, headers={"content-type": kind}, body=data
    )
    return RequestMatcher(rules).compared(request)


def is_same(one: Any, other: Any, rules: MatchRules | None = None) -> bool:
    return compared(one, rules).digest == compared(other, rules).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1,"b":[2]}', b'{ "b": [2.0], "a": 1.0 }'),
        ({"a": 1, "b": None}, {"a": 1}),
        (b'{"text":"\\u5317"}', '{"text":"北"}'.encode()),
        ({"metadata": {"user_id": "x", "team": 1}}, {"metadata": {"user_id": "y", "team": 1}}),
        ({"prompt_cache_key": "a"}, {"prompt_cache_key": "b"}),
        ({"key": "sk-aaaaaaaaaaaaaaaa1"}, {"key": "sk-bbbbbbbbbbbbbbbb2"}),
    ],
)
def test_requests_that_mean_the_same_match(one: Any, other: Any) -> None:
    assert is_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": "1"}),
        ({"a": True}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": 1.5}, {"a": 1}),
        ({"text": "on 2026-01-01"}, {"text": "on 2026-01-02"}),
        (b"\xff\xfe", b"\xff\xfd"),
    ],
)
def test_requests_that_differ_do_not_match(one: Any, other: Any) -> None:
    assert not is_same(one, other)


def test_levels_of_matching() -> None:
    one = {
        "messages": [
            {"content": "Today is 2026-11-16, 15:40. Session 0b8c3f1e-2b1f-4a4e-9d59-1f0a0b0c0d0e, Nov 16, 2026"}
        ]
    }
    other = {
        "messages": [
            {"content": "Today is 2026-11-17, 09:01. Session 1b8c3f1e-2b1f-4a4e-9d59-1f0a0b0c0d0e, Nov 17, 2026"}
        ]
    }
    assert not is_same(one, other)
    assert is_same(one, other, MatchRules("loose"))
    assert not is_same(one, {"messages": [{"content": "Today is sunny."}]}, MatchRules("loose"))
    assert is_same(one, {"something": "else"}, MatchRules("path"))
    assert not is_same({"prompt_cache_key": "a"}, {"prompt_cache_key": "b"}, MatchRules("exact"))


@pytest.mark.parametrize(
    ("pattern", "is_ignored"),
    [
        ("messages[*].id", True),
        ("messages[1].id", True),
        ("messages[0].id", False),
        ("messages", True),
        ("*[*].id", True),
        ("message", False),
        ("messages[*].i*", True),
    ],
)
def test_ignored_fields(pattern: str, is_ignored: bool) -> None:
    one, other = ({"messages": [{"a": 1}, {"id": value, "a": 2}]} for value in ("x", "y"))
    assert is_same(one, other, MatchRules(ignore=(pattern,))) is is_ignored


def test_query_fields_count_and_can_be_ignored() -> None:
    assert compared({}, alt="sse").digest != compared({}).digest
    assert compared({}, key="a").digest == compared({}, key="b").digest
    rules = MatchRules(ignore=("query.alt",))
    assert compared({}, rules, alt="sse").digest == compared({}, rules).digest
    assert compared({}, path=f"{PATH}/").digest == compared({}).digest


@pytest.mark.parametrize("path", ["", ".a", "[0]", "a..b", "a[x]"])
def test_invalid_ignored_paths_are_named(path: str) -> None:
    assert f"{path!r} is not a path of a field" in check_ignored_paths([path])
    assert check_ignored_paths(["metadata.user_id", "a[*].b", "a[0]", "x-y"]) == ""


def multipart(boundary: str, content: bytes) -> bytes:
    head = f'--{boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{boundary}\r\n'
    file = 'content-disposition: form-data; name="file"; filename="a.png"\r\ncontent-type: image/png\r\n\r\n'
    return head.encode() + file.encode() + content + f"\r\n--{boundary}--\r\n".encode()


def test_multipart_bodies_are_compared_without_their_boundary() -> None:
    def form(boundary: str, content: bytes) -> ComparedRequest:
        return compared(multipart(boundary, content), kind=f"multipart/form-data; boundary={boundary}")

    assert form("abc", b"\x89PNG\r\n--x").digest == form("zzzz", b"\x89PNG\r\n--x").digest
    assert form("abc", b"\x89PNG1").digest != form("abc", b"\x89PNG2").digest
    parts = form("abc", b"\x89PNG1").fields["body"]["multipart"]
    assert parts[0] == {"name": "purpose", "text": "batch"}
    assert (parts[1]["filename"], parts[1]["bytes"]) == ("a.png", 5)


def test_the_nearest_request_and_how_it_differs() -> None:
    recorded = [
        (1, compared({"model": "m", "messages": [{"role": "user", "content": "Is it raining in Oslo?"}]})),
        (2, compared({"model": "m", "messages": [{"role": "user", "content": "Tell me a joke."}]})),
        (3, compared({"model": "m"}, path="/v1/embeddings")),
    ]
    sent = compared(
        {"model": "m", "temperature": 0.5, "messages": [{"role": "user", "content": "Is it raining in Bergen?"}]}
    )
    nearest = find_nearest(recorded, sent)
    assert nearest is not None
    assert nearest.number == 1
    assert describe_miss("tape.db", recorded, sent).splitlines() == [
        "no recorded answer for POST /v1/chat/completions in tape.db",
        "nearest is exchange 1; it differs in:",
        '  messages[0].content: recorded "Is it raining in Oslo?", sent "Is it raining in Bergen?"',
        "  temperature: recorded absent, sent 0.5",
        "record it (--record), or leave a field out of the comparison (--ignore FIELD, --match loose)",
    ]


def test_a_miss_without_a_request_of_its_path() -> None:
    recorded = [(1, compared({}, path="/v1/embeddings"))]
    assert "recorded are only: POST /v1/embeddings" in describe_miss("t", recorded, compared({}))
    assert "the tape is empty" in describe_miss("t", [], compared({}))


def test_the_description_of_a_miss_is_bounded() -> None:
    long = "x" * 2_000
    one = compared({"messages": [{"content": long + "a" + long, "n": n} for n in range(3)]})
    other = compared({"messages": [{"content": long + "b" + long, "n": -n - 1} for n in range(500)]})
    text = describe_miss("tape.db", [(1, one)], other)
    assert len(text) < 8000
    assert "and at least 188 more" in text
    assert [word in text for word in ("…", "xa", "xb")] == [True] * 3
