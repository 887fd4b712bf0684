"""Seed 001: one CodeBuddy key, two services, repaired tool sequences, keys that can be switched off while it runs."""

from __future__ import annotations

import asyncio
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

from antiphon import Conversation
from antiphon.parts import text_of
from antiphon.providers import provider
from antiphon.providers.default_model import PREFERRED
from antiphon.providers.presets import PRESETS
from antiphon.repair import fix_tool_call_sequence
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


MODELS = ("claude-4.0", "gpt-5")
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def refusal(code: int, message: str, status: int = 400) -> Reply:
    """An error as CodeBuddy writes it."""
    body = msgspec.json.encode({"code": code, "msg": message})
    return Reply(status=status, body=body, content_type="application/json")


def upstream(request: Received) -> Reply:
    """CodeBuddy as public reports describe it: strict about the address, the key, streams, roles and the first message."""
    if request.headers.get("authorization") != f"Bearer {KEY}":
        return refusal(401, "unauthorized", status=401)
    if (request.method, request.target) == ("GET", "/v3/config"):
        models = [{"id": model, "name": model.title()} for model in MODELS] + [{"id": "old", "disabled": True}]
        listed = {"code": 0, "msg": "OK", "data": {"models": models, "agents": []}}
        return Reply(body=msgspec.json.encode(listed), content_type="application/json")
    if (request.method, request.target) != ("POST", "/v2/chat/completions"):
        return Reply(status=404, body=b"404 page not found", content_type="text/plain")
    body = msgspec.json.decode(request.body)
    if body.get("stream") is not True:
        return refusal(11101, "Non-stream chat request is currently not supported")
    roles = [message["role"] for message in body["messages"]]
    if not {"system", "user", "assistant", "tool"}.issuperset(roles):
        return refusal(11101, "Parse message failed")
    if roles[0] != "system":
        return refusal(11128, "first message is not system prompt")
    if body["model"] not in (*MODELS, *PRESETS["codebuddy"].known_models):
        return refusal(11102, "model service info not found")
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "endpoint-7"}
    bodies: list[dict[str, Any]] = [
        {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "你"}}]},
        {**chunk, "choices": [{"index": 0, "delta": {"content": "好"}}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    if (body.get("stream_options") or {}).get("include_usage"):
        bodies.append({**chunk, "choices": [], "usage": USAGE})
    return Reply(body=events(*bodies, "[DONE]"), content_type="text/event-stream")


def events(*bodies: Any) -> bytes:
    """A stream of these."""
    lines = [body.encode() if isinstance(body, str) else msgspec.json.encode(body) for body in bodies]
    return b"".join(b"data: %b\n\n" % line for line in lines)


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
    assert answer.model == "claude-4.0"
    assert answer.usage is not None
    assert answer.usage.total_tokens == USAGE["total_tokens"]
    assert service.sent()["model"] == "gpt-5"
    assert service.codebuddy.received[-1].headers["authorization"] == f"Bearer {KEY}"


def test_interrupted_tool_calls_reach_the_provider_in_order(service: Service) -> None:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="any") as client:
        client.chat.completions.create(model="claude-4.0", messages=INTERRUPTED)
    sent = service.sent()["messages"]
    assert [(message["role"], message.get("tool_call_id")) for message in sent] == [
        ("system", None),
        ("user", None),
        ("assistant", None),
        ("tool", "c1"),
        ("tool", "c2"),
        ("user", None),
    ]
    assert fix_tool_call_sequence(INTERRUPTED, "request-1")[-1] == {"role": "user", "content": "快点！"}


def test_system_message_is_added_where_there_is_none_and_reported(service: Service) -> None:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="any") as client:
        raw = client.chat.completions.with_raw_response.create(
            model="gpt-5", messages=[{"role": "user", "content": "你好"}]
        )
        assert raw.headers["x-antiphon-repairs"] == "1; added"
        assert [message["role"] for message in service.sent()["messages"]] == ["system", "user"]
        raw = client.chat.completions.with_raw_response.create(
            model="gpt-5",
            messages=[{"role": "developer", "content": "简短。"}, {"role": "user", "content": "你好"}],
        )
        assert "x-antiphon-repairs" not in raw.headers
    assert service.sent()["messages"] == [{"role": "system", "content": "简短。"}, {"role": "user", "content": "你好"}]


