"""A format that only the tests have works everywhere, and shared code knows no format by name: a format is a closed package."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.parts import Image, Native, Text, ToolCallRequest, ToolCallResult, text_of
from antiphon.providers.presets import Preset, add_preset, remove_preset
from antiphon.repair import repair, repair_messages
from antiphon.wire import (
    FORMATS,
    Assembler,
    Message,
    ModelOutput,
    ModelRequest,
    ToolDefinition,
    formats,
    register,
    unregister,
)
from antiphon.wire.delta import deltas_from_output
from antiphon.wire.spec import detect_format
from antiphon.wire.tools.call_restorer import CallRestorer
from antiphon_gateway.config.settings import Config, ModelSettings, ProviderSettings
from gateway.rig import FAST, Client, serving
from providers.scripted_server import Reply, ScriptedServer
from support.repository import LIBRARY
from support.stage_script import FORMAT

CALLS = (ToolCallRequest("weather", "call_1", '{"city":"Oslo"}'), ToolCallRequest("clock", "call_2", "{}"))
TALK = (
    Message("system", (Text("Be brief."),)),
    Message("user", (Text("Is it raining?"),)),
    Message("assistant", (Text("I look."), *CALLS)),
    Message("tool", (ToolCallResult.of(CALLS[0], "rain"),)),
    Message("tool", (ToolCallResult.of(CALLS[1], "noon"),)),
    Message("assistant", (Text("Yes."),)),
    Message("user", (Text("Thanks."),)),
)
TOOLS = (ToolDefinition("weather", "The weather.", {"type": "object"}), ToolDefinition("clock", "The time."))
REQUEST = ModelRequest(model="diva", messages=TALK, tools=TOOLS, max_output_tokens=100)
ANSWER = ModelOutput(parts=(Text("A word."), CALLS[0]), stop_reason="tool_calls", model="diva")


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    assert register("support.stage_script") == FORMAT
    add_preset(Preset(name="theatre", format=FORMAT, path="/perform", needs_key=False))
    yield
    remove_preset("theatre")
    unregister(FORMAT)


def texts_and_calls(request: ModelRequest) -> list[tuple[str, str]]:
    """What a request says, without ids."""
    shown = []
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCallRequest):
                shown.append(("call", f"{part.tool_name} {msgspec.json.decode(part.arguments)}"))
            elif isinstance(part, ToolCallResult):
                shown.append(("result", text_of(part.content)))
            elif isinstance(part, Text):
                shown.append((message.role, part.text))
    return shown


@pytest.mark.parametrize("other", FORMATS)
def test_it_is_translated_from_and_to_every_format(other: str) -> None:
    body = formats[other].encode_request(REQUEST).data
    script, losses = formats[FORMAT].write_request(formats[other].read_request(body))
    assert formats[FORMAT].check_request(script) == []
    assert script["script"][3]["results"] == [{"tool": "weather", "said": "rain"}, {"tool": "clock", "said": "noon"}]
    assert all(loss.path.startswith(("native", "tools", "messages")) for loss in losses)
    back, _ = formats[other].write_request(formats[FORMAT].read_request(msgspec.json.encode(script)))
    assert [found.rule for found in formats[other].check_request(back)] == []
    assert texts_and_calls(formats[other].read_request(back)) == texts_and_calls(REQUEST)


def test_it_is_recognised_checked_and_repaired(caplog: pytest.LogCaptureFixture) -> None:
    cut = ModelRequest(messages=TALK[:3])
    body = formats[FORMAT].write_request(cut).body
    assert detect_format(body) == FORMAT
    assert [found.rule for found in formats[FORMAT].check_request(body)] == ["ST-03"]
    with caplog.at_level(logging.CRITICAL):
        repaired = repair(formats[FORMAT].read_request(body), FORMAT).request
        assert formats[FORMAT].check_request(formats[FORMAT].write_request(repaired).body) == []
        assert repair(repaired, FORMAT).request is repaired
        plain = repair_messages(body["script"], for_=FORMAT)
        assert formats[FORMAT].check_request({"script": plain}) == []
        assert repair_messages(plain, for_=FORMAT) is plain
        translated = repair_messages(body, for_="openai-chat")["messages"]
        assert [message["role"] for message in translated[-2:]] == ["tool", "tool"]


def test_its_own_things_go_elsewhere_as_its_spec_says() -> None:
    prop, light = Native(FORMAT, {"kind": "prop", "thing": "a lamp"}), {FORMAT: {"light": "blue", "sound": "wind"}}
    given = ModelRequest(
        messages=(Message("user", (prop, Text("Well?")), native=light),), native={FORMAT: {"earlier_act": 2}}
    )
    for name in FORMATS:
        body, losses = formats[name].encode_request(given)
        assert b"[prop: a lamp]" in body
        assert {loss.what for loss in losses} == {"sound", "prop", "earlier_act"}
        assert any("stored at stage-script" in loss.why for loss in losses)
    pasted = Message("user", (Native("openai-chat", {"type": "spoken", "words": "Hark."}),))
    lone = Message("tool", (ToolCallResult.of(CALLS[0], "rain"),))
    fixed = repair(ModelRequest(messages=(pasted, lone)), "openai-chat", is_logged=False).request
    assert ("user", "Hark.") in texts_and_calls(fixed)


def test_its_facts_hold() -> None:
    tools = (ToolDefinition("Very.Odd", None, {"type": "object"}),)
    given = ModelRequest(messages=(Message("user", (Image("image/png", "iVBORw0KGgo="),)),), tools=tools)
    body, losses = formats[FORMAT].write_request(given)
    assert body["script"][0]["lines"][0]["words"] == "[image omitted: the model takes text only]"
    (name,) = body["tools"]
    assert len(name) <= 16
    assert {loss.path for loss in losses} == {"messages[0].parts[0]", "tools[0].name"}
    answer = ModelOutput(parts=(ToolCallRequest(name, "call_1", "{}"),))
    assert CallRestorer(given).output(answer).parts == (ToolCallRequest("Very.Odd", "call_1", "{}"),)


@pytest.mark.parametrize("other", FORMATS)
def test_its_streams_are_translated_both_ways(other: str) -> None:
    for source, target in ((FORMAT, other), (other, FORMAT)):
        first = stream_of(source, ANSWER)
        reader, writer, again = formats[source].stream_reader(), formats[target].stream_writer(), Assembler()
        written = b"".join(writer.write(delta) for at in range(len(first)) for delta in reader.feed(first[at : at + 1]))
        written += b"".join(map(writer.write, reader.close())) + writer.close()
        second = formats[target].stream_reader()
        for delta in [*second.feed(written), *second.close()]:
            again.add(delta)
        assert again.is_finished
        assert again.output.stop_reason == "tool_calls"
        text, call = (part for part in again.output.parts if isinstance(part, Text | ToolCallRequest))
        assert isinstance(text, Text)
        assert text.text == "A word."
        assert isinstance(call, ToolCallRequest)
        assert (call.tool_name, msgspec.json.decode(call.arguments)) == ("weather", {"city": "Oslo"})


def stream_of(name: str, output: ModelOutput) -> bytes:
    """A stream of an answer."""
    writer = formats[name].stream_writer()
    return b"".join(map(writer.write, deltas_from_output(output, 5))) + writer.close()


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("client_format", FORMATS)
def test_a_gateway_asks_a_host_that_speaks_it(client_format: str, streams: bool) -> None:
    whole = formats[FORMAT].encode_response(ANSWER).data
    reply = (
        Reply(body=stream_of(FORMAT, ANSWER))
        if streams
        else Reply(body=whole, content_type="application/json", has_length=True)
    )
    with ScriptedServer(reply) as host:
        config = Config(
            gateway=FAST,
            providers=(ProviderSettings(name="stage", preset="theatre", base_url=host.url, retries=0),),
            models=(ModelSettings(name="mine", targets=("stage/diva",)),),
        )
        with serving(config, {}) as (port, _):
            client = Client(port)
            try:
                got = client.ask(client_format, "mine", REQUEST, streams=streams)
            finally:
                client.close()
        sent = host.received[0]
    assert sent.target == "/perform"
    body = msgspec.json.decode(sent.body)
    assert formats[FORMAT].check_request(body) == []
    assert body["bot"] == "diva"
    answer = got.output(client_format, streams=streams)
    assert "A word." in text_of(answer.parts)
    assert [part.tool_name for part in answer.parts if isinstance(part, ToolCallRequest)] == ["weather"]


_NAMED_HERE = {
    "wire/__init__.py": "the list of the formats that come with the library",
    "wire/capabilities/__init__.py": "names of vendors in names of models, and of formats in descriptions",
    "wire/provenance.py": "marks in histories of earlier versions, and calls of legacy functions",
    "repair/messages.py": "a plain list has no name: which of the formats it is in, and the default of a public function",
    "repair/chat_messages.py": "`fix_tool_call_sequence` is for messages of Chat Completions by definition",
}
_WORDS = ("gemini", "anthropic", "openai", "google", "interactions")


def test_shared_modules_know_no_format() -> None:
    packages = {name.replace("-", "_") for name in FORMATS} | {"inbound", "shared_openai.py", "shared_google.py"}
    files = [*(LIBRARY / "wire").rglob("*.py"), *(LIBRARY / "repair").rglob("*.py")]
    shared = [file for file in files if file.relative_to(LIBRARY).parts[1] not in packages]
    found = {
        place: words for file in shared if (words := named_formats(file)) and (place := str(file.relative_to(LIBRARY)))
    }
    assert {place: words for place, words in found.items() if place not in _NAMED_HERE} == {}
    assert found.keys() == _NAMED_HERE.keys()


def named_formats(file: Path) -> list[str]:
    """The names, strings and imports of a file that name a format; not its comments and docstrings."""
    tree = ast.parse(file.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts: list[Any] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docs:
            texts.append(node.value)
        texts += [getattr(node, name, None) for name in ("id", "attr", "name", "arg", "module")]
    return [text for text in texts if isinstance(text, str) and any(word in text.lower() for word in _WORDS)]
