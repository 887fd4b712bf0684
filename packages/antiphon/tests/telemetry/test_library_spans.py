"""Model calls, tool calls and turns as spans and metrics, exported by OpenTelemetry's SDK to an OTLP endpoint."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

import antiphon as ap
from antiphon import telemetry
from antiphon.providers import HttpProviderClient
from antiphon.telemetry import switch
from antiphon.wire import ModelOutput, OutputFormat, ProviderError, Reasoning
from providers.sample_answers import PRESET_OF, STREAMS
from providers.scripted_server import Reply, ScriptedServer
from support.installed import needs_chat
from support.otlp_receiver import OtlpReceiver, ReceivedSpan

PROGRAM = Path(__file__).parent.parent / "tools" / "mcp" / "server_program.py"


@contextmanager
def exported(**variables: str) -> Iterator[OtlpReceiver]:
    """Telemetry that is on inside the block; after it the receiver has everything."""
    with OtlpReceiver() as receiver, pytest.MonkeyPatch.context() as environment:
        for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, **variables}.items():
            environment.setenv(name, value)
        assert telemetry.enable_from_environment() is not None
        try:
            yield receiver
        finally:
            telemetry.disable()


@ap.tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Rain in {city}."


def run(loop: ap.ToolLoop, text: str = "Hello") -> None:
    loop.run_sync(text)


def parent_of(receiver: OtlpReceiver, span: ReceivedSpan) -> str:
    return next(one.name for one in receiver.spans if one.span_id == span.parent_id)


def test_a_turn_is_a_tree_of_spans() -> None:
    model = ap.ScriptedModel(ap.call("weather", city="Oslo"), "It rains.", name="anthropic")
    with exported(OTEL_SERVICE_NAME="shop") as receiver:
        chat = ap.Conversation(model, tools=[weather], settings={"temperature": 0.0, "max_output_tokens": 50})
        run(ap.ToolLoop(chat, name="helper"))
        key = chat.key
    agent, executed = receiver.named("invoke_agent helper"), receiver.named("execute_tool weather")
    first, second = [span for span in receiver.spans if span.name == "chat anthropic"]
    assert receiver.resource["service.name"] == "shop"
    assert {span.trace_id for span in receiver.spans} == {agent.trace_id}
    assert agent.parent_id == ""
    assert {span.parent_id for span in (first, second, executed)} == {agent.span_id}
    assert [agent.kind, first.kind, executed.kind] == [
        Span.SPAN_KIND_INTERNAL,
        Span.SPAN_KIND_CLIENT,
        Span.SPAN_KIND_INTERNAL,
    ]
    assert (
        first.attributes
        | {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "anthropic",
            "gen_ai.request.stream": True,
            "gen_ai.request.temperature": 0.0,
            "gen_ai.request.max_tokens": 50,
            "gen_ai.conversation.id": key,
            "session.id": key,
            "gen_ai.response.finish_reasons": ["tool_call"],
        }
        == first.attributes
    )
    assert second.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert second.attributes["gen_ai.usage.input_tokens"] > 0
    assert second.attributes["gen_ai.usage.output_tokens"] > 0
    assert second.attributes["gen_ai.response.time_to_first_chunk"] > 0
    assert executed.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": executed.attributes["gen_ai.tool.call.id"],
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "The weather in a city.",
        "gen_ai.conversation.id": key,
        "session.id": key,
    }
    assert agent.attributes["antiphon.turn.reason"] == "answered"
    assert agent.attributes["antiphon.turn.rounds"] == 2
    total = first.attributes["gen_ai.usage.input_tokens"] + second.attributes["gen_ai.usage.input_tokens"]
    assert agent.attributes["gen_ai.usage.input_tokens"] == total
    assert not any(span.failed for span in receiver.spans)


def test_calls_failures_and_cache_hits_of_each_tool_are_in_its_duration() -> None:
    @ap.tool(effect="read", cache_seconds=60)
    def look(word: str) -> str:
        "Look a word up."
        if word == "x":
            raise ValueError(word)
        return word

    model = ap.ScriptedModel(*(ap.call("look", word=word) for word in ("a", "a", "x")), "Done.")
    with exported() as receiver:
        run(ap.ToolLoop(ap.Conversation(model, tools=[look])))
    points = receiver.metrics["gen_ai.execute_tool.duration"]
    assert [(point.get("antiphon.tool.cached"), point.get("error.type")) for point in points] == [
        (None, None),
        (True, None),
        (None, "ValueError"),
    ]


def test_metrics_of_a_turn() -> None:
    model = ap.ScriptedModel(ap.call("weather", city="Oslo"), "It rains.", name="anthropic")
    with exported() as receiver:
        chat = ap.Conversation(model, tools=[weather])
        run(ap.ToolLoop(chat, name="helper"))
        usage = chat.usage
    for name in ("gen_ai.client.inference.duration", "gen_ai.client.operation.duration"):
        (point,) = receiver.metrics[name]
        assert point["gen_ai.provider.name"] == point["gen_ai.request.model"] == "anthropic"
        assert point["gen_ai.operation.name"] == "chat"
        assert point["value"] > 0
    assert receiver.metrics["gen_ai.client.inference.time_to_first_chunk"][0]["value"] > 0
    assert receiver.metrics["gen_ai.client.inference.usage.input_tokens"][0]["value"] == usage.prompt_tokens
    assert receiver.metrics["gen_ai.client.inference.usage.output_tokens"][0]["value"] == usage.completion_tokens
    totals = {point["gen_ai.token.type"]: point["value"] for point in receiver.metrics["gen_ai.client.token.usage"]}
    assert totals == {"input": usage.prompt_tokens, "output": usage.completion_tokens}
    assert receiver.metrics["gen_ai.execute_tool.duration"][0]["gen_ai.tool.name"] == "weather"
    assert receiver.metrics["gen_ai.invoke_agent.duration"][0]["gen_ai.agent.name"] == "helper"
    assert receiver.metrics["gen_ai.invoke_agent.inference_calls"][0]["value"] == 2
    assert receiver.metrics["gen_ai.invoke_agent.tool_calls"][0]["value"] == 1


def test_content_is_recorded_only_on_request() -> None:
    def spans(**variables: str) -> OtlpReceiver:
        model = ap.ScriptedModel(ap.call("weather", city="Oslo"), "It rains.")
        with exported(**variables) as receiver:
            run(ap.ToolLoop(ap.Conversation(model, tools=[weather], system="Be brief.")), "Is it raining?")
        return receiver

    without = spans()
    assert not any("Oslo" in str(span.attributes) or "raining" in str(span.attributes) for span in without.spans)
    receiver = spans(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY")
    executed = receiver.named("execute_tool weather").attributes
    assert json.loads(executed["gen_ai.tool.call.arguments"]) == {"city": "Oslo"}
    assert executed["gen_ai.tool.call.result"] == "Rain in Oslo."
    last = [span.attributes for span in receiver.spans if span.name.startswith("chat")][-1]
    assert json.loads(last["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    asked, called, answered = json.loads(last["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "Is it raining?"}]}
    assert called["parts"][0]["arguments"] == {"city": "Oslo"}
    assert answered["role"] == "tool"
    assert answered["parts"][0]["response"] == "Rain in Oslo."
    assert json.loads(last["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "It rains."}], "finish_reason": "stop"}
    ]
    (offered,) = json.loads(last["gen_ai.tool.definitions"])
    assert offered["name"] == "weather"


def test_errors_have_a_type() -> None:
    @ap.tool
    def broken() -> str:
        """Fails."""
        raise KeyError("x")

    @ap.tool(timeout=0.01)
    async def slow() -> str:
        """Takes too long."""
        await asyncio.sleep(30)
        return ""

    calls = [ap.call("broken"), ap.call("slow"), ap.call("absent")]
    model = ap.ScriptedModel(calls, ProviderError("x", "overloaded"))
    with exported() as receiver:
        loop = ap.ToolLoop(ap.Conversation(model, tools=[broken, slow]))
        with pytest.raises(ap.ModelCallFailed):
            run(loop)
    types = {span.name: span.attributes.get("error.type") for span in receiver.spans if span.failed}
    assert types == {
        "execute_tool broken": "KeyError",
        "execute_tool slow": "timeout",
        "execute_tool absent": "ToolError",
        "chat scripted": "overloaded",
        "invoke_agent": "overloaded",
    }
    failed = [point for point in receiver.metrics["gen_ai.client.inference.duration"] if "error.type" in point]
    assert [point["error.type"] for point in failed] == ["overloaded"]


def test_an_interrupted_turn_ends_its_spans() -> None:
    started = asyncio.Event()

    @ap.tool
    async def wait() -> str:
        """Waits."""
        started.set()
        await asyncio.sleep(30)
        return ""

    async def interrupted() -> None:
        loop = ap.ToolLoop(ap.Conversation(ap.ScriptedModel(ap.call("wait"), "Done."), tools=[wait]))
        running = asyncio.ensure_future(loop.run("Go"))
        await asyncio.wait_for(started.wait(), 10)
        assert await loop.interrupt()
        await running

    with exported() as receiver:
        asyncio.run(interrupted())
    types = {span.name: span.attributes.get("error.type") for span in receiver.spans}
    assert types == {"chat scripted": None, "execute_tool wait": "CancelledError", "invoke_agent": "interrupted"}


def test_a_reader_that_stops_ends_the_span() -> None:
    async def stopped() -> None:
        chat = ap.Conversation(ap.ScriptedModel("A long answer in several pieces."))
        chat.add("Hello")
        deltas = chat.stream_model()
        await anext(deltas)
        await deltas.aclose()

    with exported() as receiver:
        asyncio.run(stopped())
    assert receiver.named("chat scripted").attributes["error.type"] == "interrupted"


def test_agents_of_a_team_have_a_span_each() -> None:
    model = ap.ScriptedModel(ap.call("hand_off_to_coder", reason="code"), "Done.")
    agents = [
        ap.Agent("planner", "Plan.", hand_offs=["coder"], description="Plans."),
        ap.Agent("coder", "Code."),
    ]
    with exported() as receiver:
        run(ap.ToolLoop(ap.Conversation(model), agents=agents, name="team"))
    workflow = receiver.named("invoke_workflow team")
    planner, coder = receiver.named("invoke_agent planner"), receiver.named("invoke_agent coder")
    assert {planner.parent_id, coder.parent_id} == {workflow.span_id}
    assert planner.attributes["gen_ai.agent.description"] == "Plans."
    assert parent_of(receiver, receiver.named("execute_tool hand_off_to_coder")) == "invoke_agent planner"
    chats = [span for span in receiver.spans if span.name == "chat scripted"]
    assert [parent_of(receiver, span) for span in chats] == ["invoke_agent planner", "invoke_agent coder"]
    assert [span.attributes["gen_ai.agent.name"] for span in chats] == ["planner", "coder"]


def test_an_agent_as_a_tool_is_inside_the_span_of_its_call() -> None:
    helper = ap.Agent("helper", model=ap.ScriptedModel("42", name="inner"))
    model = ap.ScriptedModel(ap.call("ask_helper", request="What is 6 x 7?"), "It is 42.")
    with exported() as receiver:
        run(ap.ToolLoop(ap.Conversation(model, tools=[helper.as_tool()]), name="outer"))
    assert parent_of(receiver, receiver.named("invoke_agent helper")) == "execute_tool ask_helper"
    assert parent_of(receiver, receiver.named("chat inner")) == "invoke_agent helper"


@pytest.mark.parametrize("format_name", STREAMS)
def test_the_provider_gets_the_trace(format_name: str) -> None:
    with ScriptedServer(Reply(status=529), Reply(body=STREAMS[format_name])) as server, exported() as receiver:
        client = HttpProviderClient(PRESET_OF[format_name], base_url=server.url, keys=["k"])
        router = ap.ProviderRouter({"here": client})
        run(ap.ToolLoop(ap.Conversation("here/m", provider=router)))
    (chat,) = [span for span in receiver.spans if span.name.startswith("chat")]
    assert len(server.received) == 2
    for request in server.received:
        assert request.headers["traceparent"].split("-")[1:3] == [chat.trace_id, chat.span_id]
    assert (chat.attributes["server.address"], chat.attributes["server.port"]) == ("127.0.0.1", server.port)
    assert (chat.name, chat.attributes["gen_ai.request.model"]) == ("chat m", "m")
    assert chat.events == ("antiphon.attempt_failed",)
    assert chat.attributes["gen_ai.response.finish_reasons"] == ["stop"]


def test_tools_get_the_trace() -> None:
    seen: dict[str, str] = {}

    @ap.tool
    def in_thread(context: ap.ToolContext) -> str:
        """Runs in a thread."""
        seen["in_thread"] = context.trace_headers["traceparent"]
        return ""

    @ap.tool
    async def on_loop(context: ap.ToolContext) -> str:
        """Runs on the event loop."""
        await asyncio.sleep(0)
        seen["on_loop"] = context.trace_headers["traceparent"]
        return ""

    model = ap.ScriptedModel([ap.call("in_thread"), ap.call("on_loop")], "Done.")
    with exported() as receiver:
        run(ap.ToolLoop(ap.Conversation(model, tools=[in_thread, on_loop])))
    for name, header in seen.items():
        span = receiver.named(f"execute_tool {name}")
        assert header.split("-")[1:3] == [span.trace_id, span.span_id]
    assert ap.ToolContext().trace_headers == {}


def test_mcp_servers_get_the_trace(tmp_path: Path) -> None:
    async def ask() -> None:
        server = ap.McpServer.stdio(sys.executable, [str(PROGRAM), "stdio", str(tmp_path)], name="test")
        model = ap.ScriptedModel(ap.call("test__traced"), "Done.")
        async with ap.Conversation(model, tools=[server]) as chat:
            await ap.ToolLoop(chat).run("Go")

    with exported() as receiver:
        asyncio.run(ask())
    trace_id = receiver.named("execute_tool test__traced").trace_id
    assert (tmp_path / "traceparent").read_text().split("-")[1] == trace_id


def test_the_callers_trace_is_continued() -> None:
    tracer = TracerProvider().get_tracer("app")
    with exported() as receiver, tracer.start_as_current_span("request") as request:
        run(ap.ToolLoop(ap.Conversation(ap.ScriptedModel("Hi."))))
    assert receiver.named("invoke_agent").parent_id == f"{request.get_span_context().span_id:016x}"


def test_off_by_default_and_after_disable() -> None:
    assert switch.active is None
    with exported() as receiver:
        telemetry.disable()
        run(ap.ToolLoop(ap.Conversation(ap.ScriptedModel("Hi."))))
    assert receiver.spans == []


@needs_chat
def test_the_command_line_exports_where_the_environment_says(tmp_path: Path) -> None:
    with OtlpReceiver() as receiver:
        command = [
            sys.executable,
            "-m",
            "antiphon",
            "chat",
            "-m",
            "offline/plain",
            "-p",
            "Hello",
            "--store",
            "chats.db",
        ]
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert parent_of(receiver, receiver.named("chat plain")) == "invoke_agent"


def program(*lines: str) -> subprocess.CompletedProcess[str]:
    code = "\n".join(("import sys; sys.modules['opentelemetry'] = None", *lines))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_without_opentelemetry_the_library_works_and_enable_says_what_to_install() -> None:
    ran = program(
        "import antiphon as ap",
        "from antiphon import telemetry",
        "print(ap.ToolLoop(ap.Conversation(ap.ScriptedModel('Hi.'))).run_sync('Hello').text)",
        "telemetry.enable()",
    )
    assert ran.stdout == "Hi.\n"
    assert "ExtraMissing" in ran.stderr
    assert "pip install 'antiphon[otel]'" in ran.stderr


NEWER = {
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.request.reasoning.level",
}
"""Attributes that the conventions have and the published registry does not have yet."""
NEWER_METRICS = {
    "gen_ai.client.inference.duration",
    "gen_ai.client.inference.time_to_first_chunk",
    *(
        f"gen_ai.client.inference.usage.{name}_tokens"
        for name in ("input", "output", "cache_read.input", "cache_write.input", "reasoning.output")
    ),
    "gen_ai.execute_tool.duration",
    "gen_ai.invoke_agent.duration",
    "gen_ai.invoke_agent.inference_calls",
    "gen_ai.invoke_agent.tool_calls",
    "gen_ai.invoke_workflow.duration",
}


def test_names_are_those_of_the_registry() -> None:
    attributes = {value for name, value in vars(gen_ai_attributes).items() if name.isupper()}
    metrics = {value for name, value in vars(gen_ai_metrics).items() if name.isupper()}
    usage = ap.TokenUsage(100, 20, 60, 5, 7)
    answer = ModelOutput(parts=(ap.Text("Hi."),), stop_reason="end", usage=usage)
    settings = ap.ModelSettings(
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        max_output_tokens=9,
        stop=("x",),
        seed=1,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        reasoning=Reasoning(effort="low"),
        output_format=OutputFormat("json_object"),
    )
    with exported(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true") as receiver:
        chat = ap.Conversation(
            ap.ScriptedModel(ap.call("weather", city="Oslo"), answer), tools=[weather], system="Hi.", settings=settings
        )
        run(ap.ToolLoop(chat, agents=[ap.Agent("one", description="One.")], name="team"))
    written = {name for span in receiver.spans for name in span.attributes if name.startswith("gen_ai.")}
    assert written - attributes == NEWER
    assert {name for name in receiver.metrics if name not in metrics} <= NEWER_METRICS
    assert len(written) > 25
    last = receiver.spans[-1]
    cached = [span.attributes for span in receiver.spans if "gen_ai.usage.cache_read.input_tokens" in span.attributes]
    assert cached, last
    assert cached[0]["gen_ai.usage.cache_write.input_tokens"] == 5
    assert cached[0]["gen_ai.usage.cache_creation.input_tokens"] == 5
    assert cached[0]["gen_ai.usage.reasoning.output_tokens"] == 7
