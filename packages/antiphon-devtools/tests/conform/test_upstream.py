"""The mock providers: what they record, and how they fail on purpose."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from antiphon_devtools.conform.conversation import Answer
from antiphon_devtools.conform.upstream import HTML, Cut, Fault, MockProviders, Script

BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello."}]}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "Hello."}]}]}


@pytest.fixture(scope="module")
def providers() -> Iterator[MockProviders]:
    with MockProviders({"openai-chat": 0, "gemini": 0}) as running:
        yield running


@pytest.fixture
def connection(providers: MockProviders) -> Iterator[http.client.HTTPConnection]:
    opened = http.client.HTTPConnection("127.0.0.1", providers.ports["openai-chat"], timeout=10)
    yield opened
    opened.close()


def post(connection: http.client.HTTPConnection, body: object) -> http.client.HTTPResponse:
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    return connection.getresponse()


def test_a_request_that_the_api_would_refuse_gets_its_400(
    providers: MockProviders, connection: http.client.HTTPConnection
) -> None:
    providers.begin(Script())
    response = post(connection, {**BODY, "messages": []})
    assert response.status == 400
    assert json.load(response)["error"]["message"] == "Invalid 'messages': empty array."
    [arrived] = providers.arrived()
    assert [each.rule for each in arrived.violations] == ["OC-01"]


def test_other_paths_are_named(providers: MockProviders, connection: http.client.HTTPConnection) -> None:
    providers.begin(Script())
    connection.request("POST", "/v1/completions", "{}")
    assert connection.getresponse().status == 404
    assert (providers.arrived(), providers.other_paths()) == ([], ["openai-chat: /v1/completions"])


def test_a_connection_is_closed_after_the_answer_without_notice(
    providers: MockProviders, connection: http.client.HTTPConnection
) -> None:
    providers.begin(Script(fault=Fault(close_after=True)))
    response = post(connection, BODY)
    assert json.load(response)["choices"][0]["message"]["content"]
    assert "connection" not in response.headers
    connection.auto_open = 0
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        post(connection, BODY)


@pytest.mark.parametrize(("place", "inside"), [(1, False), (3, False), (0, True), (3, True)])
def test_a_stream_is_cut_where_the_script_says(
    providers: MockProviders, connection: http.client.HTTPConnection, place: int, inside: bool
) -> None:
    providers.begin(Script(Answer(text="one two three four"), cut=Cut(place, inside=inside)))
    response = post(connection, {**BODY, "stream": True})
    with pytest.raises(http.client.IncompleteRead) as cut:
        response.read()
    data = cut.value.partial
    assert data.count(b"\n\n") == place
    assert data.endswith(b"\n\n") is not inside


def test_faults_have_their_status_and_body(providers: MockProviders, connection: http.client.HTTPConnection) -> None:
    providers.begin(Script(fault=Fault(status=429, retry_after=7)))
    response = post(connection, BODY)
    assert (response.status, response.headers["retry-after"]) == (429, "7")
    response.read()
    providers.begin(Script(fault=Fault(status=502, body="html")))
    assert post(connection, BODY).read() == HTML


def test_gemini_streams_are_events_or_an_array_as_the_client_asks(providers: MockProviders) -> None:
    providers.begin(Script(Answer(text="one two")))
    port = providers.ports["gemini"]
    for query, is_array in (("?alt=sse", False), ("", True)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", f"/v1beta/models/gemini-2.5-flash:streamGenerateContent{query}", json.dumps(GEMINI))
        text = connection.getresponse().read().decode()
        connection.close()
        chunks = json.loads(text) if is_array else [json.loads(line[6:]) for line in text.split("\r\n\r\n") if line]
        assert [each["candidates"][0]["content"]["parts"][0]["text"] for each in chunks] == ["one", " two"]
