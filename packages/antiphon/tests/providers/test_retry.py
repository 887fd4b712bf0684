"""When a client tries again, with which key, and how long it waits; and every form in which a provider says how long."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.http.client.request import Timeouts
from antiphon.providers.engine.reply import LONGEST, retry_after
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.retry import RETRY_RULES, RetryPolicy, Upstream, may_retry
from antiphon.providers.routes import Target
from antiphon.wire import formats
from antiphon.wire.output import ErrorKind, ProviderError
from providers.failing_calls import Clock, FailingRequest, Trace, call_in_vain

NOW = 1_760_000_000.0
LIMITED = ProviderError("Too many requests", "rate_limit", 429)
KEYS = ("sk-first-key-000000aaaa", "sk-second-key-00000bbbb", "sk-third-key-000000cccc")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20"}, 20.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": " 7 "}, 7.0),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, None),
        ({"retry-after-ms": "1500", "retry-after": "20"}, 1.5),
        ({"retry-after-ms": "0", "retry-after": "1"}, 1.0),  # as Azure was recorded
        ({"retry-after": "1m30s"}, 90.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "999999999"}, LONGEST),
        ({"x-ratelimit-reset-requests": "120ms"}, 0.12),
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-reset": str(int((NOW + 30) * 1000))}, 30.0),  # OpenRouter: milliseconds since 1970
        ({"x-ratelimit-reset": str(int(NOW + 30))}, 30.0),
        ({"ratelimit-reset": "17"}, 17.0),
        ({"anthropic-ratelimit-tokens-reset": "2025-10-09T08:54:20Z"}, 60.0),
        (
            {
                "x-ratelimit-reset-requests": "2s",
                "x-ratelimit-remaining-requests": "9",
                "x-ratelimit-reset-tokens": "40s",
                "x-ratelimit-remaining-tokens": "0",
            },
            40.0,
        ),
        ({"x-ratelimit-reset-requests": "2s", "x-ratelimit-reset-tokens": "40s"}, 2.0),
        ({"x-ratelimit-limit-requests": "10"}, None),
        ({}, None),
    ],
)
def test_the_wait_in_a_header(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, LIMITED, NOW) == (None if seconds is None else pytest.approx(seconds))


def test_the_providers_date_header_is_used() -> None:
    headers = {"date": formatdate(NOW, usegmt=True), "retry-after": formatdate(NOW + 5, usegmt=True)}
    assert retry_after(headers, LIMITED) == 5.0


def test_resets_of_limits_matter_only_to_what_was_limited() -> None:
    headers = {"x-ratelimit-reset-tokens": "6m0s"}
    assert retry_after(headers, ProviderError("down", "server", 500), NOW) is None


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Rate limit reached. Please try again in 20s. Visit …", 20.0),
        ("Please try again in 1.242s.", 1.242),
        ("Please try again in 6m0s.", 360.0),
        ("try again in 345ms", 0.345),
        ("Please retry after 12 seconds.", 12.0),
        ("Please retry in 39.5s.", 39.5),
        ("Retry after 2 minutes", 120.0),
        ("please wait 3 seconds", 3.0),
        ("Please try again later.", None),
        ("I tried 20 seconds", None),
    ],
)
def test_the_wait_in_an_error_message(message: str, seconds: float | None) -> None:
    assert retry_after({}, ProviderError(message, "rate_limit"), NOW) == (
        None if seconds is None else pytest.approx(seconds)
    )


@pytest.mark.parametrize("wrap", [lambda body: body, lambda body: [body]])
def test_the_delay_of_googles_retry_info(wrap: Callable[[Any], Any]) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "39s"}
    body = {
        "error": {"code": 429, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED", "details": [{}, info]}
    }
    for name in ("gemini", "openai-chat"):
        error = formats[name].read_error(wrap(body), 429)
        assert error.kind == "rate_limit"
        assert retry_after({}, error, NOW) == 39.0


@given(
    st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset", "date"]), st.text()),
    st.text(),
    st.recursive(
        st.none() | st.text() | st.floats() | st.integers() | st.booleans(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["retryDelay", "retry_after", "x"]), inner),
    ),
)
def test_any_retry_hint_gives_a_usable_wait(headers: dict[str, str], message: str, body: object) -> None:
    error = ProviderError(message, "rate_limit", native={"openai-chat": {"body": body}})
    wait = retry_after(headers, error)
    assert wait is None or 0 < wait <= LONGEST


def test_every_kind_of_error_has_a_reaction() -> None:
    assert set(RETRY_RULES) == set(get_args(ErrorKind))


@pytest.mark.parametrize(
    ("kind", "code", "advice", "expected"),
    [
        ("server", None, None, True),
        ("stream_cut", None, None, True),
        ("server", "tls_failed", None, False),
        ("timeout", "read_timeout", None, True),
        ("timeout", "total_timeout", None, False),
        ("invalid_request", None, None, False),
        ("invalid_request", None, "true", True),
        ("server", None, "false", False),
        ("server", None, "perhaps", True),
    ],
)
def test_which_errors_may_be_retried(kind: ErrorKind, code: str | None, advice: str | None, expected: bool) -> None:
    assert may_retry(ProviderError("no", kind, code=code), advice) is expected


@given(st.integers(0, 100), st.floats(0, 1), st.none() | st.floats(0, 200))
def test_a_delay_is_jittered_bounded_and_never_shorter_than_asked(
    retry: int, fraction: float, asked: float | None
) -> None:
    policy = RetryPolicy(first_delay=0.5, longest_delay=8.0, longest_wait=60.0)
    delay = policy.delay(retry, asked, lambda: fraction)
    if asked is None:
        assert delay == fraction * min(8.0, 0.5 * 2.0**retry)
    elif asked > 60.0:
        assert delay is None
    else:
        assert delay is not None
        assert asked <= delay <= asked + 0.5


TARGET = Target("mine", "m")


def upstream(clock: Clock, keys: int, *, total: float | None = None, retries: int = 2, rotations: int = 8) -> Upstream:
    pool = KeyRing(KEYS[:keys], clock=clock) if keys else None
    policy = RetryPolicy(retries=retries, rotations=rotations)
    return Upstream(retry=policy, keys=pool, timeouts=Timeouts(total=total), clock=clock, fraction=lambda: 1.0)


def fail(this: Upstream, clock: Clock, error: ProviderError) -> tuple[list[float], float | None]:
    """The delays between attempts that all fail with this error, 0 where another key is used; and the last one's time."""
    trace: Trace = []
    request = FailingRequest(this, clock, lambda: (error, None, 0.0), trace)
    call_in_vain([TARGET], [request], trace)
    steps = [step for step in trace if step[0] in ("send", "wait")]
    delays = [before[1] if before[0] == "wait" else 0.0 for before, (kind, _) in pairwise(steps) if kind == "send"]
    return delays, request.time_left


