"""`search_web`: the web through Tavily's own API, a folder of documents, or the guide; and what each does with bad input."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.errors import StoreReadOnly, ToolError
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.builtin import builtin_tools, plan_of, search_tool
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import Tool
from antiphon.wire import formats
from antiphon.wire.request import Message, ModelRequest
from tools.builtin.searching import KEY, ask, asked


class Received(msgspec.Struct):
    """A request as it came over the socket."""

    line: str
    headers: dict[str, str]
    body: Any


class FakeTavily:
    """A server on a real socket that plays answers one after the other, the last one forever."""

    def __init__(self, answers: list[tuple[int, dict[str, str], bytes]]) -> None:
        self.answers = answers
        self.received: list[Received] = []
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.received.append(Received(head[0], headers, msgspec.json.decode(body)))
        status, more, answer = self.answers[min(len(self.received), len(self.answers)) - 1]
        lines = [f"HTTP/1.1 {status} Whatever", "connection: close", f"content-length: {len(answer)}"]
        lines += [f"{name}: {value}" for name, value in more.items() if name != "cut"]
        writer.write("\r\n".join([*lines, "", ""]).encode() + (answer[:20] if "cut" in more else answer))
        await writer.drain()
        writer.close()


@asynccontextmanager
async def tavily(*answers: tuple[int, dict[str, str], bytes]) -> AsyncIterator[FakeTavily]:
    fake = FakeTavily(list(answers))
    server = await asyncio.start_server(fake, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()
        await server.wait_closed()


def pages(*found: tuple[str, str | None, str | None]) -> tuple[int, dict[str, str], bytes]:
    results = [
        {"url": url, "title": title, "content": content, "score": 0.9, "raw_content": None}
        for url, title, content in found
    ]
    return (
        200,
        {},
        msgspec.json.encode({"query": "q", "answer": None, "images": [], "results": results, "request_id": "r"}),
    )


def refusal(status: int, error: str = "", **headers: str) -> tuple[int, dict[str, str], bytes]:
    return status, headers, msgspec.json.encode({"detail": {"error": error}})


def with_tavily(
    work: Callable[[FakeTavily, Tool], Awaitable[None]], *answers: tuple[int, dict[str, str], bytes], key: str = KEY
) -> None:
    async def run() -> None:
        async with tavily(*answers) as fake:
            await work(fake, search_tool(key=key, base_url=fake.url))

    asyncio.run(run())


def test_address_of_the_service_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with tavily(pages()) as fake:
            monkeypatch.setenv("TAVILY_BASE_URL", fake.url)
            monkeypatch.setenv("TAVILY_API_KEY", KEY)
            await asked(search_tool(), "IELTS")
            assert [got.body["query"] for got in fake.received] == ["IELTS"]

    asyncio.run(run())


def test_the_web_is_searched_through_the_real_api() -> None:
    async def work(fake: FakeTavily, tool: Tool) -> None:
        text = await asked(tool, "  IELTS 7分\n需要什么水平 ", max_results=3)
        assert text == (
            "用 Tavily 搜索网络：“IELTS 7分 需要什么水平”。\n\n"
            "1. **Band 7**\n   来源：https://example.org/7\n   What it takes.\n\n"
            "2. **https://example.org/8**\n   来源：https://example.org/8\n   "
        )
        (got,) = fake.received
        assert got.line == "POST /search HTTP/1.1"
        assert got.body == {"query": "IELTS 7分 需要什么水平", "max_results": 3}
        assert got.headers["authorization"] == f"Bearer {KEY}"

    with_tavily(
        work, pages(("https://example.org/7", "Band\n7", "What it\n takes."), ("https://example.org/8", None, None))
    )


def test_the_request_is_the_one_of_the_official_client() -> None:
    official = pytest.importorskip("tavily")

    async def work(fake: FakeTavily, tool: Tool) -> None:
        await asked(tool, "雅思 writing", max_results=4)
        with official.TavilyClient(api_key=KEY, api_base_url=fake.url) as client:
            await asyncio.to_thread(client.search, "雅思 writing", max_results=4)
        ours, theirs = fake.received
        assert (ours.line, ours.body) == (theirs.line, theirs.body)
        for name in ("authorization", "content-type"):
            assert ours.headers[name] == theirs.headers[name]
        assert ours.headers["x-client-source"] == "antiphon"  # where the official client names itself

    with_tavily(work, pages())


REFUSALS = [
    (refusal(400, "Query is too short."), "ask in other words (Query is too short.)", False),
    (refusal(401, "Unauthorized: missing or invalid API key."), "the user must check TAVILY_API_KEY", False),
    (refusal(403, "Forbidden."), "does not allow this search", False),
    (refusal(429, "Blocked due to excessive requests."), "wait before you search again (Blocked", True),
    (refusal(429, "Slow down.", **{"retry-after": "7"}), "wait before you search again, at least 7 s", True),
    (refusal(432, "This request exceeds your plan's set usage limit."), "the search plan's limit is used up", False),
    (refusal(433, "Exceeds the pay-as-you-go limit."), "the pay-as-you-go limit for searches is used up", False),
    (refusal(500), "answered with status 500", True),
    ((502, {"content-type": "text/html"}, b"<html>Bad gateway</html>"), "answered with status 502; try again", True),
    ((422, {}, b'{"detail": [{"msg": "no"}]}'), "rejected this query", False),
    ((200, {"content-type": "text/html"}, b"<html>Please log in</html>"), "not a search result", True),
    ((200, {}, b'{"results": [{"title": "no url"}]}'), "not a search result", True),
    ((200, {}, b'{"results": "many"}'), "not a search result", True),
    ((200, {"cut": "yes"}, b'{"results": [], "and": "much more"}'), "before the response ended", True),
    ((200, {}, b'{"results": [' + b" " * 4_100_000), "far too much", False),
    (refusal(401, f"The key {KEY} is not valid."), "The key …cdef is not valid.", False),
]


@pytest.mark.parametrize(("answer", "message", "retry"), REFUSALS)
def test_errors_of_the_search_service_are_explained_to_the_model(
    answer: tuple[int, dict[str, str], bytes], message: str, retry: bool
) -> None:
    async def work(fake: FakeTavily, tool: Tool) -> None:
        with pytest.raises(ToolError) as raised:
            await asked(tool, "anything")
        assert message in str(raised.value)
        assert raised.value.retry is retry
        assert KEY not in str(raised.value)

    with_tavily(work, answer)


def test_a_service_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ToolError, match="the search service cannot be reached: cannot connect to") as raised:
        ask(search_tool(key=KEY, base_url=f"http://127.0.0.1:{port}"), "anything")
    assert raised.value.retry


@pytest.mark.parametrize(
    ("key", "message"),
    [("env:NO_SUCH_KEY", "NO_SUCH_KEY is not set"), ("käy-käy-käy-käy", "an HTTP header cannot carry")],
)
def test_a_key_that_cannot_be_used(key: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        ask(search_tool(key=key), "anything")


async def executed(executor: ToolExecutor, tool_name: str, **arguments: Any) -> ToolCallResult:
    call = ToolCallRequest(tool_name, "call_1", msgspec.json.encode(arguments).decode())
    (result,) = await executor.execute([call], conversation_id="talk")
    return result


def test_the_same_search_is_made_once_and_a_passing_fault_is_tried_again() -> None:
    async def work(fake: FakeTavily, tool: Tool) -> None:
        executor = ToolExecutor(ToolRegistry([tool]))
        results = [await executed(executor, "search_web", query="rain") for _ in range(3)]
        assert [result.status for result in results] == [ToolExecutionStatus.SUCCESS] * 3
        assert "1. **Rain**" in results[2].result_markdown
        assert len(fake.received) == 2  # the one that failed, and the one that did not

    with_tavily(work, refusal(503), pages(("https://example.org", "Rain", "It rains.")))


def test_a_key_that_is_refused_is_not_tried_again() -> None:
    async def work(fake: FakeTavily, tool: Tool) -> None:
        result = await executed(ToolExecutor(ToolRegistry([tool])), "search_web", query="rain")
        assert result.status is ToolExecutionStatus.FAILED
        assert "answer with what you know" in result.result_markdown
        assert len(fake.received) == 1

    with_tavily(work, refusal(401, "no"))


@pytest.mark.parametrize("max_results", [0, 21, -1, "many"])
def test_the_number_of_results_has_bounds(folder: Path, max_results: object) -> None:
    with pytest.raises(ToolError, match="max_results"):
        ask(search_tool(folder), "rain", max_results=max_results)


@pytest.mark.parametrize(
    ("query", "message"),
    [("", "query is empty"), (" \n\t", "query is empty"), ("x" * 401, "401 characters"), ('?!"*()', "no word in it")],
)
def test_a_query_without_search_terms(folder: Path, query: str, message: str) -> None:
    for tool in (search_tool(folder), search_tool(), search_tool(key=KEY)):
        with pytest.raises(ToolError, match=re.escape(message)) as raised:
            ask(tool, query)
        assert not raised.value.retry


def test_the_guide_answers_without_any_setup() -> None:
    for query, title in [
        ("IELTS 7分需要什么水平", "雅思 7 分需要什么水平，怎么备考"),
        ("what is needed for IELTS band 7", "IELTS band 7: what it takes and how to prepare"),
        ("雅思阅读技巧", "雅思阅读技巧"),
        ("写作提升方法", "雅思写作提升方法"),
        ("plan a trip to Norway", "How to plan a trip"),
        ("旅行计划", "怎样计划一次旅行"),
    ]:
        text = ask(search_tool(), query)
        is_chinese = not title.isascii()
        assert text.startswith("Antiphon 自带的简短指南" if is_chinese else "Antiphon's own short guide, not the web")
        assert "TAVILY_API_KEY" in text.partition("\n")[0]
        assert f"1. **{title}**" in text
        assert ("来源：自带指南，" if is_chinese else "Source: built-in guide, ") in text
    assert "没有找到" in ask(search_tool(), "量子引力")


def test_explicit_settings_override_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", KEY)
    assert search_tool().description.startswith("Search the web")
    assert search_tool(folder).description.startswith("Search the user's own documents")
    assert search_tool(folder, KEY).description.startswith("Search the web")
    assert search_tool(key="").description.startswith("Search a short built-in guide")
    assert {tool.name for tool in (search_tool(), search_tool(folder), search_tool(key=""))} == {"search_web"}
    assert {tool.effect for tool in (search_tool(), search_tool(folder), search_tool(key=""))} == {"read"}


def test_the_built_in_tools_work_without_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["create_plan", "list_plans", "get_plan", "update_plan", "delete_plan", "search_web"]
    place = tmp_path / "new" / "data"
    assert [tool.name for tool in builtin_tools()] == names
    tools = builtin_tools(place)
    assert [tool.name for tool in tools] == names

    async def work() -> None:
        executor = ToolExecutor(ToolRegistry(tools))
        found = await executed(executor, "search_web", query="雅思 7 分")
        assert "第 1-2 周" in found.result_markdown
        made = await executed(executor, "create_plan", title="雅思", goal="7 分", tasks=["做一套真题"])
        assert plan_of(made) is not None
        assert plan_of(
            await executed(ToolExecutor(ToolRegistry(builtin_tools(place))), "get_plan", plan_id="1")
        ) == plan_of(made)

    asyncio.run(work())
    (place / "documents").mkdir()
    (place / "documents" / "a.md").write_text("# Zebras\n\nThey have stripes.")
    assert "1 document, searched" in ask(builtin_tools(place)[-1], "stripes")
    monkeypatch.setenv("TAVILY_API_KEY", KEY)
    assert builtin_tools(place)[-1].description.startswith("Search the web")


@pytest.mark.parametrize("name", formats)
def test_every_format_can_offer_the_built_in_tools(name: str) -> None:
    tools = ToolRegistry(builtin_tools()).definitions
    request = ModelRequest(model="m", messages=(Message("user", (Text("Hi."),)),), tools=tools)
    body, losses = formats[name].write_request(request)
    assert losses == []
    assert formats[name].check_request(body) == []


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreReadOnly, match="cannot create the folder"):
        builtin_tools(tmp_path / "file" / "data")
