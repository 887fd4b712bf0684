"""The sixteen scenarios of the public Failover Bench, with short times: what a client gets while its provider fails.

`bench/failover/scenarios.py` has the scenarios and their verdicts; `python -m bench failover` runs them with the times of the
bench.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
import pytest
from bench.failover.faulty_provider import HEALTHY, FaultyProvider, Times
from bench.failover.scenarios import SCENARIOS, Scenario, ask, run_scenario

from antiphon_gateway.config.settings import Config, GatewaySettings, ModelSettings, ProviderSettings
from gateway.rig import serving

TIMES = Times(
    retry_after=1.0,
    first_gap=0.9,
    slow_start=30.0,
    first_token_budget=25.0,
    stall=30.0,
    stall_budget=25.0,
    silence=60.0,
    silence_budget=50.0,
    end_budget=25.0,
    outage=3.0,
    recovery_budget=25.0,
    requests=12,
    interval=0.4,
    word=0.001,
    longest=60.0,
)
"""Faults that last far longer than the limits of the gateway, so that a slow machine changes no verdict."""
SETTINGS = GatewaySettings(
    port=0,
    format_port=0,
    log_level="error",
    hold_seconds=0.2,
    first_token_seconds=1.5,
    circuit_seconds=0.5,
    circuit_max_seconds=1.0,
    continue_streams=True,
)


@pytest.fixture(scope="module", name="provider")
def faulty_provider() -> Iterator[FaultyProvider]:
    with FaultyProvider(TIMES) as provider:
        yield provider


@pytest.fixture(scope="module", name="url")
def gateway_url(provider: FaultyProvider) -> Iterator[str]:
    config = Config(
        gateway=SETTINGS,
        providers=(ProviderSettings(name="wall", format="openai-chat", base_url=provider.url, read_seconds=1.5),),
        models=(
            *(
                ModelSettings(name=each.model, targets=(f"wall/{each.model}", f"wall/{each.fallback}"))
                for each in SCENARIOS
            ),
            ModelSettings(name=HEALTHY, targets=(f"wall/{HEALTHY}",)),
        ),
    )
    with serving(config, {}) as ports:
        yield f"http://127.0.0.1:{ports[0]}/v1"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.id} {scenario.title}")
def test_client_of_a_failing_provider_is_served(scenario: Scenario, provider: FaultyProvider, url: str) -> None:
    result = run_scenario(scenario, provider, url, TIMES)
    assert result.verdict == "pass", result


def test_dead_target_is_asked_seldom_and_shown_in_the_status(provider: FaultyProvider, url: str) -> None:
    scenario = next(each for each in SCENARIOS if each.id == "S04")
    provider.restart()
    gots = [ask(url, scenario.model, 30.0) for _ in range(8)]
    assert all(got.is_complete and got.model == HEALTHY for got in gots)
    assert len(provider.seen(scenario.model)) <= 8  # three for each request without a circuit
    assert len(provider.seen(HEALTHY)) == 8
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=30)
    try:
        connection.request("GET", "/status?format=json")
        status = msgspec.json.decode(connection.getresponse().read())
        connection.request("GET", "/metrics")
        metrics = connection.getresponse().read().decode()
    finally:
        connection.close()
    circuits = {row["target"]: row for row in status["circuits"]}
    assert "overloaded" in circuits[f"wall/{scenario.model}"]["last_error"]
    assert f'antiphon_circuits_open{{worker="",provider="wall",model="{scenario.model}"' in metrics
