"""Secrets do not reach a tape: names, patterns, exact texts; in headers, queries, bodies and streams cut anywhere."""

from __future__ import annotations

import json

import pytest

from antiphon_devtools.cassettes.redaction import REMOVED, Redactor

SECRETS = [
    "sk-proj-AbCd1234efgh5678ijkl",
    "sk-ant-api03-abcdefgh12345678",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "ghp_abcdefghijklmnop0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVPmB92K27uhbUJU1p1r",
    "hf_abcdefghijklmnopqrst123",
    "ya29.a0AfH6SMBx1234567890abcdef",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_keys_of_providers_are_removed_from_text(secret: str) -> None:
    text = f'{{"content": "my key is {secret}, keep it"}}'
    assert Redactor().text(text) == f'{{"content": "my key is {REMOVED}, keep it"}}'


@pytest.mark.parametrize(
    "text",
    [
        "a task-specific-instruction-for-the-model-number-5",
        "sk-learn-is-a-library-for-python",
        '{"password": {"type": "string"}, "max_tokens": 100}',
        '{"tool_call_id": "call_AbCd1234efgh5678", "signature": "EqQBCkgIARABGAIiQL8"}',
        "今天奥斯陆下雨吗？",
        "see https://example.org/a?b=1&alt=sse",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    data = text.encode()
    assert Redactor().body(data) is data


@pytest.mark.parametrize(
    ("body", "cleared"),
    [
        ('{"authorization": "abc"}', '{"authorization": "[removed]"}'),
        ('{"Api_Key" : "a\\"b"}', '{"Api_Key" : "[removed]"}'),
        (
            r'{"arguments": "{\"password\": \"hunter2\", \"n\": 1}"}',
            r'{"arguments": "{\"password\": \"[removed]\", \"n\": 1}"}',
        ),
        ('{"url": "https://h/f?key=abc.def&alt=media"}', '{"url": "https://h/f?key=[removed]&alt=media"}'),
        ('{"dsn": "postgres://me:pass@host/db"}', '{"dsn": "postgres://[removed]@host/db"}'),
        ('{"h": "Bearer abcdefgh12345678ij"}', '{"h": "Bearer [removed]"}'),
        ('{"x_team": "blue"}', '{"x_team": "[removed]"}'),
    ],
)
def test_fields_and_urls_are_cleared(body: str, cleared: str) -> None:
    redactor = Redactor(["X_Team"])
    assert redactor.text(body) == cleared
    assert redactor.text(cleared) == cleared


def test_headers_and_queries() -> None:
    redactor = Redactor(["x-team"], ["a-known-secret-text"])
    headers = {
        "authorization": "Bearer x",
        "x-api-key": "y",
        "cookie": "session=1",
        "set-cookie": "a=b",
        "x-team": "blue",
        "x-note": "has a-known-secret-text in it",
        "x-ratelimit-remaining-tokens": "100",
        "content-type": "application/json",
    }
    assert redactor.headers(headers) == {
        "authorization": REMOVED,
        "x-api-key": REMOVED,
        "x-team": REMOVED,
        "x-note": f"has {REMOVED} in it",
        "x-ratelimit-remaining-tokens": "100",
        "content-type": "application/json",
    }
    assert redactor.query({"key": "abc", "access_token": "x", "ticket": "t", "alt": "sse"}) == {"alt": "sse"}


def test_a_known_secret_is_removed_and_a_short_one_is_not() -> None:
    known = Redactor().knowing("hello-this-is-mine", "test")
    assert known.text("hello-this-is-mine test") == f"{REMOVED} test"
    assert Redactor().knowing("test") is not known


def test_a_stream_is_cleared_wherever_it_was_cut() -> None:
    text = f'data: {{"delta":"key {SECRETS[0]} end"}}\n\ndata: {{"password":"öffne"}}\n\n'.encode()
    cleared = text.replace(SECRETS[0].encode(), REMOVED.encode()).replace("öffne".encode(), REMOVED.encode())
    for size in range(1, len(text) + 1):
        pieces = [(place, text[place : place + size]) for place in range(0, len(text), size)]
        found = Redactor().pieces(pieces)
        assert b"".join(data for _, data in found) == cleared
        assert [at for at, _ in found] == sorted(at for at, _ in found)
    plain = [(0, b"a"), (5, b"b")]
    assert Redactor().pieces(plain) is plain


def events(*values: object) -> list[tuple[int, bytes]]:
    return [(number, f"data: {json.dumps(value)}\n\n".encode()) for number, value in enumerate(values)]


def test_a_key_that_a_model_spells_out_over_several_events_is_removed() -> None:
    spelled = ["my key: s", "k-proj-", "AbCd1234", "efgh5678ij", " is 秘密"]
    stream = events(*({"id": "c-1", "choices": [{"delta": {"content": text}}]} for text in spelled), {"done": True})
    cleared = Redactor().pieces(stream)
    found = [json.loads(data.removeprefix(b"data: ")) for _, data in cleared]
    assert [one["choices"][0]["delta"]["content"] for one in found[:-1]] == [
        f"my key: {REMOVED}",
        "",
        "",
        "",
        " is 秘密",
    ]
    assert [one["id"] for one in found[:-1]] == ["c-1"] * 5
    assert cleared[4:] == stream[4:]  # events without a part of it stay as they were
    whole = b"".join(data for _, data in stream)
    halves = [(0, whole[:70]), (1, whole[70:])]
    assert b"".join(data for _, data in Redactor().pieces(halves)) == b"".join(data for _, data in cleared)


def test_a_password_in_the_arguments_of_a_streamed_call_is_removed() -> None:
    stream = events(*({"delta": {"partial_json": text}} for text in ('{"pass', 'word": "hun', 'ter2", "n": 1}')))
    found = [json.loads(data.removeprefix(b"data: "))["delta"]["partial_json"] for _, data in Redactor().pieces(stream)]
    assert json.loads("".join(found)) == {"password": REMOVED, "n": 1}


def test_lines_of_json_are_cleared_too_and_broken_ones_stay() -> None:
    broken = [b"{not json}\n", b'{"response":"\xff"}\n', b'{"response":' + b"[" * 5_000 + b"]" * 5_000 + b"}\n"]
    lines = [b'{"response":"sk-proj-"}\n', b'{"response":"AbCd1234efgh5678ij"}\n', *broken]
    found = Redactor().pieces(list(enumerate(lines)))
    assert b"".join(data for _, data in found) == b'{"response":"[removed]"}\n{"response":""}\n' + b"".join(broken)