def test_no_header_names_another_program(service: Service) -> None:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="any") as client:
        client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "你好"}])
    headers = service.codebuddy.received[-1].headers
    assert not [name for name in headers if name.startswith(("x-ide", "x-agent", "x-stainless"))]
    assert "codebuddy" not in headers.get("user-agent", "").lower()


CODEBUDDY_ERRORS: tuple[tuple[int, str, int, type[openai.APIStatusError]], ...] = (
    (11101, "Parse message failed", 400, openai.BadRequestError),
    (11133, "invalid parameters", 400, openai.BadRequestError),
    (11102, "model service info not found", 400, openai.NotFoundError),
    (11128, "first message is not system prompt", 400, openai.BadRequestError),
    (11128, "the channel is restricted", 400, openai.BadRequestError),
    (14018, "Credits exhausted", 429, openai.InternalServerError),  # the last: the key of the gateway rests
)


@pytest.mark.parametrize("place", ["status", "body", "stream"])
def test_errors_of_codebuddy(tmp_path: Path, place: str) -> None:
    """With an error status, as the body of a 200, and inside a stream that began."""
    question: Any = {"model": "gpt-5", "messages": [{"role": "user", "content": "你好"}]}
    start = {"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "你"}}]}
    with (
        serving(tmp_path) as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0) as client,
    ):
        for code, message, status, kind in CODEBUDDY_ERRORS:
            refused = refusal(code, message, status if place == "status" else 200)
            if place == "stream":
                refused = Reply(body=events(start, {"code": code, "msg": message}))
            running.codebuddy.play(refused)
            sent = len(running.codebuddy.received)
            with pytest.raises(kind, match=message) as caught:
                client.chat.completions.create(**question)
            if caught.value.status_code < 500:
                assert caught.value.code == str(code)
            assert len(running.codebuddy.received) == sent + 1
        running.codebuddy.play(upstream)
        with pytest.raises(openai.APIStatusError, match="no usable key for gpt-5: env:CODEBUDDY_API_KEY"):
            client.chat.completions.create(**question)


def test_library_and_codebuddy(tmp_path: Path) -> None:
    with ScriptedServer(upstream) as codebuddy:
        environ = {"CODEBUDDY_API_KEY": KEY, "CODEBUDDY_BASE_URL": f"{codebuddy.url}/v2"}
        client = provider("codebuddy", environ=environ)

        async def run() -> tuple[str, tuple[str, ...]]:
            chat = Conversation("claude-4.0", provider=client)
            chat.add("你好")
            answer = await chat.call_model()
            chat.add("再说一次")
            await chat.call_model()
            names = await client.list_models()
            await client.aclose()
            return text_of(answer.content), names

        text, names = asyncio.run(run())
    assert (text, names) == ("你好", MODELS)
    first, second = (msgspec.json.decode(one.body)["messages"] for one in codebuddy.received if one.method == "POST")
    assert [message["role"] for message in first] == ["system", "user"]
    assert second[: len(first)] == first


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


@pytest.mark.parametrize("status", [404, 200])
def test_codebuddy_without_a_listing_has_its_known_models(tmp_path: Path, status: int) -> None:
    empty = refusal(0, "OK", status=200)
    with serving(tmp_path, "CODEBUDDY") as running:
        running.codebuddy.play(Reply(status=404) if status == 404 else empty)
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="any") as client:
            listed = [model.id for model in client.models.list()]
            assert listed == list(PRESETS["codebuddy"].known_models) != []
            running.codebuddy.play(upstream)
            answer = client.chat.completions.create(model=listed[0], messages=[{"role": "user", "content": "你好"}])
    assert answer.choices[0].message.content == "你好"
