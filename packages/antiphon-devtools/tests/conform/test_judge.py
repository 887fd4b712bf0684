"""The judge finds what a bad gateway does: each defect below is put into a pass-through, and exactly its case must fail."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from antiphon_devtools.conform.case import load_cases
from antiphon_devtools.conform.client import Client
from antiphon_devtools.conform.formats import FORMATS
from antiphon_devtools.conform.gateways import Gateway
from antiphon_devtools.conform.http_server import Connection, RawServer, Request
from antiphon_devtools.conform.run import Plan, Result, Runner
from antiphon_devtools.conform.upstream import MockProviders, Script

CASES = {case.id: case for case in load_cases()}
PORTS = dict.fromkeys(FORMATS, 0)
ROUTES = {"/v1/chat/completions": "openai-chat", "/v1/responses": "openai-responses", "/v1/messages": "anthropic"}
ROUTES |= {"/v1beta/interactions": "gemini-interactions"}

Body = dict[str, Any]


class PassThrough(RawServer):
    """A gateway of one format: it forwards the request to the provider of the same format, with a defect in each direction."""

    def __init__(self, providers: MockProviders) -> None:
        super().__init__({"gateway": 0})
        self._providers = providers
        self.on_request: Callable[[Body], None] = lambda body: None
        self.on_answer: Callable[[int, bytes], tuple[int, bytes]] = lambda status, data: (status, data)

    async def respond(self, request: Request, connection: Connection) -> bool:
        body = msgspec.json.decode(request.body)
        self.on_request(body)
        status, kind, data = await asyncio.to_thread(self._forward, request.path, body)
        status, data = self.on_answer(status, data)
        await connection.send(status, data, kind)
        return True

    def _forward(self, path: str, body: Body) -> tuple[int, str, bytes]:
        name = ROUTES.get(path, "gemini")
        upstream = http.client.HTTPConnection("127.0.0.1", self._providers.ports[name], timeout=20)
        upstream.request("POST", path, msgspec.json.encode(body))
        response = upstream.getresponse()
        data = b""
        try:
            while piece := response.read1(65536):
                data += piece
        except http.client.IncompleteRead:
            pass
        upstream.close()
        return response.status, response.headers["content-type"], data


@pytest.fixture(scope="module")
def providers() -> Iterator[MockProviders]:
    with MockProviders(PORTS) as running:
        yield running


@pytest.fixture
def gateway(providers: MockProviders) -> Iterator[PassThrough]:
    with PassThrough(providers) as running:
        yield running


def conform(gateway: PassThrough, providers: MockProviders, case: str, name: str = "openai-chat") -> Result:
    plan = Plan(cases=[CASES[case]], clients=[name], upstreams=[name], cancel_seconds=0.3)
    client = Client(f"http://127.0.0.1:{gateway.ports['gateway']}", "none", 10)
    [result] = Runner(client, providers, Gateway(), plan).results()
    return result


def drop(name: str) -> Callable[[Body], None]:
    return lambda body: body.pop(name, None)


def change_message(place: int, **fields: Any) -> Callable[[Body], None]:
    return lambda body: body["messages"][place].update(fields) if len(body["messages"]) > place else None


def drop_message(place: int) -> Callable[[Body], None]:
    return lambda body: body["messages"].pop(place) if len(body["messages"]) > 1 else None


REQUEST_DEFECTS = {
    "system prompt dropped": ("system", drop_message(0), "lost", "one short sentence"),
    "result dropped": ("one-call", drop_message(2), "accepted", "did not have response messages"),
    "turn dropped": ("turns", drop_message(1), "lost", "First answer"),
    "image dropped": ("image", change_message(0, content="Which colour is this?"), "lost", "1 image"),
    "temperature dropped": ("settings", drop("temperature"), "lost", "temperature 0.25"),
    "limit dropped": ("settings", drop("max_tokens"), "lost", "max_tokens 321"),
    "choice dropped": ("choice-named", drop("tool_choice"), "lost", "tool_choice clock"),
    "stop dropped": ("stop", drop("stop"), "lost", "stop"),
    "schema dropped": ("structured-output", drop("response_format"), "lost", "'degrees'"),
    "tools dropped": ("tools-only", drop("tools"), "lost", "the tool weather"),
    "result of another call": ("call-chain", change_message(2, content="rain in Oslo"), "lost", "half past nine"),
    "foreign field": ("text", lambda body: body.update(thinking=True), "accepted", "thinking"),
}


@pytest.mark.parametrize("defect", REQUEST_DEFECTS)
def test_a_defect_on_the_way_to_the_provider_is_found(
    gateway: PassThrough, providers: MockProviders, defect: str
) -> None:
    case, change, check, words = REQUEST_DEFECTS[defect]
    assert conform(gateway, providers, case).verdict == "passed"
    gateway.on_request = change
    result = conform(gateway, providers, case)
    assert result.verdict == "failed"
    assert check in [finding.check for finding in result.findings]
    assert words in " ".join(f"{finding.expected} {finding.got}" for finding in result.findings)


def replace(old: bytes, new: bytes) -> Callable[[int, bytes], tuple[int, bytes]]:
    return lambda status, data: (status, data.replace(old, new))


def finish_streams(status: int, data: bytes) -> tuple[int, bytes]:
    end = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    is_stream = data.startswith(b"data:") and b"[DONE]" not in data
    return status, data.rpartition(b"\n\n")[0] + b"\n\n" + end + b"data: [DONE]\n\n" if is_stream else data


def hide_errors(status: int, data: bytes) -> tuple[int, bytes]:
    return 200, data


def rename_errors(status: int, data: bytes) -> tuple[int, bytes]:
    return status, b'{"detail": "it failed"}' if status >= 400 else data


def change_status(status: int, data: bytes) -> tuple[int, bytes]:
    return (400 if status == 429 else status), data


ANSWER_DEFECTS = {
    "text cut": ("answer-text", replace(b"seven degrees.", b""), "answer"),
    "words of a stream lost": ("answer-unicode", replace(b'{"content":" line"}', b"{}"), "answer"),
    "usage lost": ("usage", replace(b'"usage"', b'"used"'), "usage"),
    "cached tokens lost": ("usage-cached", replace(b'"cached_tokens":1024', b'"cached_tokens":0'), "usage"),
    "finish reason changed": (
        "answer-call",
        replace(b'"finish_reason":"tool_calls"', b'"finish_reason":"stop"'),
        "answer",
    ),
    "arguments changed": ("answer-call", replace(b"Oslo", b"Rome"), "answer"),
    "call lost": ("answer-text-and-call", replace(b'"tool_calls"', b'"calls"'), "answer"),
    "object renamed": ("answer-text", replace(b'"chat.completion', b'"completion'), "shape"),
    "cut stream finished": ("cut-after-events", finish_streams, "stream"),
    "early end finished": ("ended-early", finish_streams, "stream"),
    "error with status 200": ("status-500", hide_errors, "error"),
    "error in another shape": ("status-500", rename_errors, "shape"),
    "wrong status": ("status-429", change_status, "error"),
    "HTML passed on": ("html-error", lambda status, data: (status, data), "shape"),
}


@pytest.mark.parametrize("defect", ANSWER_DEFECTS)
def test_a_defect_on_the_way_back_is_found(gateway: PassThrough, providers: MockProviders, defect: str) -> None:
    case, change, check = ANSWER_DEFECTS[defect]
    gateway.on_answer = change
    result = conform(gateway, providers, case)
    assert result.verdict == "failed"
    assert check in [finding.check for finding in result.findings]


def show_thoughts(status: int, data: bytes) -> tuple[int, bytes]:
    return status, data.replace(b'"type":"thought"', b'"type":"model_output"').replace(b'"summary"', b'"content"')


INTERACTIONS_DEFECTS = {
    "words of a stream lost": ("answer-text", replace(b'"text":" degrees."', b'"text":""'), "answer"),
    "stream without its start": ("answer-text", replace(b"interaction.created", b"interaction.begun"), "shape"),
    "step not stopped": ("answer-text", replace(b"step.stop", b"step.end"), "shape"),
    "status of a call changed": ("answer-call", replace(b"requires_action", b"completed"), "answer"),
    "arguments changed": ("answer-call", replace(b"Oslo", b"Rome"), "answer"),
    "call without an id": ("answer-call", replace(b'"id":"call_a1"', b'"id":""'), "shape"),
    "limit not reported": ("answer-length", replace(b'"incomplete"', b'"completed"'), "answer"),
    "thoughts not counted": ("usage-reasoning", replace(b"total_thought_tokens", b"thoughts"), "usage"),
    "thought in the text": ("answer-thinking", show_thoughts, "answer"),
    "unknown status": ("answer-text", replace(b'"completed"', b'"done"'), "shape"),
    "error in another shape": ("status-500", rename_errors, "shape"),
}


@pytest.mark.parametrize("defect", INTERACTIONS_DEFECTS)
def test_a_defect_in_an_interaction_is_found(gateway: PassThrough, providers: MockProviders, defect: str) -> None:
    case, change, check = INTERACTIONS_DEFECTS[defect]
    assert conform(gateway, providers, case, "gemini-interactions").verdict == "passed"
    gateway.on_answer = change
    result = conform(gateway, providers, case, "gemini-interactions")
    assert result.verdict == "failed", result.reason
    assert check in [finding.check for finding in result.findings]


INTERACTIONS_LOSSES: dict[str, tuple[str, Callable[[Body], None], str, str]] = {
    "system prompt dropped": ("system", drop("system_instruction"), "lost", "one short sentence"),
    "result dropped": (
        "call-chain",
        lambda body: body["input"].pop(2) if len(body["input"]) > 2 else None,
        "accepted",
        "result",
    ),
    "image dropped": ("image", lambda body: body["input"][0]["content"].pop(), "lost", "1 image"),
    "parameters dropped": ("settings", drop("generation_config"), "lost", "temperature 0.25"),
    "choice dropped": ("choice-named", lambda body: body["generation_config"].pop("tool_choice", 0), "lost", "clock"),
    "schema dropped": ("structured-output", drop("response_format"), "lost", "'degrees'"),
    "thought dropped": (
        "thinking-interactions",
        lambda body: body["input"].pop(1) if len(body["input"]) > 1 else None,
        "lost",
        "signature",
    ),
    "foreign field": ("text", lambda body: body.update(messages=[]), "accepted", "messages"),
}


@pytest.mark.parametrize("defect", INTERACTIONS_LOSSES)
def test_losses_of_an_interaction_are_found(gateway: PassThrough, providers: MockProviders, defect: str) -> None:
    case, change, check, words = INTERACTIONS_LOSSES[defect]
    assert conform(gateway, providers, case, "gemini-interactions").verdict == "passed"
    gateway.on_request = change
    result = conform(gateway, providers, case, "gemini-interactions")
    assert check in [finding.check for finding in result.findings]
    assert words in " ".join(f"{finding.expected} {finding.got}" for finding in result.findings)


def test_a_request_that_is_not_cancelled_is_found(gateway: PassThrough, providers: MockProviders) -> None:
    [finding] = conform(gateway, providers, "leave-before-head").findings
    assert (finding.check, finding.got) == ("cancel", "still open")
    providers.begin(Script())


def test_a_broken_conversation_may_be_refused_but_a_valid_one_may_not(
    gateway: PassThrough, providers: MockProviders
) -> None:
    assert conform(gateway, providers, "missing-result").verdict == "refused"
    gateway.on_request = drop("messages")
    [finding] = conform(gateway, providers, "consecutive-users").findings
    assert (finding.rule, finding.source) == ("OC-01", "gh:CopilotKit/CopilotKit#529")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "case", ["parallel-calls", "answer-parallel-calls", "answer-thinking", "usage-cached", "image"]
)
def test_each_format_reads_back_what_it_wrote(
    gateway: PassThrough, providers: MockProviders, name: str, case: str
) -> None:
    assert conform(gateway, providers, case, name).findings == []


def test_a_route_that_is_missing_is_not_a_failure(providers: MockProviders, gateway: PassThrough) -> None:
    gateway.on_answer = lambda status, data: (404, b'{"error": {"message": "no such model", "type": "not_found"}}')
    result = conform(gateway, providers, "text")
    assert result.verdict == "not applicable"
    assert "no such model" in result.reason
