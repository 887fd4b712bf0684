"""Seed 001: one CodeBuddy key, two services, repaired tool sequences, keys that can be switched off while it runs."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import openai
import pytest

from antiphon import fix_tool_call_sequence
from antiphon.providers.default_model import PREFERRED
from antiphon.providers.presets import PRESETS
from providers.scripted_server import Received, Reply, ScriptedServer
from support.antiphon_process import AntiphonProcess, run_antiphon
from support.waiting import free_port

KEY = "cb-secret-key-0123456789"
CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "search_web", "arguments": '{"query":"IELTS"}'}},
    {"id": "c2", "type": "function", "function": {"name": "list_plans", "arguments": "{}"}},
]
INTERRUPTED: list[Any] = [
    {"role": "user", "content": "搜索"},
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "user", "content": "快点！"},
    {"role": "tool", "tool_call_id": "c2", "content": "no plans"},
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
]


def upstream(request: Received) -> Reply:
    """What CodeBuddy answers: a list of models, or a completion, streamed or not."""
    if request.target.endswith("/models"):
        return Reply(body=msgspec.json.encode({"object": "list", "data": [{"id": "claude-4.0"}, {"id": "gpt-5"}]}))
    if not msgspec.json.decode(request.body).get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": "你好"}, "finish_reason": "stop"}
        whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "claude-4.0", "choices": [choice]}
        return Reply(body=msgspec.json.encode(whole), content_type="application/json")
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "claude-4.0"}
    bodies = [
        {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "你好"}}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    lines = b"".join(b"data: %b\n\n" % msgspec.json.encode(body) for body in bodies) + b"data: [DONE]\n\n"
    return Reply(body=lines, content_type="text/event-stream")


class Service:
    """A running `antiphon serve`."""

    def __init__(self, port: int, format_port: int, codebuddy: ScriptedServer, environ: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.format_url = f"http://127.0.0.1:{format_port}"
        self.codebuddy = codebuddy
        self._environ = environ

    def key(self, *arguments: str) -> tuple[int, str, str]:
        """`antiphon key …` against it."""
        run = run_antiphon("key", *arguments, "--url", self.url, text=True, env=self._environ, timeout=60)
        return run.returncode, run.stdout, run.stderr

    def sent(self) -> dict[str, Any]:
        """The last body that CodeBuddy received."""
        last = [one for one in self.codebuddy.received if one.target.endswith("/chat/completions")][-1]
        body: dict[str, Any] = msgspec.json.decode(last.body)
        return body


@contextmanager
def serving(place: Path, vendor: str = "CODEBUDDY") -> Iterator[Service]:
    with ScriptedServer(upstream) as codebuddy:
        port, format_port = free_port(), free_port()
        environ = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
        environ |= {
            f"{vendor}_API_KEY": KEY,
            f"{vendor}_BASE_URL": codebuddy.url,
            "ANTIPHON_STORE": str(place / "chats.db"),
            "NO_COLOR": "1",
        }
        command = ("serve", "--port", str(port), "--format-port", str(format_port))
        process = AntiphonProcess(*command, stderr=subprocess.DEVNULL, env=environ)
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).close()
                    break
                except OSError:
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield Service(port, format_port, codebuddy, environ)
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("seed")) as running:
        yield running


def test_plain_model_names_work_with_one_key(service: Service) -> None:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="any") as client:
        assert [model.id for model in client.models.list()] == ["claude-4.0", "gpt-5"]
        answer = client.chat.completions.create(model="claude-4.0", messages=[{"role": "user", "content": "你好"}])
        chunks = client.chat.completions.create(
            model="gpt-5", messages=[{"role": "user", "content": "你好"}], stream=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "你好"
    assert answer.choices[0].message.content == "你好"
    assert service.sent()["model"] == "gpt-5"
    assert service.codebuddy.received[-1].headers["authorization"] == f"Bearer {KEY}"


def test_interrupted_tool_calls_reach_the_provider_in_order(service: Service) -> None:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="any") as client:
        client.chat.completions.create(model="claude-4.0", messages=INTERRUPTED)
    sent = service.sent()["messages"]
    assert [(message["role"], message.get("tool_call_id")) for message in sent] == [
        ("user", None),
        ("assistant", None),
        ("tool", "c1"),
        ("tool", "c2"),
        ("user", None),
    ]
    assert fix_tool_call_sequence(INTERRUPTED, "request-1")[-1] == {"role": "user", "content": "快点！"}


def test_anthropic_client_on_the_format_port(service: Service) -> None:
    with anthropic.Anthropic(base_url=service.format_url, api_key="any") as client:
        message = client.messages.create(
            model="claude-4.0", max_tokens=100, messages=[{"role": "user", "content": "你好"}]
        )
    assert message.content[0].type == "text"
    assert message.content[0].text == "你好"


def test_key_is_named_by_its_source_and_switched_while_it_runs(service: Service) -> None:
    code, out, _ = service.key("list")
    assert code == 0
    assert "codebuddy  env:CODEBUDDY_API_KEY  healthy" in out
    assert KEY[-4:] not in out
    code, out, _ = service.key("disable", "codebuddy", "env:CODEBUDDY_API_KEY")
    assert code == 0
    assert "disabled" in out
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="any", max_retries=0) as client:
        question: Any = [{"role": "user", "content": "Hi."}]
        with pytest.raises(openai.APIStatusError, match="env:CODEBUDDY_API_KEY"):
            client.chat.completions.create(model="gpt-5", messages=question)
        assert service.key("enable", "codebuddy", "env:CODEBUDDY_API_KEY")[0] == 0
        assert client.chat.completions.create(model="gpt-5", messages=question).choices[0].message.content == "你好"
    code, _, err = service.key("disable", "codebuddy", "env:OTHER")
    assert code == 1
    assert "unknown key 'env:OTHER'; known keys: env:CODEBUDDY_API_KEY" in err
    code, _, err = service.key("disable", "other", "x")
    assert code == 1
    assert "unknown provider 'other'; providers with keys: codebuddy" in err


def test_without_a_listing_the_known_models_are_listed(tmp_path: Path) -> None:
    with serving(tmp_path, "OPENAI") as running:
        running.codebuddy.play(Reply(status=500))
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="any") as client:
            assert [model.id for model in client.models.list()] == [dict(PREFERRED)["openai"]]


def test_codebuddy_without_a_listing_has_its_known_models(tmp_path: Path) -> None:
    with serving(tmp_path, "CODEBUDDY") as running:
        running.codebuddy.play(Reply(status=404))
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="any") as client:
            listed = [model.id for model in client.models.list()]
            assert listed == list(PRESETS["codebuddy"].known_models) != []
            running.codebuddy.play(upstream)
            answer = client.chat.completions.create(model=listed[0], messages=[{"role": "user", "content": "你好"}])
    assert answer.choices[0].message.content == "你好"
