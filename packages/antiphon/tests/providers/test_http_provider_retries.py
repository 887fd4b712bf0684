"""When the HTTP client retries, how long it waits, and when it takes another key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from antiphon.http.client.request import Timeouts
from antiphon.providers.call import RetryScheduled
from antiphon.providers.keys.secret import Credential
from antiphon.providers.retry import RetryPolicy
from antiphon.wire.delta import PartDelta
from providers.http_client import CHAT, ERROR_429, KEY, OTHER, Canned, Pace, ask, asked, client_of
from providers.sample_answers import error_of, text_of
from providers.scripted_server import Reply, ScriptedServer

# Trying again.


def test_a_storm_of_rate_limits_is_waited_out() -> None:
    pace, options = Pace(), asked()
    storm = msgspec.structs.replace(ERROR_429, headers={"retry-after": "7"})
    with ScriptedServer(storm, storm, Reply(body=CHAT)) as server:
        client = client_of(server, pace=pace)
        deltas = ask(client, options)
    assert text_of(deltas) == "Rain."
    assert client.credentials is not None
    (key,) = client.credentials.status()
    assert (key.models, key.successes, key.failures) == ({}, 1, 2)  # the last try was a probe, and healed
    assert pace.slept == [7.5, 14.5]  # the second time the pool waits twice as long
    errors = [attempt.error for attempt in options.report.attempts]
    assert [(error.kind, error.retry_after) if error else None for error in errors] == [
        ("rate_limit", 7.0),
        ("rate_limit", 7.0),
        None,
    ]


def test_every_wait_is_reported_before_it_begins() -> None:
    pace, options = Pace(), asked()
    waits: list[tuple[float, str, float | None, int]] = []

    def on_retry(event: RetryScheduled) -> None:
        assert abs((event.at - datetime.now(UTC)).total_seconds() - event.seconds) < 60
        assert event.model == "openai/m"
        waits.append((event.seconds, event.error.kind, event.error.retry_after, len(pace.slept)))

    options.on_retry = on_retry
    limited = msgspec.structs.replace(ERROR_429, headers={"retry-after": "7"})
    with ScriptedServer(limited, Reply(status=503, body=b"down"), Reply(body=CHAT)) as server:
        assert text_of(ask(client_of(server, pace=pace), options)) == "Rain."
    assert waits == [(7.5, "rate_limit", 7.0, 0), (pace.slept[1], "overloaded", None, 1)]


def test_a_wait_that_is_too_long_is_left_to_others() -> None:
    pace = Pace()
    with ScriptedServer(msgspec.structs.replace(ERROR_429, headers={"retry-after": "3600"})) as server:
        client = client_of(server, pace=pace)
        assert error_of(ask(client)).retry_after == 3600.0
        again = error_of(ask(client))
        assert len(server.received) == 1  # the key is known to be on cooldown: no request is sent
    assert pace.slept == []
    assert (again.kind, again.code, again.retry_after) == ("rate_limit", "no_usable_credential", 3600.0)


def test_retries_end() -> None:
    options = asked()
    with ScriptedServer(Reply(status=500)) as server:
        error = error_of(ask(client_of(server, retry=RetryPolicy(retries=4)), options))
        assert len(server.received) == 5
    assert error.kind == "server"
    assert len(options.report.attempts) == 5


@pytest.mark.parametrize(
    ("reply", "requests"),
    [
        (Reply(status=400, body=b'{"error":{"message":"Missing required parameter"}}'), 1),
        (Reply(status=500, headers={"x-should-retry": "false"}), 1),
        (Reply(status=400, headers={"x-should-retry": "true"}), 3),
        (Reply(status=409), 3),
        (Reply(status=0), 3),
        (Reply(body=CHAT[:30], cut_after=30), 3),
    ],
)
def test_retries_by_kind_of_failure(reply: Reply, requests: int) -> None:
    with ScriptedServer(reply) as server:
        error_of(ask(client_of(server)))
        assert len(server.received) == requests


def test_no_retry_after_visible_output() -> None:
    with ScriptedServer(Reply(body=CHAT, cut_after=100)) as server:
        deltas = ask(client_of(server))
        assert len(server.received) == 1
    assert any(isinstance(delta, PartDelta) for delta in deltas)
    assert error_of(deltas).kind == "stream_cut"


def test_the_total_is_over_all_tries() -> None:
    pace, transport = Pace(), Canned(status=500)
    retry = RetryPolicy(retries=9)
    client = client_of("http://nowhere", pace=pace, transport=transport, timeouts=Timeouts(total=1.25), retry=retry)
    error_of(ask(client))
    assert [request.timeouts.total for request in transport.requests] == [1.25, 0.75]
    assert pace.slept == [0.5]


# Keys.


def by_key(replies: dict[str, Reply]) -> Any:
    return lambda received: replies[received.headers["authorization"].removeprefix("Bearer ")]


@pytest.mark.parametrize(
    ("refusal", "state"),
    [
        (Reply(status=401, body=b'{"error":{"message":"Invalid API key"}}'), "invalid"),
        (Reply(status=400, body=b'{"error":{"message":"Incorrect API key provided"}}'), "invalid"),
        (Reply(status=429, body=b'{"error":{"code":"insufficient_quota","message":"pay"}}'), "exhausted"),
        (ERROR_429, "cooling"),
    ],
)
def test_a_key_that_is_refused_makes_room_for_the_next_without_a_wait(refusal: Reply, state: str) -> None:
    pace, options = Pace(), asked()
    keys = [Credential(secret=KEY, name="first"), Credential(secret=OTHER, name="second")]
    with ScriptedServer(by_key({KEY: refusal, OTHER: Reply(body=CHAT)})) as server:
        client = client_of(server, keys=keys, pace=pace, retry=RetryPolicy(retries=0))
        assert text_of(ask(client, options)) == "Rain."
        assert text_of(ask(client)) == "Rain."
        assert len(server.received) == 3  # the second call knows which key to take
    assert pace.slept == []
    assert [attempt.credential for attempt in options.report.attempts] == ["first", "second"]
    assert client.credentials is not None
    first = client.credentials.status()[0]
    assert state in (first.state, *(held.state for held in first.models.values()))


def test_rotations_are_bounded_too() -> None:
    with ScriptedServer(Reply(status=401)) as server:
        keys = [f"sk-key-number-{number:08}" for number in range(6)]
        error = error_of(ask(client_of(server, keys=keys, retry=RetryPolicy(retries=5, rotations=3))))
        assert len(server.received) == 4
    assert error.kind == "authentication"


def test_a_provider_without_keys_is_asked_without() -> None:
    with ScriptedServer(Reply(status=500), Reply(body=CHAT)) as server:
        options = asked()
        assert text_of(ask(client_of(server, keys=[]), options)) == "Rain."
        assert "authorization" not in server.received[0].headers
    assert options.report.attempts[0].credential == ""