@pytest.mark.parametrize(
    ("keys", "error", "expected"),
    [
        (0, ProviderError("down", "server"), [0.5, 1.0]),
        (3, ProviderError("down", "server"), [0.5, 1.0]),
        (3, ProviderError("bad", "invalid_request"), []),
        (1, ProviderError("who?", "authentication"), []),
        (3, ProviderError("who?", "authentication"), [0.0, 0.0]),
        (3, ProviderError("pay", "billing"), [0.0, 0.0]),
        # three keys at once, then a wait for the first of them, twice as long after it failed again
        (3, ProviderError("slow down", "rate_limit", retry_after=2.0), [0.0, 0.0, 2.5, 0.0, 0.0, 4.5, 0.0, 0.0]),
        (1, ProviderError("slow down", "rate_limit", retry_after=61.0), []),
        (1, ProviderError("slow down", "rate_limit"), [1.5, 2.5]),
    ],
)
def test_rotations_and_retries_are_two_budgets(keys: int, error: ProviderError, expected: list[float]) -> None:
    clock = Clock()
    assert fail(upstream(clock, keys), clock, error)[0] == expected


def test_rotations_end() -> None:
    clock = Clock()
    assert fail(upstream(clock, 3, rotations=1, retries=0), clock, LIMITED)[0] == [0.0]


def test_a_wait_that_would_pass_the_deadline_is_not_begun() -> None:
    clock = Clock()
    assert fail(upstream(clock, 0, total=1.0), clock, ProviderError("down", "server")) == ([0.5], 0.5)
