"""The public suite llm-comply, which bundles the API specifications, against the gateway with the offline model.

What may be skipped or declined is listed with its reason; everything else passes, without warnings. The Open Responses suite
is not on a registry (looked for on 2026-11-16). Its published list has 17 cases: the ten over HTTP are in llm-comply as
`open-responses`, under the same names; the seven over WebSocket are in `endpoints/responses_api/test_websocket.py`, written from
their names and descriptions, and here their events are held to the same specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon_gateway.config.settings import Config, ModelSettings, ProviderSettings
from gateway.rig import FAST, serving

llm_comply = pytest.importorskip("llm_comply")
config, result, runner, schema, suites = (
    pytest.importorskip(f"llm_comply.{name}") for name in ("config", "result", "runner", "schema", "tests")
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SPECS = {
    "open-responses": "openresponses.json",
    "openai-chat": "openai_chat.json",
    "anthropic": "anthropic.json",
    "google-genai": None,
    "google-interactions": "google_interactions.json",
}
SKIPPED = {
    "open-responses": {"reasoning-summary": "the offline model does not think"},
    "openai-chat": {"chat-reasoning-summary": "the offline model does not think"},
    "anthropic": {"anth-thinking-display": "the offline model does not think"},
    "google-genai": {},
    "google-interactions": {},
}
CANNOT = {
    "google-interactions": {
        "interactions-thinking": "the offline model does not think",
        "interactions-tool-calling": "the offline model calls a tool only if it must, and the request leaves it free",
    }
}
"""What a model may decline, and the suite has no word for. With one that thinks and calls, all nine pass, to upstreams of each
format: `endpoints/test_interactions.py`."""
WARNED = {"google-thinking": "the offline model does not think"}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    offline = Config(
        gateway=FAST,
        providers=(ProviderSettings(name="offline", preset="offline"),),
        models=(ModelSettings(name="*", targets=("offline/plain",)),),
    )
    with serving(offline, {}) as (main, _):
        yield main


def spec_of(name: str) -> Any:
    file = SPECS[name]
    return schema.SpecLoader(str(Path(llm_comply.__file__).parent / "specs" / file) if file else None)


def run_suite(name: str, port: int, model: str) -> Any:
    base_url = f"http://127.0.0.1:{port}" + ("" if name.startswith("google") else "/v1")
    settings = config.ComplianceConfig(base_url=base_url, api_key="any", model=model)
    return runner.TestRunner(settings, suites.get_tests(name), spec_of(name)).run_all()


@pytest.mark.parametrize("name", SPECS)
def test_the_suite_passes_with_the_offline_model(port: int, name: str) -> None:
    results, status = run_suite(name, port, "offline").results, result.TestStatus
    failed = {each.id: each.errors for each in results if each.status is status.FAILED}
    skipped = {each.id for each in results if each.status is status.SKIPPED}
    warned = {each.id: each.warnings for each in results if each.warnings and each.id not in WARNED}
    assert failed.keys() == CANNOT.get(name, {}).keys(), failed
    assert skipped == set(SKIPPED[name])
    assert warned == {}


def test_websocket_events_fit_the_specification(port: int) -> None:
    websockets = pytest.importorskip("websockets.sync.client")
    spec = spec_of("open-responses")
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
    with websockets.connect(f"ws://127.0.0.1:{port}/v1/responses", proxy=None) as socket:
        for fields in ({"input": "Count to three."}, {"input": "Weather?", "tools": [tool], "tool_choice": "required"}):
            socket.send(msgspec.json.encode({"type": "response.create", "model": "offline", **fields}).decode())
            kind = ""
            while kind != "response.completed":
                event = msgspec.json.decode(socket.recv(timeout=20))
                kind = event["type"]
                assert spec.validate_sse_event(kind, event) == [], event
        socket.send(msgspec.json.encode({"type": "response.create", "model": "offline", "input": 7}).decode())
        assert spec.validate(msgspec.json.decode(socket.recv(timeout=20)), "WebSocketErrorEvent") == []
