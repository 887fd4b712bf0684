"""What is counted is what a scrape reads: parsed by Prometheus' own client, from one worker or the sum of several."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from bench.budget.counts import instructions_of
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from antiphon.parts import TokenUsage
from antiphon.providers.call import Attempt
from antiphon.providers.keys.health import CredentialStatus, KeyState, ModelStatus
from antiphon.repair.action import Action
from antiphon.wire.loss import Loss
from antiphon.wire.output import ProviderError
from antiphon_gateway.observe.metrics import STATES, Family, Histogram, Metrics
from antiphon_gateway.observe.record import Record
from antiphon_gateway.share.workers import WorkerFiles, repeat_forever


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(text: bytes, name: str, **labels: str) -> float:
    """The sum of the samples of that name with these labels."""
    found = [
        held
        for (known, pairs), held in samples(text).items()
        if known == name and labels.items() <= dict(pairs).items()
    ]
    assert found, f"no {name} with {labels} in {text.decode()}"
    return sum(found)


def status(state: KeyState, models: Mapping[str, ModelStatus] | None = None) -> CredentialStatus:
    return CredentialStatus(name="k", masked="sk-…wxyz", state=state, weight=1, models=models or {})


def count(metrics: Metrics, **facts: Any) -> None:
    metrics.add([Record(**{"request_id": "r", "status": 200, **facts})])


def count_one(metrics: Metrics, model: str = "claude-x") -> None:
    count(
        metrics,
        client_format="openai-chat",
        upstream_format="anthropic",
        requested_model=model,
        provider="anthropic",
        status=200,
        seconds=1.5,
        first_token_seconds=0.3,
        waiting_seconds=1.5 - 0.0007,
        usage=TokenUsage(100, 20, 60, 5, 7, 120),
        repairs=[Action("moved", 3, "after its call"), Action("moved", 4, "again")],
        losses=[Loss("messages[0]", "signature", "only anthropic can say it")],
        attempts=[
            Attempt(provider="anthropic", error=ProviderError("slow down", "rate_limit", 429)),
            Attempt(provider="anthropic", status=200),
        ],
        key="laptop",
        streams=True,
    )


def test_a_request_is_counted_in_every_way_it_is_asked_for() -> None:
    metrics = Metrics(["claude-*"], version="1.2")
    count_one(metrics)
    text = metrics.render()
    assert text.endswith(b"\n")
    for name, labels, expected in [
        ("antiphon_requests_total", {"model": "claude-*", "status": "200", "streamed": "true", "key": "laptop"}, 1),
        ("antiphon_tokens_total", {"kind": "prompt", "provider": "anthropic"}, 100),
        ("antiphon_tokens_total", {"kind": "completion"}, 20),
        ("antiphon_tokens_total", {"kind": "cached"}, 60),
        ("antiphon_tokens_total", {"kind": "cache_write"}, 5),
        ("antiphon_tokens_total", {"kind": "reasoning"}, 7),
        ("antiphon_request_seconds_sum", {"client_format": "openai-chat"}, 1.5),
        ("antiphon_request_seconds_bucket", {"le": "1"}, 0),
        ("antiphon_request_seconds_bucket", {"le": "2.5"}, 1),
        ("antiphon_request_seconds_bucket", {"le": "+Inf"}, 1),
        ("antiphon_first_token_seconds_bucket", {"le": "0.4"}, 1),
        ("antiphon_overhead_seconds_sum", {"upstream_format": "anthropic"}, 0.0007),
        ("antiphon_repairs_total", {"kind": "moved"}, 2),
        ("antiphon_losses_total", {"what": "signature"}, 1),
        ("antiphon_upstream_attempts_total", {"provider": "anthropic"}, 2),
        ("antiphon_upstream_failures_total", {"kind": "rate_limit"}, 1),
        ("antiphon_workers", {"version": "1.2"}, 1),
    ]:
        assert value(text, name, **labels) == pytest.approx(expected), (name, labels)


def test_gauges_of_requests_and_connections() -> None:
    metrics = Metrics()
    metrics.traffic.busy |= {"one", "other"}
    metrics.traffic.busy.discard("other")
    metrics.traffic.connections |= {"one", "other"}
    metrics.reloaded(is_applied=False)
    metrics.log_failed()
    text = metrics.render()
    assert value(text, "antiphon_requests_in_flight") == 1
    assert value(text, "antiphon_connections") == 2
    assert value(text, "antiphon_reloads_total", outcome="refused") == 1
    assert value(text, "antiphon_reloads_total", outcome="applied") == 0
    assert value(text, "antiphon_log_failures_total") == 1


def test_credentials_are_counted_by_state_and_removed_with_their_provider() -> None:
    metrics = Metrics()
    resting = status("healthy", {"m": ModelStatus("cooling", 3)})
    metrics.set_credentials(
        {"openai": [status("healthy"), status("invalid"), resting], "anthropic": [status("disabled")]}
    )
    text = metrics.render()
    label = {state: value(text, "antiphon_credentials", provider="openai", state=state) for state in STATES}
    assert label == {"healthy": 1, "cooling": 1, "invalid": 1, "exhausted": 0, "half_open": 0, "disabled": 0}
    metrics.set_credentials({"openai": []})
    assert b"anthropic" not in metrics.render()


@pytest.mark.parametrize(
    ("model", "label"),
    [("claude-3", "claude-*"), ("gpt-5", "gpt-5"), ("gpt-5-mini", "other"), ("claude-*", "claude-*"), ("", "other")],
)
def test_models_are_labelled_by_route(model: str, label: str) -> None:
    metrics = Metrics(["claude-*", "gpt-5"])
    count(metrics, requested_model=model)
    assert value(metrics.render(), "antiphon_requests_total", model=label) == 1


def test_a_reload_brings_its_own_routes() -> None:
    metrics = Metrics(["claude-*"])
    count(metrics, requested_model="gpt-5")
    metrics.use_models(["gpt-*"])
    count(metrics, requested_model="gpt-5")
    assert value(metrics.render(), "antiphon_requests_total", model="other") == 1
    assert value(metrics.render(), "antiphon_requests_total", model="gpt-*") == 1


def test_unknown_clients_create_no_metric_series() -> None:
    metrics = Metrics(["claude-*"])
    for number in range(5000):
        count(
            metrics,
            requested_model=f"invented-{number}",
            losses=[Loss("x", f"word{number}", "why"), Loss("x", f'"no word"\n{number}', "why")],
            key=f"key-{number}",
        )
    text = metrics.render()
    assert value(text, "antiphon_requests_total") == 5000
    assert value(text, "antiphon_losses_total") == 10_000
    assert text.count(b"\n") < 20_000
    assert text.count(b"antiphon_losses_total{") <= 66
    assert b"no word" not in text
    assert text.count(b"antiphon_requests_total{") <= 2001


@given(st.lists(st.tuples(st.text(), st.text()), max_size=8))
def test_labels_come_back_as_they_were(pairs: list[tuple[str, str]]) -> None:
    counter = Family("counter", "things_total", "Things.", ("one", "two"))
    for pair in pairs:
        counter.add(pair)
    text = counter.text(counter.rows)
    read = {(dict(labels)["one"], dict(labels)["two"]): held for (_, labels), held in samples(text.encode()).items()}
    assert read == {pair: pairs.count(pair) for pair in pairs}


@given(st.lists(st.floats(min_value=0, max_value=20)))
def test_a_histogram_counts_what_is_at_most_its_bounds(values: list[float]) -> None:
    histogram = Histogram("seconds", "Seconds.", (), (0.5, 1, 10))
    for one in values:
        histogram.observe((), one)
    read = samples(histogram.text(histogram.rows).encode()) if values else {}
    for bound in (0.5, 1, 10):
        if values:
            assert read[("seconds_bucket", (("le", f"{bound:g}"),))] == sum(one <= bound for one in values)
    if values:
        assert read[("seconds_bucket", (("le", "+Inf"),))] == read[("seconds_count", ())] == len(values)


def test_rows_beyond_the_limit_are_counted_together() -> None:
    counter = Family("counter", "things", "Things.", ("name",))
    counter.most_rows = 2
    for name in "abcda":
        counter.add((name,))
    assert counter.rows == {("a",): [2], ("b",): [1], ("other",): [2]}


def test_any_worker_reports_the_sum(tmp_path: Path) -> None:
    workers = [Metrics(["claude-*"], snapshots=WorkerFiles(tmp_path)) for _ in range(3)]
    for number, metrics in enumerate(workers):
        for _ in range(number + 1):
            count_one(metrics)
        metrics.traffic.busy.add("one")
        metrics.set_credentials({"anthropic": [status("healthy")]})
        metrics.share()
    for metrics in workers:
        text = metrics.render()
        assert value(text, "antiphon_requests_total") == 6
        assert value(text, "antiphon_request_seconds_sum") == 9
        assert value(text, "antiphon_requests_in_flight") == 3
        assert value(text, "antiphon_workers") == 3
        assert text.count(b'state="healthy"') == 3


def test_counters_never_decrease_on_any_worker(tmp_path: Path) -> None:
    one, other = (Metrics(snapshots=WorkerFiles(tmp_path)) for _ in range(2))
    seen = []
    for metrics in (one, other):
        count(metrics)
        metrics.share()
    for step in range(20):
        count(one if step % 3 else other)
        seen.append(value((other if step % 2 else one).render(), "antiphon_requests_total"))
    assert seen == sorted(seen)
    one.share()
    assert value(other.render(), "antiphon_requests_total") == 22


def test_ended_workers_keep_their_counts_and_lose_their_gauges(tmp_path: Path) -> None:
    alive, ended, crashed = (Metrics(snapshots=WorkerFiles(tmp_path)) for _ in range(3))
    for metrics in (alive, ended, crashed):
        count(metrics)
        metrics.traffic.busy.add("one")
        metrics.share()
    ended.close()
    assert value(alive.render(), "antiphon_requests_in_flight") == 2
    for file in tmp_path.iterdir():
        os.utime(file, (1000.0, 1000.0))
    text = alive.render()
    assert value(text, "antiphon_requests_in_flight") == 1
    assert value(text, "antiphon_requests_total") == 3


def test_a_folder_that_is_gone_or_damaged_costs_only_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics(snapshots=WorkerFiles(tmp_path / "gone"))
    count(metrics)
    assert value(metrics.render(), "antiphon_requests_total") == 1
    metrics.render()
    assert caplog.text.count("cannot write worker snapshots") == 1
    (tmp_path / "metrics-x").write_bytes(b'{"time": 1, "has_en')
    assert value(Metrics(snapshots=WorkerFiles(tmp_path)).render(), "antiphon_workers") == 1


def test_sharing_continues_until_cancelled_whatever_fails(tmp_path: Path) -> None:
    async def shared_twice() -> None:
        calls = 0
        is_enough = asyncio.Event()

        def share() -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                is_enough.set()
            raise ValueError("what is shared cannot be encoded")

        task = asyncio.create_task(repeat_forever([share], 0.001))
        await asyncio.wait_for(is_enough.wait(), 10)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert calls >= 2

    asyncio.run(shared_twice())


def test_counting_is_cheap() -> None:
    """Some hundred instructions of ours, whatever was counted before."""
    metrics = Metrics(["claude-*"])
    count_one(metrics)
    first = instructions_of(lambda: count_one(metrics))
    for _ in range(2000):
        count_one(metrics)
    assert instructions_of(lambda: count_one(metrics)) <= first < 5_000
