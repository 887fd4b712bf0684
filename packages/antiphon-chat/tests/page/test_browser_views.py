"""Every view of the page, once each: no English on the Chinese page, and nothing that axe objects to, on a phone and a desktop.

The conversation is in Chinese, so every English word is one of the page's own, or a name. Names are in `NAMES`. Quotations of the
log and of request bodies are left out: they are shown as they are stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from antiphon.history import (
    ApprovalRequestedEntry,
    EntryMetadata,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    SqliteStore,
    ToolCallResultsEntry,
)
from antiphon.parts import Text, Thinking, TokenUsage, ToolCallRequest, ToolCallResult
from antiphon.tools.builtin import PlanStore
from antiphon_chat.shared.conversations.branches import make_branch
from antiphon_chat.shared.mcp.servers import McpServers
from antiphon_chat.shared.mcp.settings import ServerChange
from antiphon_chat.shared.setup.model_setup import ModelSetup
from page.conftest import axe_violations
from page.rig import Browser, served
from page.window import ON_BOTH, ON_DESKTOP, Window, window

NAMES = set(
    re.findall(
        r"\w+",
        "antiphon openai anthropic gemini chat responses messages interactions json lines markdown api token tokens mcp enter "
        "shift alt esc en english provider model offline plain local ollama keys ms kb mb pdf modelinput modeloutput "
        "toolcallresults approvalrequested uvx server time",
    )
)
READ = """() => {
  const words = [];
  const quoted = "pre, code, kbd, .json-name, .json-other, .json-text, .entry .excerpt, .rendered .turn-card, " +
    ".differences td:last-child, .server-tools small, script, style, noscript, option";
  const isSeen = (node) => node.checkVisibility({ checkVisibilityCSS: true, checkOpacity: false });
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const parent = text.parentElement;
    if (parent && isSeen(parent) && !parent.closest(quoted)) words.push(text.textContent);
  }
  for (const node of document.querySelectorAll("[aria-label], [title], [placeholder]")) {
    if (!isSeen(node) || node.closest(quoted)) continue;
    for (const name of ["aria-label", "title", "placeholder"]) words.push(node.getAttribute(name) ?? "");
  }
  return words;
}"""


def english_in(texts: list[str]) -> set[str]:
    """The English words in texts that are no names: of models, files, variables, and those of `NAMES`."""
    found = set()
    for text in texts:
        plain = re.sub(r"\S*[/_\d@.]\S*", " ", text)  # models, variables, versions, addresses
        found |= {word for word in re.findall(r"[A-Za-z]{2,}", plain) if word.lower() not in NAMES}
    return found


def stored_conversation(folder: Path) -> Mapping[str, str]:
    """A conversation with thinking, a tool, an approval, costs and a branch, all in Chinese."""
    call = ToolCallRequest("search_web", "call_1", '{"query": "苍鹭"}')
    pending = ToolCallRequest("create_plan", "call_2", '{"title": "观鸟"}')
    origin = Origin("openai", "openai-chat", "gpt-4o")
    used = EntryMetadata(usage=TokenUsage(1200, 80, 600))
    at = datetime(2026, 7, 1, tzinfo=UTC)
    with SqliteStore(folder / "chats.db") as store:
        history = store.create("苍鹭", tags=["tag::鸟类"])
        history.append(ModelInputEntry.of("苍鹭睡在哪里？"))
        content = (Thinking("先搜索。"), Text("我来**搜索**。"), call)
        history.append(ModelOutputEntry(content, origin=origin, timestamp=at, metadata=used))
        history.append(ToolCallResultsEntry((ToolCallResult.of(call, "柳树上。"),)))
        answer = "睡在柳树上。\n\n| 鸟 | 处 |\n|---|---|\n| 苍鹭 | 树 |\n\n- [x] 看过"
        history.append(ModelOutputEntry((Text(answer),), origin=origin, timestamp=at, metadata=used))
        branch = make_branch(store, history.id, 1)
        branch.append(ModelOutputEntry((Text("在树上。"),), origin=origin, timestamp=at, metadata=used))
        asked = store.create("待批准")
        asked.append(ModelInputEntry.of("做一个计划"))
        asked.append(ModelOutputEntry((pending,), origin=origin, timestamp=at, metadata=used))
        asked.append(ApprovalRequestedEntry((pending.tool_call_id,)))
    plans = PlanStore(folder / "plans.db")
    plans.create("观鸟计划", goal="看到苍鹭", tasks=["去河边", "等待"])
    plans.close()
    return {"talk": str(history.id), "branch": str(branch.id), "asked": str(asked.id)}


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, Mapping[str, str]]]:
    folder = tmp_path_factory.mktemp("views")
    ids = stored_conversation(folder)
    ModelSetup({}, folder, servers=()).add_key("openai", "sk-stored", is_stored=True)
    setup = ModelSetup(
        {"ANTIPHON_MODEL": "offline/plain", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, folder, servers=()
    )
    servers = McpServers(folder / "mcp")
    for name, command in (("mcp1", "uvx server"), ("mcp2", "https://e.com/mcp")):
        servers.settings.add(name, ServerChange(command=command, headers={"X-Key1": "k"} if name == "mcp2" else None))
    with served(folder / "chats.db", with_builtin=True, setup=setup, tools=[servers], mcp=servers) as browser:
        yield browser, ids


def views(shown: Window, ids: Mapping[str, str]) -> Iterator[str]:
    """Go to every view, one after the other; the name of each once it is there."""
    page = shown.page

    def menu(selector: str) -> None:
        page.locator("#more summary").click()
        page.locator(selector).click()
        expect(page.get_by_role("dialog")).to_be_visible()

    def close() -> None:
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)

    def go(view: str, there: str) -> None:
        page.evaluate("view => { location.hash = view; }", view)
        expect(page.locator(there).first).to_be_visible()

    shown.open()
    expect(page.locator(".source").first).to_be_visible()
    yield "welcome"
    page.locator("#model").click()
    expect(page.locator("#model-list li").first).to_be_visible()
    yield "model menu"
    page.locator("#model-list .paste").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    yield "key dialog"
    close()
    go(f"#/c/{ids['talk']}", ".message.output")
    expect(page.locator(".branches")).to_be_visible()
    page.evaluate("document.querySelectorAll('main details').forEach(one => { one.open = true; })")
    yield "conversation"
    for name, selector in (("settings", "#settings"), ("usage", "#usage")):
        menu(selector)
        yield name
        close()
    page.keyboard.press("?")
    if page.get_by_role("dialog").count():
        yield "shortcuts"
        close()
    go(f"#/c/{ids['talk']}/history", ".rendered")
    yield "history"
    go(f"#/compare/{ids['talk']}/{ids['branch']}", ".side .prose")
    yield "compare"
    go(f"#/c/{ids['asked']}", ".approval")
    yield "approval"
    go("#/plans", ".plan")
    yield "plans"
    go("#/mcp", ".server")
    yield "servers"
    page.locator(".server .buttons button").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    yield "command of a server"
    close()
    page.locator(".settings > .main").click()
    page.locator("dialog fieldset button").first.click()
    yield "new server"
    close()
    if page.locator("#menu").is_visible():
        page.locator("#menu").click()
    page.locator("#search").fill("苍鹭")
    expect(page.locator("#conversations mark").first).to_be_visible()
    yield "search"


@ON_DESKTOP
def test_the_chinese_page_has_no_english_text(
    chromium: Chromium, chat: tuple[Browser, Mapping[str, str]], screen: dict[str, Any]
) -> None:
    browser, ids = chat
    left: dict[str, set[str]] = {}
    with window(chromium, browser.port, locale="zh-CN", **screen) as shown:
        for view in views(shown, ids):
            if words := english_in(shown.page.evaluate(READ)):
                left[view] = words
    assert left == {}


def test_the_reader_of_the_page_finds_english() -> None:
    assert english_in(["用 gpt-4o 回答 Close it", "OpenAI Chat", "OPENAI_API_KEY"]) == {"Close", "it"}


@ON_BOTH
def test_axe_finds_nothing_in_any_view(
    chromium: Chromium,
    chat: tuple[Browser, Mapping[str, str]],
    screen: dict[str, Any],
    axe: str,
) -> None:
    browser, ids = chat
    wrong: dict[str, Any] = {}
    with window(chromium, browser.port, **screen) as shown:
        for view in views(shown, ids):
            shown.page.evaluate(axe)
            if found := axe_violations(shown.page):
                wrong[view] = found
    assert wrong == {}


def test_a_notice_is_not_repeated(chromium: Chromium, chat: tuple[Browser, Mapping[str, str]]) -> None:
    browser, ids = chat
    with window(chromium, browser.port) as shown:
        shown.open(ids["talk"])
        copy = shown.thread.locator(".message.input").get_by_role("button", name="Copy the text")
        for _ in range(3):
            copy.click()
        expect(shown.page.locator(".notice")).to_have_text(["Copied"])


def test_a_copy_that_the_browser_refuses_is_reported(
    chromium: Chromium, chat: tuple[Browser, Mapping[str, str]]
) -> None:
    browser, ids = chat
    with window(chromium, browser.port) as shown:
        shown.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        shown.open(ids["talk"])
        shown.thread.locator(".message.input").get_by_role("button", name="Copy the text").click()
        expect(shown.page.locator(".notice.wrong")).to_have_text("The browser did not allow copying.")


def test_the_title_is_that_of_the_view(chromium: Chromium, chat: tuple[Browser, Mapping[str, str]]) -> None:
    browser, ids = chat
    with window(chromium, browser.port) as shown:
        title, current = shown.page.locator("#title"), shown.page.locator("#conversations a[aria-current]")
        shown.open(ids["talk"])
        expect(current).to_have_count(1)
        talk = title.inner_text()
        shown.page.locator("a[href='#/plans']").click()
        expect(title).to_have_text("Plans")
        expect(current).to_have_count(0)
        shown.page.go_back()
        expect(title).to_have_text(talk)
        expect(current).to_have_count(1)
        shown.page.get_by_role("button", name="New conversation").click()
        shown.page.locator("#language").click()
        expect(title).to_have_text("新对话")


def test_durations_are_rounded_once(chromium: Chromium, chat: tuple[Browser, Mapping[str, str]]) -> None:
    with window(chromium, chat[0].port) as shown:
        shown.open()
        drawn = shown.page.evaluate(
            "import('/chat/page/texts.js').then(({ formatDuration }) => [0.001, 0.44, 2, 119.7, 3600].map(formatDuration))"
        )
    assert drawn == ["1 ms", "0.44 s", "2.0 s", "2 min 0 s", "60 min 0 s"]


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_the_offers_send_what_they_say(
    chromium: Chromium, chat: tuple[Browser, Mapping[str, str]], locale: str
) -> None:
    with window(chromium, chat[0].port, locale=locale) as shown:
        shown.open()
        offer = shown.page.locator(".offer").nth(1)
        words = offer.locator("b").inner_text()
        offer.click()
        expect(shown.thread.locator(".typed")).to_have_text(words)
        shown.rest()
