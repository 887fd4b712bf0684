"""Exports of a conversation, and that nothing in a shared page runs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser

from msgspec.structs import replace

from antiphon.history import (
    AgentHistory,
    ConversationInfo,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    ToolCallResultsEntry,
)
from antiphon.parts import Image, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.tools.builtin.plan_tools import one_plan
from antiphon.tools.builtin.plans import Plan, PlanTask
from antiphon_chat.language import current_language
from antiphon_chat.shared.conversations.export import POLICY, export, file_name

NOW = datetime(2026, 7, 1, tzinfo=UTC)
ATTACK = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(1)>"
INFO = ConversationInfo(id="c1", title=f"Herons {ATTACK}", created=NOW, updated=NOW, version=4)


def conversation() -> AgentHistory:
    call = ToolCallRequest(f"look{ATTACK}", "call_1", json.dumps({"what": ATTACK}))
    history = AgentHistory()
    history.append(ModelInputEntry.of(f"Where? {ATTACK}", Image(media_type="image/png", data="aGk=")))
    origin = Origin("openai", "openai-chat", f"gpt{ATTACK}")
    markdown = f"**Left** [go](javascript:alert(1)) [ok](https://e.com/?a=1&b=2)\n\n```html\n{ATTACK}\n```\n\n{ATTACK}\n\n$x^2$"
    history.append(ModelOutputEntry((Thinking(f"Hm {ATTACK}"), Text(markdown), call), origin=origin))
    history.append(ToolCallResultsEntry((ToolCallResult.of(call, f"a heron {ATTACK} ````"),)))
    history.append(ModelOutputEntry((Text("There."),), origin=origin))
    return history


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_a_shared_page_is_self_contained_and_nothing_in_it_runs() -> None:
    page = export("html", INFO, conversation().snapshot()).decode()
    assert "--answer: light-dark(#0c6847" in page, "the tokens of theme.css"
    assert page.rstrip().endswith("made with Antiphon</footer>\n</main>\n</body>\n</html>")
    tags = Tags()
    tags.feed(page)
    names = {name for name, _ in tags.seen}
    assert not names & {"script", "iframe", "object", "embed", "link", "form", "svg", "base"}
    for name, attributes in tags.seen:
        assert not any(key.startswith("on") or key == "style" for key in attributes), (name, attributes)
        for key in ("src", "href"):
            address = attributes.get(key) or ""
            assert not address or re.match(r"(data:image/png;base64,|https://e\.com/)", address), address
    policy = next(attributes["content"] for name, attributes in tags.seen if attributes.get("http-equiv"))
    assert policy == POLICY
    assert "default-src 'none'" in POLICY
    assert "script" not in POLICY
    assert "unsafe" not in POLICY
    assert "There." in page
    assert "https://e.com/?a=1&amp;b=2" in page


def test_a_shared_page_names_models_and_searches_as_people_do() -> None:
    history = AgentHistory()
    call = ToolCallRequest("search_web", "call_1", '{"query": "herons"}')
    history.append(ModelOutputEntry((call,), origin=Origin("anthropic", "anthropic", "claude-sonnet-5")))
    history.append(ToolCallResultsEntry((ToolCallResult.of(call, "1. **Willows**\n2. **Reeds**"),)))
    history.append(ModelOutputEntry((Text("There."),), origin=Origin("offline", "offline", "plain")))
    page = export("html", INFO, history.snapshot()).decode()
    assert re.findall('<h2 class="who">(.*?)</h2>', page) == ["claude-sonnet-5", "guided tour"]
    assert re.findall("<summary>(.*?)</summary>", page) == ["Searched “herons” · 2 results"]
    assert page.count("Willows") == 1
    assert "搜索了“herons”" in export("html", INFO, history.snapshot(), "zh").decode()
    assert current_language() == "en", "the language of one file is that of no other"


def test_formulas_of_a_shared_page_keep_their_tags_and_attributes() -> None:
    history = AgentHistory()
    history.append(ModelOutputEntry((Text(r"$\boxed{x}$ and $\cancel{y}$"),)))
    page = export("html", INFO, history.snapshot()).decode()
    assert '<menclose notation="box">' in page
    assert '<menclose notation="updiagonalstrike">' in page


def test_markdown_has_the_whole_conversation_and_fences_that_hold() -> None:
    text = export("markdown", INFO, conversation().snapshot(), "zh").decode()
    assert text.startswith("# Herons ")
    for words in ("## 你", "**Left**", "**工具调用**", "**结果**", "> *思考过程*", "(image/png)"):
        assert words in text
    assert "`````\na heron" in text, "a fence longer than any in the result"


def test_json_has_the_entries_as_stored() -> None:
    history = conversation()
    history.rollback(3)
    data = json.loads(export("json", INFO, history.snapshot()))
    assert data["title"] == INFO.title
    assert [entry["kind"] for entry in data["entries"]] == ["model_input", "model_output", "tool_call_results"]


def test_the_name_of_the_file_comes_from_the_title() -> None:
    assert file_name("Herons: left/right?", "markdown") == "Herons-left-right.md"
    assert file_name("../../", "markdown") == "conversation.md"
    assert file_name("学习 计划", "html") == "学习-计划.html"


def test_a_plan_is_drawn_once_as_it_was_last() -> None:
    tasks = (PlanTask("t1", f"Go {ATTACK}"), PlanTask("t2", "Wait", due="2026-07-04"))
    first = Plan("plan-1", f"Herons {ATTACK}", "See one", "active", tasks, NOW, NOW)
    history = AgentHistory()
    for plan in (first, replace(first, tasks=(replace(tasks[0], done=True), tasks[1]))):
        call = ToolCallRequest("update_plan", f"call_{len(history.snapshot().effective)}", "{}")
        history.append(ModelOutputEntry((call,)))
        history.append(ToolCallResultsEntry((ToolCallResult.of(call, one_plan("Now:", plan)),)))
    page = export("html", INFO, history.snapshot()).decode()
    assert page.count('<section class="plan">') == 1
    assert re.search("<li>☑ Go &lt;script&gt;.*</li><li>☐ Wait <time>2026-07-04</time></li>", page)
    assert "1 of 2 done" in page
    assert "<script>" not in page
    assert "已完成 1/2" in export("html", INFO, history.snapshot(), "zh").decode()
