"""`search_web`: the web through Tavily's own API, a folder of documents, or the guide; and what each does with bad input."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import DocumentsUnreadable, StoreReadOnly, ToolError
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.builtin import builtin_tools, document_index, plan_of, search_tool
from antiphon.tools.builtin.document_index import (
    READ_BYTES,
    DocumentIndex,
    DocumentText,
    marked_excerpt,
    query_terms,
    read_document,
)
from antiphon.tools.context import ToolContext
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import Tool
from antiphon.wire import formats
from antiphon.wire.request import Message, ModelRequest

KEY = "tvly-canary-0123456789abcdef"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)


async def asked(tool: Tool, query: str, **arguments: Any) -> str:
    text = await tool.run({"query": query, **arguments}, ToolContext())
    assert isinstance(text, str)
    return text


def ask(tool: Tool, query: str, **arguments: Any) -> str:
    return asyncio.run(asked(tool, query, **arguments))


class Received(msgspec.Struct):
    """A request as it came over the socket."""

    line: str
    headers: dict[str, str]
    body: Any


class FakeTavily:
    """A server on a real socket that plays answers one after the other, the last one for ever."""

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
            'The web (searched by Tavily) for "IELTS 7分 需要什么水平".\n\n'
            "1. **Band 7**\n   Source: https://example.org/7\n   What it takes.\n\n"
            "2. **https://example.org/8**\n   Source: https://example.org/8\n   "
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
    ((422, {}, b'{"detail": [{"msg": "no"}]}'), "did not take this query", False),
    ((200, {"content-type": "text/html"}, b"<html>Please log in</html>"), "not a search result", True),
    ((200, {}, b'{"results": [{"title": "no url"}]}'), "not a search result", True),
    ((200, {}, b'{"results": "many"}'), "not a search result", True),
    ((200, {"cut": "yes"}, b'{"results": [], "and": "much more"}'), "before the response ended", True),
    ((200, {}, b'{"results": [' + b" " * 4_100_000), "far too much", False),
    (refusal(401, f"The key {KEY} is not valid."), "The key …cdef is not valid.", False),
]


@pytest.mark.parametrize(("answer", "message", "retry"), REFUSALS)
def test_what_the_service_refuses_is_explained_to_the_model(
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "rain.md").write_text(
        "---\ntags: x\n---\n\n# Rain in **Oslo**\n\nIt rains on *many* days.\n\n- Take a coat.\n"
    )
    (folder / "deep" / "er" / "weather.txt").write_text("Snow is forecast for Bergen; planning a walk makes no sense.")
    (folder / "计划.md").write_text("# 学习计划\n\n今天下雨，所以在家复习单词，明天做一套真题。")
    (folder / "page.html").write_text(
        "<html><head><title>Tea &amp; cake</title><style>coat {}</style></head><body><h1>Not this</h1>"
        "<script>var coat = 1</script><p>Green tea<b>cup</b> at <i>four</i></p><p>o'clock</p></body></html>"
    )
    (folder / "old.txt").write_bytes("简体中文的旧文件：茶叶和咖啡".encode("gb18030"))
    (folder / "wide.txt").write_text("Ein breiter Text über Bäume", encoding="utf-16")
    (folder / "west.txt").write_bytes("Un café à Paris".encode("latin-1"))
    return folder


FOUND = [
    ("rain", "rain.md", "**Rain** in Oslo", "Rain in Oslo"),
    ("raining OSLO", "rain.md", "It **rains**", "Rain in Oslo"),
    ("plan walks", "deep/er/weather.txt", "**planning** a **walk**", "weather"),
    ("下雨", "计划.md", "今天**下雨**，", "学习计划"),
    ("今天下雨怎么复习", "计划.md", "**今天下雨**，所以在家**复习**单词", "学习计划"),
    ("题", "计划.md", "真**题**", "学习计划"),
    ("cake teacup", "page.html", "Green **teacup** at four o'clock", "Tea & cake"),
    ("茶叶", "old.txt", "**茶叶**和咖啡", "old"),
    ("Baume", "wide.txt", "über Bäume", "wide"),
    ("café", "west.txt", "Un **café**", "west"),
]


@pytest.mark.parametrize(("query", "path", "excerpt", "title"), FOUND)
def test_local_documents_are_found(folder: Path, query: str, path: str, excerpt: str, title: str) -> None:
    text = ask(search_tool(folder), query, max_results=1)
    first, _, result = text.partition("\n\n")
    assert first.startswith("Local documents, not the web: 7 documents, searched for ")
    number, source, message = result.split("\n")
    assert number == f"1. **{title}**"
    assert source == f"   Source: {path}"
    assert excerpt in message


def test_scripts_and_styles_are_not_indexed(folder: Path) -> None:
    assert [found.path for found in DocumentIndex(folder).search("coat").found] == ["rain.md"]


def test_documents_with_all_the_words_come_first(folder: Path) -> None:
    text = ask(search_tool(folder), "snow rain forecast Bergen")
    assert "None has all the words" in text
    assert text.index("weather.txt") < text.index("rain.md")
    assert "None has all" not in ask(search_tool(folder), "snow Bergen")
    assert "Nothing was found. Try other words" in ask(search_tool(folder), "zebra")


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


@given(st.text(st.sampled_from("\"'()*:^-+{}[]~ ANDORNOTNEAR雨下rain_\\/\0é１"), max_size=30) | st.text(max_size=30))
def test_no_query_breaks_the_index(query: str) -> None:
    found = GUIDE.search(query).found
    assert all(document.title for document in found)


GUIDE = DocumentIndex(Path(search_tool.__code__.co_filename).with_name("guide"))


def test_the_index_follows_the_folder(folder: Path) -> None:
    tool = search_tool(folder)
    assert "1. **学习计划**" in ask(tool, "单词")
    (folder / "计划.md").write_text("# 学习计划\n\n今天去看电影。")
    assert "Nothing was found" in ask(tool, "单词")
    assert "1. **学习计划**" in ask(tool, "电影")
    (folder / "new.md").write_text("A zebra.")
    assert "Source: new.md" in ask(tool, "zebras")
    (folder / "new.md").unlink()
    assert "Nothing was found" in ask(tool, "zebra")
    for path in (folder / "deep").rglob("*.txt"):
        path.rename(folder / "moved.txt")
    assert "Source: moved.txt" in ask(tool, "Bergen")


def test_a_kept_index_reads_only_what_changed(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "index.db"
    DocumentIndex(folder, kept).search("rain")
    file = folder / "rain.md"
    about = file.stat()
    with open(file, "r+b") as same:
        same.write(b"x" * about.st_size)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))  # as if nothing had happened
    assert DocumentIndex(folder, kept).search("Oslo").found
    (folder / "new.md").write_text("A zebra.")
    index = DocumentIndex(folder, kept)
    assert index.search("zebra").found
    assert index.search("Oslo").found
    os.utime(file)
    assert not index.search("Oslo").found


def test_a_search_of_an_unchanged_folder_waits_for_no_writer(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "index.db"
    index = DocumentIndex(folder, kept)
    index.search("rain")
    other = sqlite3.connect(kept, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert index.search("rain").found  # a search that wrote would find the file locked
    other.close()


def test_concurrent_searches_share_an_index(folder: Path, tmp_path: Path) -> None:
    found: list[int] = []

    def look() -> None:
        index = DocumentIndex(folder, tmp_path / "index.db")
        found.append(len(index.search("rain").found))
        index.close()

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 8


def test_what_does_not_belong_is_left_out(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "passwords.txt").write_text("zebra password")
    (folder / "link.txt").symlink_to(secret / "passwords.txt")
    (folder / "linked").symlink_to(secret)
    (folder / "circle").symlink_to(folder)
    (folder / ".hidden.md").write_text("zebra")
    (folder / ".git").mkdir()
    (folder / ".git" / "notes.md").write_text("zebra")
    (folder / "photo.md").write_bytes(b"zebra \0\1\2" * 100)
    (folder / "binary.bin").write_text("zebra")
    os.mkfifo(folder / "pipe.txt")
    with open(os.fsencode(folder) + b"/bad-\xff.txt", "w") as file:
        file.write("zebra")
    found = DocumentIndex(folder).search("zebra")
    assert (found.found, found.searched) == ((), 7)
    for came_since in ("link.txt", "pipe.txt", "linked", "gone.txt"):
        assert read_document(folder, came_since).text == ""


def test_of_a_huge_file_the_beginning_is_read(folder: Path) -> None:
    (folder / "huge.txt").write_text("zebra " + "斑" * READ_BYTES + " giraffe")
    index = DocumentIndex(folder)
    assert [found.path for found in index.search("zebra").found] == ["huge.txt"]
    assert not index.search("giraffe").found


def test_a_folder_that_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DocumentsUnreadable, match="there is no folder"):
        search_tool(tmp_path / "nowhere")
    with pytest.raises(DocumentsUnreadable, match="there is no folder"):
        search_tool(folder / "rain.md")
    tool = search_tool(folder)
    folder.rename(tmp_path / "gone")
    with pytest.raises(ToolError, match=r"the folder of documents .* cannot be read: No such file"):
        ask(tool, "rain")


def test_an_empty_folder_is_reported_as_empty(tmp_path: Path) -> None:
    text = ask(search_tool(tmp_path), "rain")
    assert "0 documents" in text
    assert "Nothing was found" in text


def test_a_thousand_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        folder = tmp_path / f"{number % 10}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.md").write_text(
            f"# Note {number}\n\nword{number} " + "rain and snow in Oslo, 今天下雨。" * 40
        )
    read: list[str] = []

    def counted(folder: Path, path: str) -> DocumentText:
        read.append(path)
        return read_document(folder, path)

    monkeypatch.setattr(document_index, "read_document", counted)
    index = DocumentIndex(tmp_path)
    assert [found.title for found in index.search("word777").found] == ["Note 777"]
    assert len(read) == 1000
    assert index.search("rain 下雨 word5").found[0].title == "Note 5"
    assert len(read) == 1000, "a search must not read the documents again"


@given(
    st.text(st.sampled_from("ab 雨下天\n"), max_size=1500),
    st.lists(st.sampled_from(["ab", "a", "下雨", "雨"]), max_size=3),
)
def test_an_excerpt_is_a_piece_of_the_text_with_words_marked(text: str, words: list[str]) -> None:
    excerpt = marked_excerpt(text, words)
    line = " ".join(text.split())
    assert excerpt.replace("**", "").strip("…") in line
    assert excerpt.count("**") % 2 == 0
    assert len(excerpt.replace("**", "")) <= 502
    assert not re.search(r"\*\*\*", excerpt)


@pytest.mark.parametrize(
    ("text", "words", "excerpt"),
    [
        ("今天下雨天", ["今天", "天下", "下雨"], "**今天下雨**天"),
        ("大雨小雨雨", ["雨"], "大**雨**小**雨雨**"),
        ("Planned plans, PLAN; airplane", ["plan"], "**Planned** **plans**, **PLAN**; airplane"),
        ("# A *cat*\n\n> and `a` **dog**\n- a cow", ["dog", "cow"], "A *cat* and a **dog** a **cow**"),
        ("x " * 600 + "cat", ["cat"], "…" + "x " * 248 + "**cat**"),
        ("x " * 600 + "cat " + "x " * 600, ["cat"], "…" + "x " * 30 + "**cat** " + "x " * 217 + "x…"),
        ("cat " + "x" * 900, ["cat"], "**cat** " + "x" * 496 + "…"),
        ("cat " + "x " * 300 + "cat cat", ["cat"], "…" + "x " * 246 + "**cat** **cat**"),
        ("no word of it", ["zebra"], "no word of it"),
        ("", ["zebra"], ""),
    ],
)
def test_an_excerpt_is_where_most_of_the_words_are(text: str, words: list[str], excerpt: str) -> None:
    assert marked_excerpt(text, words) == excerpt


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("今天下雨吗", ["今天", "天下", "下雨", "雨吗"]),
        ("雨", ["雨"]),
        ("How do I plan a TRIP?", ["plan", "trip"]),
        ("what is it", ["what", "is", "it"]),
        ("IELTS雅思7分 ielts", ["ielts", "雅思", "7", "分"]),
        ("怎么 学习", ["学习"]),
        ("?!", []),
    ],
)
def test_the_search_terms_of_a_query(query: str, words: list[str]) -> None:
    assert query_terms(query) == words


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
        assert text.startswith("Antiphon's own short guide, not the web")
        assert "TAVILY_API_KEY" in text.partition("\n")[0]
        assert f"1. **{title}**" in text
        assert "Source: built-in guide, " in text


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
    with pytest.raises(StoreReadOnly, match="cannot be made"):
        builtin_tools(tmp_path / "file" / "data")
