"""The status: bounded memory, the same from every worker, and requests that are found again."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.providers.call import Attempt
from antiphon.repair.action import Action
from antiphon.wire.loss import Loss
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon_gateway.ledger.search import RequestFilter
from antiphon_gateway.observe.recent import (
    MINUTES,
    Activity,
    Minute,
    RecentRequests,
    RequestRecord,
    percentile,
)
from antiphon_gateway.observe.status import matches, target_stats
from antiphon_gateway.share.workers import WorkerFiles
from gateway.observe.sample_status import NOW, sample_record, status


def test_a_record_has_the_facts_of_its_trace() -> None:
    record = RequestRecord.of(
        sample_record(
            repairs=[Action("moved", 3, "after its call")],
            losses=[Loss("messages[0]", "signature", "only anthropic can say it")],
            attempts=[
                Attempt(
                    provider="anthropic",
                    model="claude-4",
                    credential="sk-…wxyz",
                    error=ProviderError("no", "rate_limit"),
                ),
                Attempt(provider="anthropic", model="claude-4", status=200, seconds=1.5),
            ],
        )
    )
    assert (record.model, record.target, record.status) == ("claude-x", "anthropic/claude-4", 200)
    assert (record.seconds, record.first_token_seconds) == (2.0, 0.5)
    assert record.overhead_seconds == pytest.approx(0.001)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens, record.reasoning_tokens) == (
        100,
        20,
        60,
        7,
    )
    assert record.repairs == ("messages[3]: moved: after its call",)
    assert record.losses == ("messages[0]: signature: only anthropic can say it",)
    assert [attempt.error for attempt in record.attempts] == ["rate_limit: no", ""]
    assert record.outcome == "answered"


def test_a_record_is_always_small() -> None:
    huge = "x" * 100_000
    record = RequestRecord.of(
        sample_record(
            requested_model=huge,
            model=huge + "\ud800",
            error=ProviderError(huge, "server", native={"p": {"echo": huge}}),
            repairs=[Action("moved", n, huge) for n in range(10_000)],
            attempts=[Attempt(provider="p", model="m", error=ProviderError(huge, "server"))] * 10_000,
        )
    )
    assert record.repairs[-1] == "and 9980 more"
    assert len(msgspec.json.encode(status(Activity([record], [])))) < 25_000


@pytest.mark.parametrize(
    ("status", "kind", "was_sent", "outcome"),
    [
        (200, None, True, "answered"),
        (404, "not_found", False, "refused"),
        (499, None, True, "cancelled"),
        (429, "rate_limit", False, "refused"),
        (429, "rate_limit", True, "failed"),
        (502, "server", True, "failed"),
        (200, "stream_cut", True, "failed"),
        (200, "invalid_request", True, "refused"),
    ],
)
def test_the_outcome_says_who_failed_the_request(
    status: int, kind: ErrorKind | None, was_sent: bool, outcome: str
) -> None:
    error = ProviderError("why", kind) if kind is not None else None
    attempts = [Attempt(provider="p")] if was_sent else []
    assert RequestRecord.of(sample_record(status=status, error=error, attempts=attempts)).outcome == outcome


def test_the_rings_are_bounded_and_the_hour_has_no_gaps() -> None:
    now = [NOW.timestamp()]
    recent = RecentRequests(most=5, clock=lambda: now[0])
    for number in range(200):
        recent.add([sample_record(request_id=str(number), status=500 if number % 4 == 0 else 200, ended_at=now[0])])
        now[0] += 60
    seen = recent.activity()
    assert [record.id for record in seen.records] == ["199", "198", "197", "196", "195"]
    assert [minute.start for minute in seen.minutes] == [
        int(now[0]) // 60 * 60 - 60 * back for back in range(59, -1, -1)
    ]
    assert sum(minute.requests for minute in seen.minutes) == 59
    assert sum(minute.failed for minute in seen.minutes) == 14
    assert len(recent._minutes) <= MINUTES


@given(st.lists(st.floats(min_value=0.002, max_value=900), min_size=1), st.sampled_from([0.5, 0.9, 0.95, 1.0]))
def test_percentiles_are_right_to_five_in_a_hundred(times: list[float], fraction: float) -> None:
    minute = Minute(0)
    for seconds in times:
        minute.add(sample_record(seconds=seconds))
    exact = next(value for place, value in enumerate(sorted(times), 1) if place >= fraction * len(times))
    assert percentile(minute.seconds, fraction) == pytest.approx(exact, rel=0.05)


def test_percentiles_of_an_empty_list() -> None:
    assert percentile({}, 0.5) is None


def test_every_worker_reports_requests_of_all_workers(tmp_path: Path) -> None:
    now = [NOW.timestamp()]
    workers = [RecentRequests(snapshots=WorkerFiles(tmp_path), clock=lambda: now[0]) for _ in range(3)]
    for number, recent in enumerate(workers):
        for place in range(10):
            now[0] = NOW.timestamp() - 10 * place - number
            recent.add(
                [sample_record(request_id=f"{number}-{place}", status=200 if place % 2 else 502, ended_at=now[0])]
            )
        asyncio.run(recent.share())
    now[0] = NOW.timestamp()
    views = [recent.activity() for recent in workers]
    assert views[0] == views[1] == views[2]
    assert [record.id for record in views[0].records[:4]] == ["0-0", "1-0", "2-0", "0-1"]
    assert sum(minute.requests for minute in views[0].minutes) == 30
    assert views[0].workers == 3
    (tmp_path / "recent-broken").write_bytes(b"{")
    assert workers[0].activity().workers == 3


def test_unchanged_records_are_not_written_again(tmp_path: Path) -> None:
    recent = RecentRequests(snapshots=WorkerFiles(tmp_path, "w"))
    recent.add([sample_record(request_id="1")])
    asyncio.run(recent.share())
    (tmp_path / "recent-w").unlink()
    asyncio.run(recent.share())
    assert not (tmp_path / "recent-w").exists()
    recent.add([sample_record(request_id="2")])
    asyncio.run(recent.share())
    assert (tmp_path / "recent-w").exists()


def test_the_event_loop_does_not_encode_or_merge_the_records(tmp_path: Path) -> None:
    """Of the work for hundreds of records of each worker, the thread of the event loop does a small part."""
    workers = [RecentRequests(snapshots=WorkerFiles(tmp_path)) for _ in range(4)]

    async def shares_of_the_loop() -> list[float]:
        shares = []
        for call in [*[recent.share for recent in workers], workers[0].read]:
            await asyncio.sleep(0)
            began, loop_began = time.process_time(), time.thread_time()
            await call()
            shares.append((time.thread_time() - loop_began) / (time.process_time() - began))
        return shares

    for number, recent in enumerate(workers):
        for place in range(500):
            recent.add([sample_record(request_id=f"{number}-{place}", requested_model="m" * 200)])
    shares = asyncio.run(shares_of_the_loop())
    assert max(shares) < 0.4, shares
    assert len(workers[1].activity().records) == 500


def test_the_json_has_every_section() -> None:
    recent = RecentRequests(clock=NOW.timestamp)
    recent.add([sample_record()])
    expected_text = json.loads(msgspec.json.encode(status(recent.activity())))
    assert expected_text["server"]["version"] == "0.1.0"
    assert expected_text["uptime_seconds"] == 3 * 86_400
    assert expected_text["server"]["reload"] == {
        "time": "2025-11-15T14:42:10Z",
        "is_applied": False,
        "problems": ["line 3: claude-x"],
    }
    credential = expected_text["credentials"][0]
    assert (credential["state"], credential["until"]) == ("exhausted", "2025-11-15T14:43:40Z")
    assert credential["resting"] == [{"model": "claude-x", "state": "cooling", "until": "2025-11-15T14:42:40Z"}]
    assert credential["last_error"] == "rate_limit: slow down claude-x"
    assert expected_text["models"] == [{"name": "claude-x", "targets": ["anthropic/*", "claude-x"]}]
    assert expected_text["minutes"][-1]["requests"] == 1
    assert expected_text["minutes"][-1]["p50_seconds"] == pytest.approx(2.0, rel=0.05)
    assert expected_text["minutes"][0]["p50_seconds"] is None
    assert expected_text["requests"][0]["id"] == "01r"


RECORDS = [
    RequestRecord(id="01aaa", key="laptop", model="gpt-5", target="openai/gpt-5", status=200, seconds=1.0),
    RequestRecord(
        id="01bbb", key="phone", model="claude", target="openai/gpt-5", status=200, fallbacks=("a to b: overloaded",)
    ),
    RequestRecord(
        id="01ccc", key="phone", model="claude", target="a/c", status=502, error="server: It Broke", outcome="failed"
    ),
    RequestRecord(
        id="01ddd", key="", model="claude", target="a/c", status=200, error="stream_cut: it ended", outcome="failed"
    ),
    RequestRecord(id="01eee", key="", model="none", status=404, error="not_found: no", outcome="refused"),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, "abcde"),
        ({"q": "01CCC"}, "c"),
        ({"q": "it broke"}, "c"),
        ({"q": "overloaded"}, "b"),
        ({"key": "phone"}, "bc"),
        ({"model": "gpt"}, "ab"),
        ({"status": "5"}, "c"),
        ({"outcome": "failed"}, "cd"),
        ({"outcome": "refused"}, "e"),
        ({"key": "phone", "outcome": "failed"}, "c"),
        ({"q": "nothing has this"}, ""),
    ],
)
def test_requests_are_found_by_what_a_reader_knows(query: dict[str, str], found: str) -> None:
    search = RequestFilter.of(query)
    assert "".join(record.id[-1] for record in RECORDS if matches(search, record)) == found
    listed = json.loads(msgspec.json.encode(status(Activity(RECORDS, []), search=search)))["requests"]
    assert "".join(record["id"][-1] for record in listed) == found


def test_the_numbers_of_each_target() -> None:
    openai, other = target_stats(RECORDS)
    assert (openai.target, openai.requests, openai.failed) == ("openai/gpt-5", 2, 0)
    assert (other.target, other.requests, other.failed, other.p50_seconds) == ("a/c", 2, 2, None)
