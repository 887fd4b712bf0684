"""Seed 002: a model that writes its calls into its text searches, plans, corrects itself and always ends with an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

import antiphon as ap
from antiphon.history import SqliteStore
from antiphon.tools.builtin import builtin_tools, plan_of
from antiphon.tools.statistics import tool_statistics
from providers.scripted_server import Received, Reply, ScriptedServer
from support.antiphon_process import run_antiphon
from terminal.test_one_shot import antiphon


def streamed(text: str) -> Reply:
    body = {"id": "x", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    return Reply(body=b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode(body))


def plain_host(*answers: str) -> ScriptedServer:
    """A host whose model has no tools, and which answers these texts one after the other."""
    left = list(answers)

    def answer(request: Received) -> Reply:
        if b'"tools":' in request.body:
            return Reply(status=400, body=b'{"error": {"message": "this model does not support tools"}}')
        return streamed(left.pop(0))

    return ScriptedServer(answer)


def conversation(
    server: ScriptedServer, place: Path | None = None, history: ap.AgentHistory | None = None
) -> ap.Conversation:
    router = ap.ProviderRouter(
        default="ollama/doubao", environ={"OLLAMA_HOST": server.url, "OLLAMA_BASE_URL": server.url}
    )
    return ap.Conversation("ollama/doubao", provider=router, tools=builtin_tools(place), history=history)


def tool_host(*answers: str) -> ScriptedServer:
    """A host that takes tools, and answers these texts one after the other."""
    left = list(answers)
    return ScriptedServer(lambda request: streamed(left.pop(0)))


def one_shot(place: Path, server: ScriptedServer, *arguments: str) -> tuple[int, str, str]:
    environment = {"OLLAMA_HOST": server.url, "OLLAMA_BASE_URL": server.url, "ANTIPHON_LANGUAGE": "zh"}
    return antiphon(place, "-m", "ollama/doubao", *arguments, environment=environment)


def results(chat: ap.Conversation) -> list[ap.ToolCallResult]:
    return [r for e in chat.history.entries if isinstance(e, ap.ToolCallResultsEntry) for r in e.results]


def test_search_then_plan_in_three_rounds(tmp_path: Path) -> None:
    plan = {"tool": "create_plan", "title": "雅思 7 分", "goal": "三个月", "tasks": ["词汇", "真题"]}
    with plain_host(
        '好的，我先搜索<tool_call>{"tool": "search_web", "query": "IELTS 备考方法"}</tool_call>',
        f"根据搜索结果，我来制定计划：<tool_call>{msgspec.json.encode(plan).decode()}</tool_call>请稍等",
        "计划已经做好。",
    ) as server:
        chat = conversation(server, tmp_path)
        events: list[Any] = []

        async def run() -> None:
            question = "搜索 IELTS 备考方法，然后帮我制定一个3个月的学习计划"
            events.extend([event async for event in ap.ToolLoop(chat).stream(question)])

        asyncio.run(run())
    shown = (ap.ToolCallStarted, ap.ToolCallFinished, ap.ToolCallFailed)
    assert [type(event).__name__ for event in events if isinstance(event, shown)] == [
        "ToolCallStarted",
        "ToolCallFinished",
        "ToolCallStarted",
        "ToolCallFinished",
    ]
    assert (events[-1].reason, events[-1].text, events[-1].rounds) == ("answered", "计划已经做好。", 3)
    made = plan_of(results(chat)[1])
    assert made is not None
    assert [task.title for task in made.tasks] == ["词汇", "真题"]


def test_answer_without_a_call_ends_at_once() -> None:
    with plain_host("你好！") as server:
        assert ap.ToolLoop(conversation(server)).run_sync("你好").rounds == 1


def test_invalid_call_is_an_error_the_model_corrects() -> None:
    with plain_host(
        '<tool_call>{"tool": "invalid_tool", "x": 1}</tool_call>',
        '<tool_call>{"tool": "search_web"}</tool_call>',
        "我无法搜索。",
    ) as server:
        chat = conversation(server)
        result = ap.ToolLoop(chat).run_sync("试试")
    assert result.text == "我无法搜索。"
    assert [str(one.status) for one in results(chat)] == ["failed", "failed"]
    assert 'Unknown tool "invalid_tool"' in results(chat)[0].result_markdown
    assert "query" in results(chat)[1].result_markdown
    assert result.reason == "failed_rounds"  # two errors in a row: the model answers with what it has


def test_create_list_get_update(tmp_path: Path) -> None:
    with plain_host(
        '<tool_call>{"tool": "create_plan", "title": "雅思", "goal": "7分", "tasks": ["词汇"]}</tool_call>',
        '<tool_call>{"tool": "list_plans"}</tool_call>',
        '{"tool": "update_plan", "plan_id": "latest", "goal": "8分"}',
        "已更新为 8 分。",
    ) as server:
        chat = conversation(server, tmp_path)
        assert ap.ToolLoop(chat).run_sync("创建、列出并更新计划").text == "已更新为 8 分。"
    assert [one.tool_name for one in results(chat)] == ["create_plan", "list_plans", "update_plan"]
    assert "雅思" in results(chat)[1].result_markdown


def test_rounds_are_bounded_and_the_end_is_never_silent() -> None:
    with plain_host(*['{"tool": "list_plans"}'] * 9, "") as server:
        result = ap.ToolLoop(conversation(server), max_rounds=2, max_repeats=0).run_sync("循环")
    assert result.reason == "max_rounds"
    assert result.text.startswith(
        "(No answer: all rounds of the turn are used; max_rounds= allows more; the model's last"
    )


def test_two_searches_then_a_plan_in_four_rounds(tmp_path: Path) -> None:
    plan = '{"tool": "create_plan", "title": "雅思", "tasks": ["阅读", "写作"]}'
    with plain_host(
        '<tool_call>{"tool": "search_web", "query": "雅思阅读技巧"}</tool_call>',
        '<tool_call>{"tool": "search_web", "query": "雅思写作提升"}</tool_call>',
        f"综合两次搜索：<tool_call>{plan}</tool_call>",
        "这是综合的学习计划。",
    ) as server:
        chat = conversation(server, tmp_path)
        result = ap.ToolLoop(chat).run_sync("搜索雅思阅读技巧，再搜索写作提升方法，然后综合制定学习计划")
    assert (result.text, result.rounds) == ("这是综合的学习计划。", 4)
    assert [one.tool_name for one in results(chat)] == ["search_web", "search_web", "create_plan"]
    assert [str(one.status) for one in results(chat)] == ["success"] * 3


def test_closed_tag_is_a_call_without_a_setting(tmp_path: Path) -> None:
    """The command line, a host that takes tools, and a fenced block in the tag."""
    with tool_host(
        '我来搜索<tool_call>\n```json\n{"tool": "search_web", "query": "雅思 7 分"}\n```\n</tool_call>请稍等',
        "需要每天练习。",
    ) as server:
        code, out, err = one_shot(tmp_path, server, "-p", "搜索 IELTS 7分")
        assert (code, out, err) == (0, "我来搜索请稍等\n\n需要每天练习。\n", "")
        assert b"ielts" in server.received[-1].body


def test_broken_tag_is_not_shown(tmp_path: Path) -> None:
    with tool_host("我来搜索<tool_call>{'tool': 'search_web'}</tool_call>", "我没能搜索。") as server:
        code, out, err = one_shot(tmp_path, server, "-p", "搜索")
        assert (code, out, err) == (0, "我来搜索\n\n我没能搜索。\n", "")
        assert b"not valid JSON" in server.received[-1].body
    with tool_host('例如 `<tool_call>{"tool": "list_plans"}</tool_call>`') as server:
        assert "<tool_call>" in one_shot(tmp_path, server, "-p", "怎么写？")[1]
    with tool_host('<tool_call>{"tool": "list_plans"}</tool_call>') as server:
        assert "<tool_call>" in one_shot(tmp_path, server, "-p", "计划", "--embedded-calls", "off")[1]


def test_tool_statistics_are_counted_from_the_log(tmp_path: Path) -> None:
    with (
        plain_host(
            '<tool_call>{"tool": "search_web", "query": "雅思"}</tool_call>',
            '<tool_call>{"tool": "search_web", "query": "雅思"}</tool_call>',
            '<tool_call>{"tool": "get_plan", "plan_id": "plan-9"}</tool_call>',
            "好了。",
        ) as server,
        SqliteStore(tmp_path / "chats.db") as store,
    ):
        chat = conversation(server, tmp_path, store.create())
        ap.ToolLoop(chat, max_repeats=0).run_sync("搜索两次，再看计划")
        search, plan = tool_statistics(store)
    assert (search.tool, search.calls, search.failed, search.timed) == ("search_web", 2, 0, 2)
    assert (plan.tool, plan.calls, plan.failed) == ("get_plan", 1, 1)
    run = run_antiphon("tools", "stats", "--store", str(tmp_path / "chats.db"))
    assert run.returncode == 0
    assert [line.split()[0] for line in run.stdout.decode().splitlines()] == ["TOOL", "search_web", "get_plan"]
