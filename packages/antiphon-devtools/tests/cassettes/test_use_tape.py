"""`use_tape` and the pytest fixture: recorded once from an upstream, played afterwards, with the official SDKs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import TapeError
from antiphon_devtools.cassettes import TapedGateway, use_tape
from antiphon_devtools.cassettes.tape import Tape
from antiphon_gateway.config.settings import Config, ModelSettings
from gateway.rig import ENVIRONMENT, KEY, MODELS, provider_of
from gateway.strict_upstream import StrictUpstream

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of what it imports itself
    genai = pytest.importorskip("google.genai")

USED = ("openai-chat", "openai-responses", "anthropic", "gemini")
NO_TLS: dict[str, Any] = {"verify": False}


@pytest.fixture(scope="module")
def upstreams() -> Iterator[dict[str, StrictUpstream]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(StrictUpstream(name, [KEY.format(name)])) for name in USED}


@pytest.fixture
def config(upstreams: dict[str, StrictUpstream], monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.delenv("ANTIPHON_TAPE", raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for upstream in upstreams.values():
        upstream.clear()
    return Config(
        providers=tuple(provider_of(name, upstream) for name, upstream in upstreams.items()),
        models=tuple(ModelSettings(name=f"to-{name}", targets=(f"{name}/{MODELS[name]}",)) for name in USED),
    )


def with_openai(tape: TapedGateway) -> list[str]:
    http_client = openai.DefaultHttpxClient(**NO_TLS)
    with openai.OpenAI(base_url=tape.openai_url, api_key="x", max_retries=0, http_client=http_client) as client:
        asked: dict[str, Any] = {"model": "to-openai-chat", "messages": [{"role": "user", "content": "Hi."}]}
        whole = client.chat.completions.create(**asked).choices[0].message.content
        stream = client.chat.completions.create(**asked, stream=True)
        pieces = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        answer = client.responses.create(model="to-openai-responses", input="Hello.").output_text
        return [whole, pieces, answer]


def with_anthropic(tape: TapedGateway) -> list[str]:
    http_client = anthropic.DefaultHttpxClient(**NO_TLS)
    with anthropic.Anthropic(base_url=tape.url, api_key="x", max_retries=0, http_client=http_client) as client:
        asked: dict[str, Any] = {
            "model": "to-anthropic",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "下雨吗？"}],
        }
        whole = client.messages.create(**asked).content[0].text
        with client.messages.stream(**asked) as stream:
            return [whole, stream.get_final_text()]


def with_google(tape: TapedGateway) -> list[str]:
    client = genai.Client(api_key="x", http_options={"base_url": tape.url, "client_args": NO_TLS})
    try:
        whole = client.models.generate_content(model="to-gemini", contents="Hi.").text
        stream = client.models.generate_content_stream(model="to-gemini", contents="Hi.")
        return [whole, "".join(chunk.text or "" for chunk in stream)]
    finally:
        client.close()


@pytest.mark.parametrize("talk", [with_openai, with_anthropic, with_google])
def test_official_sdks_get_the_recorded_answers(
    talk: Callable[[TapedGateway], list[str]],
    config: Config,
    upstreams: dict[str, StrictUpstream],
    tmp_path: Path,
) -> None:
    path = tmp_path / "tapes" / "talk.db"
    with use_tape(path, config=config) as tape:
        assert tape.mode == "record"
        live = talk(tape)
    assert all(text.startswith("echo: ") for text in live)
    asked = sum(len(upstream.received) for upstream in upstreams.values())
    assert asked == len(live)
    with use_tape(path) as tape:
        assert tape.mode == "replay"
        assert talk(tape) == live
        assert (tape.misses, tape.unplayed) == ([], [])
    assert sum(len(upstream.received) for upstream in upstreams.values()) == asked
    assert os.listdir(path.parent) == ["talk.db"]


def test_a_miss_is_the_sdk_s_own_error_and_is_kept(config: Config, tmp_path: Path) -> None:
    with use_tape(tmp_path / "t.db", config=config) as tape:
        with_anthropic(tape)
    with use_tape(tmp_path / "t.db") as tape:
        client = anthropic.Anthropic(base_url=tape.url, api_key="x", max_retries=0)
        with client, pytest.raises(anthropic.NotFoundError, match='recorded "下雨吗？", sent "下雪吗？"'):
            client.messages.create(
                model="to-anthropic", max_tokens=100, messages=[{"role": "user", "content": "下雪吗？"}]
            )
        assert [miss.splitlines()[0] for miss in tape.misses] == [
            f"no recorded answer for POST /v1/messages in {tmp_path}/t.db"
        ]
        assert tape.unplayed == [1, 2]


def test_a_failed_test_leaves_the_old_tape(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with use_tape(path, config=config) as tape:
        with_google(tape)
    before = path.read_bytes()

    def fail() -> None:
        with use_tape(path, config=config, mode="record") as tape:
            with_google(tape)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_bytes() == before
    with use_tape(path, config=config, mode="record") as tape:
        with_anthropic(tape)
    opened = Tape(path)
    assert {request.path for request in opened.requests()} == {"/v1/messages"}
    opened.close()
    assert os.listdir(tmp_path) == ["t.db"]


def test_mode_none_asks_the_providers_and_keeps_nothing(config: Config, tmp_path: Path) -> None:
    with use_tape(tmp_path / "t.db", config=config, mode="none") as tape:
        assert with_google(tape)[0] == "echo: Hi."
    assert os.listdir(tmp_path) == []


def test_it_runs_beside_the_event_loop_of_a_test(config: Config, tmp_path: Path) -> None:
    async def run(tape: TapedGateway) -> str:
        async with openai.AsyncOpenAI(base_url=tape.openai_url, api_key="x", max_retries=0) as client:
            got = await client.responses.create(model="to-openai-responses", input="Hello.")
            text: str = got.output_text
            return text

    async def test() -> list[str]:
        texts = []
        for _ in range(2):
            with use_tape(tmp_path / "t.db", config=config) as tape:
                texts.append(await run(tape))
        return texts

    assert asyncio.run(test()) == ["echo: Hello."] * 2


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_TOKEN")):
            monkeypatch.delenv(name)
    path = tmp_path / "none.db"
    with pytest.raises(TapeError, match="no API key is set; set one, or give config="), use_tape(path):
        pass
    missing = r"there is no tape at .*; record it: run the test with --tape=record"
    with pytest.raises(TapeError, match=missing), use_tape(path, mode="replay"):
        pass
    monkeypatch.setenv("ANTIPHON_TAPE", "rewind")
    with (
        pytest.raises(TapeError, match=r"\$ANTIPHON_TAPE is 'rewind'; expected auto, record, replay, none"),
        use_tape(path),
    ):
        pass
    Tape(path, records=True).close()
    monkeypatch.delenv("ANTIPHON_TAPE")
    for options, problem in (
        ({"ignore": ["a..b"]}, "not a path of a field"),
        ({"match": "all"}, "expected path, body, loose, exact"),
        ({"speed": 0}, "expected a number above 0"),
    ):
        with pytest.raises(TapeError, match=problem), use_tape(path, **options):
            pass


PLUGIN_TEST = """
import os, pytest, json, urllib.request

