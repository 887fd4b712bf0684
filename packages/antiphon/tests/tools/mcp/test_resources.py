"""Resources, prompts and questions of MCP servers: read by the application, offered to the model on request."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import antiphon as ap
from antiphon.errors import McpUnavailable
from antiphon.tools.mcp import McpElicitation, McpPrompt, McpResource
from support.waiting import until_async

PROGRAM = Path(__file__).parent / "resource_program.py"
T = TypeVar("T")
Use = Callable[[Callable[[ap.McpServer], Coroutine[Any, Any, Any]]], Any]
"""Run work with a server that is connected."""

# A server of an older protocol: it confirms subscriptions and reports changes to everyone who made one.
OLD_SERVER = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

watched = set()
for line in sys.stdin:
    message = json.loads(line)
    method, params, number = message.get("method"), message.get("params") or {}, message.get("id")
    if number is None:
        continue
    if method == "initialize":
        capabilities = {"resources": {"subscribe": True}, "tools": {}}
        info = {"name": "old", "version": "1"}
        send(id=number, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
    elif method == "resources/subscribe":
        watched.add(params["uri"])
        send(id=number, result={})
    elif method == "resources/unsubscribe":
        watched.discard(params["uri"])
        send(id=number, result={})
    elif method == "resources/list":
        for uri in sorted(watched):
            send(method="notifications/resources/updated", params={"uri": uri})
        send(id=number, result={"resources": [{"uri": "file:///a", "name": "a", "size": 3}]})
    elif method == "resources/templates/list":
        send(id=number, result={"resourceTemplates": []})
    else:
        send(id=number, error={"code": -32601, "message": "no such method"})
"""


def library(folder: Path, **settings: Any) -> ap.McpServer:
    return ap.McpServer.stdio(sys.executable, [str(PROGRAM), str(folder)], name="library", **settings)


def use(server: ap.McpServer, work: Callable[[ap.McpServer], Coroutine[Any, Any, T]]) -> T:
    async def used() -> T:
        async with server:
            return await work(server)

    return asyncio.run(used())


@pytest.fixture(scope="module")
def shared_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Use]:
    """One program for the tests that neither stop it nor connect in their own way: starting one takes a second."""
    with asyncio.Runner() as runner:
        server = library(tmp_path_factory.mktemp("library"))
        runner.run(server.__aenter__())
        runner.run(server.tools())  # starts it
        yield lambda work: runner.run(work(server))
        runner.run(server.__aexit__(None, None, None))


def test_resources_are_listed_and_read(shared_library: Use) -> None:
    async def work(server: ap.McpServer) -> None:
        resources = {one.uri: one for one in await server.resources()}
        assert resources["notes://today"] == McpResource(
            uri="notes://today", name="today", description="What happens today.", media_type="text/plain"
        )
        assert resources["notes://{day}/plan"].is_template
        assert await server.read_resource("notes://today") == (ap.Text("notes://today\nRain."),)
        assert await server.read_resource("notes://monday/plan") == (ap.Text("notes://monday/plan\nPlan of monday."),)
        (picture,) = await server.read_resource("notes://picture")
        assert picture == ap.Image("image/png", "cG5n")
        with pytest.raises(McpUnavailable, match="'library' did not read the resource notes://none"):
            await server.read_resource("notes://none")

    shared_library(work)


def test_a_resource_is_read_again_if_the_server_dies(tmp_path: Path) -> None:
    assert use(library(tmp_path), lambda server: server.read_resource("notes://crash")) == (
        ap.Text("notes://crash\nalive"),
    )


def test_a_prompt_continues_a_conversation(shared_library: Use) -> None:
    async def work(server: ap.McpServer) -> None:
        (prompt,) = await server.prompts()
        assert prompt == McpPrompt(name="review", description="Review a text.", required=("text",), optional=("tone",))
        model = ap.ScriptedModel("Well done.")
        chat = ap.Conversation(model)
        chat.add(*await server.get_prompt("review", {"text": "Hi.", "tone": "strict"}))
        finished = await ap.ToolLoop(chat).run(check=False)
        assert finished.text == "Well done."
        seen = [(entry.role, entry.content) for entry in model.calls[0].context]
        assert [role.value for role, _ in seen] == ["model_input", "model_output", "model_input"]
        assert seen[0][1] == (ap.Text("Review this in a strict tone: Hi."),)
        with pytest.raises(McpUnavailable, match="did not give the prompt none"):
            await server.get_prompt("none")

    shared_library(work)


