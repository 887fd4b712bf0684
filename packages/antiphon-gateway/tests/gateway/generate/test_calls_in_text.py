"""Calls that a model writes into its text reach the client as tool calls, where the configuration asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.parts import Text, ToolCallRequest, text_of
from antiphon.wire import FORMATS
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import Message, ModelRequest, ToolChoice, ToolDefinition
from antiphon_gateway.config.file import ConfigError, load_config
from antiphon_gateway.config.settings import Config, ModelSettings, ProviderSettings
from gateway.rig import ENVIRONMENT, FAST, KEY, MODELS, Client, provider_of, serving
from gateway.strict_upstream import StrictUpstream

WRITTEN = '我来搜索<tool_call>{"name": "search", "arguments": {"query": "雅思"}}</tool_call>'
SEARCH = ToolDefinition(
    name="search",
    description="Search the web.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
REQUEST = ModelRequest(messages=(Message("user", (Text("雅思？"),)),), tools=(SEARCH,), max_output_tokens=1000)
UPSTREAMS = [name for name in FORMATS if name != "openai-responses"]


class Running(msgspec.Struct):
    upstreams: dict[str, StrictUpstream]
    port: int


@pytest.fixture(scope="module")
def gateway() -> Iterator[Running]:
    """`to-F` reads calls from text, `off-F` is the same upstream without the setting."""
    providers: list[ProviderSettings] = []
    models: list[ModelSettings] = []
    with ExitStack() as stack:
        upstreams = {name: stack.enter_context(StrictUpstream(name, [KEY.format(name)])) for name in UPSTREAMS}
        for name, upstream in upstreams.items():
            upstream.answer = lambda request: ModelOutput(parts=(Text(WRITTEN),), stop_reason="end", id="answer-1")
            providers += [
                provider_of(name, upstream, embedded_calls=(f"{MODELS[name][:4]}*",)),
                provider_of(f"off-{name}", upstream),
                provider_of(f"other-{name}", upstream, embedded_calls=("no-such-model",)),
            ]
            models += [
                ModelSettings(name=f"{kind}-{name}", targets=(f"{provider}/{MODELS[name]}",))
                for kind, provider in (("to", name), ("off", f"off-{name}"), ("other", f"other-{name}"))
            ]
        config = Config(gateway=FAST, providers=tuple(providers), models=tuple(models))
        ports = stack.enter_context(serving(config, ENVIRONMENT))
        yield Running(upstreams, ports[0])


def answer(gateway: Running, client_format: str, model: str, request: ModelRequest, *, streams: bool) -> ModelOutput:
    client = Client(gateway.port)
    try:
        return client.ask(client_format, model, request, streams=streams).output(client_format, streams=streams)
    finally:
        client.close()


def calls(output: ModelOutput) -> list[tuple[str, Any]]:
    found = [part for part in output.parts if isinstance(part, ToolCallRequest)]
    return [(part.tool_name, msgspec.json.decode(part.arguments)) for part in found]


def words(output: ModelOutput) -> str:
    return text_of([part for part in output.parts if isinstance(part, Text)])


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("target", UPSTREAMS)
@pytest.mark.parametrize("client_format", FORMATS)
def test_written_call_becomes_a_tool_call(gateway: Running, client_format: str, target: str, streams: bool) -> None:
    output = answer(gateway, client_format, f"to-{target}", REQUEST, streams=streams)
    assert calls(output) == [("search", {"query": "雅思"})]
    assert words(output) == "我来搜索"
    assert output.stop_reason == "tool_calls"


@pytest.mark.parametrize("piece", [1, 7])
def test_call_is_found_in_a_stream_of_small_pieces(gateway: Running, piece: int) -> None:
    upstream = gateway.upstreams["openai-chat"]
    upstream.piece = piece
    try:
        output = answer(gateway, "openai-chat", "to-openai-chat", REQUEST, streams=True)
    finally:
        upstream.piece = 0
    assert calls(output) == [("search", {"query": "雅思"})]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", ["off-openai-chat", "other-openai-chat"])
def test_text_is_passed_on_without_the_setting(gateway: Running, model: str, streams: bool) -> None:
    output = answer(gateway, "openai-chat", model, REQUEST, streams=streams)
    assert (calls(output), words(output)) == ([], WRITTEN)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_text_is_passed_on_if_the_client_wants_no_calls(gateway: Running, streams: bool) -> None:
    for request in (
        msgspec.structs.replace(REQUEST, tools=()),
        msgspec.structs.replace(REQUEST, tool_choice=ToolChoice("none")),
    ):
        output = answer(gateway, "openai-chat", "to-openai-chat", request, streams=streams)
        assert (calls(output), words(output)) == ([], WRITTEN)


def test_setting_in_the_file(tmp_path: Path) -> None:
    place = tmp_path / "antiphon.toml"
    place.write_text('[[providers]]\nname = "ollama"\nembedded_calls = ["qwen*"]\n')
    assert load_config(place, {}).providers[0].embedded_calls == ("qwen*",)
    place.write_text(
        '[[providers]]\nname = "r"\npreset = "openai-responses"\nkeys = ["env:KEY"]\nembedded_calls = ["*"]\n'
    )
    with pytest.raises(ConfigError, match=r"embedded_calls.*not available with openai-responses"):
        load_config(place, {"KEY": "sk-1"})