@pytest.fixture(scope="session")
def antiphon_tape_config():
    return {"config": os.environ["CONFIG"]}

def ask():
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

def test_with_a_name(antiphon_tape):
    with antiphon_tape("greeting") as tape:
        assert os.environ["OPENAI_API_KEY"] == "sk-not-needed"
        assert ask() == "echo: Hi."
    assert "OPENAI_BASE_URL" not in os.environ

@pytest.mark.parametrize("n", [1])
def test_without(antiphon_tape, n):
    with antiphon_tape():
        assert ask() == "echo: Hi."
"""


@pytest.mark.slow
def test_the_fixture_of_the_plugin(upstreams: dict[str, StrictUpstream], tmp_path: Path) -> None:
    upstream = upstreams["openai-chat"]
    upstream.clear()
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["antiphon_devtools.cassettes.pytest_plugin"]\n')
    (tmp_path / "test_mine.py").write_text(PLUGIN_TEST)
    (tmp_path / "antiphon.toml").write_text(
        textwrap.dedent(f"""
            [[providers]]
            name = "openai"
            base_url = "{upstream.base_url}"
            keys = ["env:MINE"]
            [[models]]
            name = "*"
            targets = ["openai/*"]
        """)
    )
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CONFIG": str(tmp_path / "antiphon.toml"),
        "MINE": KEY.format("openai-chat"),
    }

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path, check=False)

    refused = run("--tape=replay")
    assert "2 failed" in refused.stdout
    assert "run the test with --tape=record" in refused.stdout
    recorded = run()
    assert "2 passed" in recorded.stdout, recorded.stdout
    assert sorted(os.listdir(tmp_path / "tapes")) == ["greeting.db", "test_without-1.db"]
    assert len(upstream.received) == 2
    del environ["MINE"]
    played = run("--tape=replay")
    assert "2 passed" in played.stdout, played.stdout
    assert len(upstream.received) == 2