def test_the_model_reads_resources_on_request(tmp_path: Path) -> None:
    async def work(server: ap.McpServer) -> None:
        calls = [
            ap.call("library__list_resources"),
            ap.call("library__read_resource", uri="notes://today"),
            ap.call("library__read_resource", uri="notes://none"),
        ]
        chat = ap.Conversation(ap.ScriptedModel(calls, "It rains."), tools=[server])
        await ap.ToolLoop(chat).run("What happens today?")
        (answered,) = [entry for entry in chat.history.entries if isinstance(entry, ap.ToolCallResultsEntry)]
        results = answered.results
        assert "- notes://today (today, text/plain): What happens today." in results[0].result_markdown
        assert "- notes://{day}/plan (plan, text/plain) [template" in results[0].result_markdown
        assert results[1].result_markdown == "notes://today\nRain."
        assert results[2].status is ap.ToolExecutionStatus.FAILED
        assert "notes://none" in results[2].result_markdown

    use(library(tmp_path, resource_tools=True), work)


def test_resources_are_not_offered_unless_asked_for(shared_library: Use, tmp_path: Path) -> None:
    tools = shared_library(lambda server: server.tools())
    assert {one.name for one in tools} == {"library__change", "library__order"}
    offered = use(library(tmp_path, resource_tools=True, effect="once"), lambda server: server.tools())
    assert {one.name: one.effect for one in offered} == {
        "library__change": "once",
        "library__order": "once",
        "library__list_resources": "read",
        "library__read_resource": "read",
    }


def test_changes_of_a_resource_are_reported(shared_library: Use) -> None:
    async def work(server: ap.McpServer) -> None:
        updates: list[str] = []

        def fails(uri: str) -> None:
            raise KeyError(uri)

        await server.subscribe("notes://today", fails)
        await server.subscribe("notes://today", updates.append)
        change = next(one for one in await server.tools() if one.name == "library__change")
        await change.call({}, ap.ToolContext())
        await until_async(lambda: updates == ["notes://today"])
        await server.unsubscribe("notes://today")
        await server.unsubscribe("notes://today")
        await change.call({}, ap.ToolContext())
        await server.resources()
        assert updates == ["notes://today"]

    shared_library(work)


def test_subscriptions_survive_a_server_that_dies(tmp_path: Path) -> None:
    async def work(server: ap.McpServer) -> None:
        updates: list[str] = []
        await server.subscribe("notes://today", updates.append)
        await server.read_resource("notes://crash")
        change = next(one for one in await server.tools() if one.name == "library__change")
        await change.call({}, ap.ToolContext())
        await until_async(lambda: updates == ["notes://today"])

    use(library(tmp_path), work)


def test_older_servers_report_changes_too(recwarn: pytest.WarningsRecorder) -> None:
    async def work(server: ap.McpServer) -> None:
        updates: list[str] = []
        await server.subscribe("file:///a", updates.append)
        assert await server.resources() == [McpResource(uri="file:///a", name="a", size=3)]
        await until_async(lambda: updates == ["file:///a"])
        await server.unsubscribe("file:///a")
        await server.resources()
        assert updates == ["file:///a"]
        assert await server.prompts() == []

    use(ap.McpServer.stdio(sys.executable, ["-c", OLD_SERVER], name="old"), work)
    assert [str(one.message) for one in recwarn if "resources/" in str(one.message)] == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_question_of_the_server_is_answered_by_the_user(tmp_path: Path, is_async: bool) -> None:
    given: list[dict[str, Any] | None] = [{"cups": 2}, {"cups": 3, "size": "large"}, None]
    questions: list[McpElicitation] = []

    async def answers_later(question: McpElicitation) -> dict[str, Any] | None:
        return answers(question)

    def answers(question: McpElicitation) -> dict[str, Any] | None:
        questions.append(question)
        return given[len(questions) - 1]

    async def work(server: ap.McpServer) -> list[str]:
        turns = [turn for _ in given for turn in (ap.call("library__order"), "Done.")]
        chat = ap.Conversation(ap.ScriptedModel(*turns), tools=[server])
        for _ in given:
            await ap.ToolLoop(chat).run("Coffee.")
        results = [entry for entry in chat.history.entries if isinstance(entry, ap.ToolCallResultsEntry)]
        return [entry.results[0].result_markdown for entry in results]

    server = library(tmp_path, on_elicitation=answers_later if is_async else answers)
    assert use(server, work) == ["2 small", "3 large", "decline"]
    assert questions[0].message == "How much coffee?"
    assert questions[0].defaults == {"size": "small", "cups": 1}
