"""`make pictures`: the pictures of the documentation, taken from the real pages in a real browser.

All are taken at twice the size. The first minute is of the guided tour; chat, history and replay use a stand-in for
a provider; the status page shows a gateway with scripted traffic. A picture in which text is cut at an edge is refused.
`docs/pictures chat`, `status`, `replay`, `long-turn`, `tour` and `animation` take only those.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cache_table import take_cache_table
from conform_run import take_conform_run
from kill_and_resume import take_kill_and_resume
from lisbon_chat import QUESTION as BOOKING
from lisbon_chat import lisbon_chat
from long_turn import ANSWER as LONG_ANSWER
from long_turn import QUESTION as LONG_QUESTION
from long_turn import long_turn_chat
from playwright.sync_api import Page, sync_playwright
from replay_chat import MODEL, replay_chat
from status_traffic import ADMIN, busy_gateway
from tape_commands import take_tape_commands
from verified_history import take_verified_history

HERE = Path(__file__).parent
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP: dict[str, Any] = {
    "viewport": {"width": 1280, "height": 860},
    "device_scale_factor": 2,
    "reduced_motion": "reduce",
    "locale": "en-GB",
}
CUT_TEXT = """() => {
  const cut = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const isSeen = text.parentElement.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    if (!isSeen || !text.textContent.trim() || text.parentElement.closest(".unseen")) continue;
    if (getComputedStyle(text.parentElement).textOverflow === "ellipsis") continue;
    const range = new Range();
    range.selectNodeContents(text);
    for (const box of range.getClientRects())
      if (box.width > 1 && box.top >= 0 && box.bottom <= innerHeight && box.left < innerWidth && box.right > innerWidth + 1)
        cut.push(text.textContent.trim().slice(0, 60));
  }
  return [...new Set(cut)];
}"""
QUESTION = "Find out what IELTS 7 needs, then make me a 3 month plan."


def main() -> None:
    browser = os.environ.get("ANTIPHON_BROWSER") or shutil.which("chromium")
    if browser is None:
        sys.exit("pictures are taken with chromium, and there is none here")
    only = sys.argv[1:]
    if not only:
        take_cache_table()
        take_conform_run()
        take_tape_commands()
        take_verified_history()
    if only in ([], ["animation"]):
        take_kill_and_resume()
    if only in ([], ["status"]):
        with tempfile.TemporaryDirectory() as folder, busy_gateway(Path(folder)) as address:
            take_status(browser, address)
    if only in ([], ["chat"]):
        with tempfile.TemporaryDirectory() as folder, lisbon_chat(Path(folder)) as (server, conversation):
            take_chat(browser, address_of(server), conversation)
    if only in ([], ["replay"]):
        with tempfile.TemporaryDirectory() as folder, replay_chat(Path(folder)) as (server, conversation):
            take_replay(browser, address_of(server), conversation)
    if only in ([], ["long-turn"]):
        with tempfile.TemporaryDirectory() as folder, long_turn_chat(Path(folder)) as server:
            take_long_turn(browser, address_of(server))
    if only not in ([], ["tour"]):
        return
    with tempfile.TemporaryDirectory() as home:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": home, "XDG_DATA_HOME": home}
        command = [sys.executable, "-m", "antiphon", "chat", "--web", "--port", "0"]
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=HERE
        )
        try:
            take(browser, address_of(server))
        finally:
            server.terminate()
            server.wait()


def address_of(server: subprocess.Popen[str]) -> str:
    """Where the page is, as the command says."""
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://\S+", line):
            return found[0]
    sys.exit("the chat did not start")


def take(browser: str, address: str) -> None:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_page(**DESKTOP)
        page.goto(address)
        page.locator(".source").first.wait_for()
        shot(page, "first-minute.png")
        page.locator("textarea").first.fill(QUESTION)
        page.keyboard.press("Enter")
        page.get_by_text("Check what you learned").last.wait_for()
        at_rest(page)
        take_servers(page, address)
        phone = chromium.new_page(
            viewport={"width": 390, "height": 844},
            locale="zh-CN",
            has_touch=True,
            is_mobile=True,
            device_scale_factor=2,
        )
        phone.goto(address)
        phone.locator(".source").first.wait_for()
        shot(phone, "phone-zh.png")
        chromium.close()


def take_chat(browser: str, address: str, conversation: str) -> None:
    """A conversation with a search, a table and a plan that waits; then its history, at the moment after the plan was made."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_page(**DESKTOP | {"viewport": {"width": 1280, "height": 1180}})
        page.goto(f"{address.partition('#')[0]}#/c/{conversation}")
        page.get_by_text("Alfama without a map").first.wait_for()
        page.locator("#composer-text").fill(BOOKING)
        page.keyboard.press("Enter")
        page.locator(".approval").wait_for()
        page.wait_for_timeout(500)
        shot(page, "chat.png")
        page.emulate_media(color_scheme="dark")
        shot(page, "chat-dark.png")
        page.emulate_media(color_scheme="light")
        page.locator(".approval").get_by_role("button").first.click()
        page.get_by_text("The train is the one to book").first.wait_for()
        at_rest(page)
        page.get_by_text("History", exact=True).first.click()
        page.locator(".entry[data-kind=tool_call_results] > button").last.click()
        page.locator(".rendered .turn-card.new").first.wait_for()
        page.wait_for_timeout(300)
        shot(page, "history.png")
        chromium.close()


def take_servers(page: Page, address: str) -> None:
    """The MCP servers: one that runs, with an approval of its own for a tool, and one that has not been confirmed."""
    page.goto(f"{address}#/mcp")
    for name, command, answer in (
        ("notes", "python notes_server.py", "Run this command"),
        ("time", "uvx mcp-server-time", "Cancel"),
    ):
        page.get_by_role("button", name="Add a server").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name").first.fill(name)
        dialog.get_by_label("Command or address").fill(command)
        dialog.get_by_role("button", name="Save").click()
        dialog.get_by_role("button", name=answer).click()
    card = page.get_by_role("region", name="notes", exact=True)
    card.get_by_text("running").wait_for()
    card.get_by_text("Tools (3)").click()
    card.get_by_label("Calls of notes__list_notes").select_option("allow")
    page.locator(".server[aria-busy]").wait_for(state="detached")
    shot(page, "mcp-servers.png")


def at_rest(page: Page) -> None:
    """Until nothing is being made."""
    page.locator("body:not(.running)").wait_for()
    page.locator(".draft").wait_for(state="detached")


def take_status(browser: str, address: str) -> None:
    sizes: dict[str, dict[str, Any]] = {
        "status.png": {"viewport": {"width": 1200, "height": 1500}, "device_scale_factor": 2},
        "status-phone.png": {
            "viewport": {"width": 390, "height": 1100},
            "is_mobile": True,
            "color_scheme": "dark",
            "device_scale_factor": 2,
        },
    }
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        for name, options in sizes.items():
            page = chromium.new_context(locale="en-GB", **options).new_page()
            page.goto(f"{address}/status")
            page.get_by_label("Admin key").fill(ADMIN)
            page.keyboard.press("Enter")
            page.locator("ol.calls > li").nth(5).wait_for()
            shot(page, name)
            if name == "status.png":
                missed = page.locator("ol.calls > li", has_text="cache miss").first
                if missed.count():  # it is among the calls that are listed
                    missed.locator("summary").first.click()
                    missed.screenshot(path=HERE / "cache-status.png")
        chromium.close()


def take_replay(browser: str, address: str, conversation: str) -> None:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_page(**DESKTOP)
        page.goto(f"{address}#/c/{conversation}/history")
        page.get_by_role("button", name="Replay on another model from 1", exact=True).click()
        page.get_by_role("dialog").get_by_role("combobox").first.fill(MODEL)
        page.get_by_role("dialog").get_by_role("button", name="Replay", exact=True).click()
        page.get_by_text("Leave it at home.").first.wait_for()
        at_rest(page)
        page.wait_for_timeout(500)
        shot(page, "replay.png")
        chromium.close()


def take_long_turn(browser: str, address: str) -> None:
    """A turn of 200 rounds, and its history at the moment of the last summary."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_page(**DESKTOP)
        page.set_default_timeout(240_000)
        page.goto(address)
        page.locator("#composer-text").fill(LONG_QUESTION)
        page.keyboard.press("Enter")
        page.locator(".prose").get_by_text(LONG_ANSWER).first.wait_for()
        at_rest(page)
        page.get_by_text("History", exact=True).first.click()
        page.locator(".entry[data-kind=compaction] > button").last.click()
        page.locator(".rendered .turn-card.new").first.wait_for()
        page.wait_for_timeout(300)
        shot(page, "long-turn.png")
        chromium.close()


def shot(page: Page, name: str) -> None:
    page.evaluate("document.fonts.ready")
    if cut := page.evaluate(CUT_TEXT):
        sys.exit(f"{name}: text is cut at the right edge: {cut}")
    page.screenshot(path=HERE / name)
    sys.stdout.write(f"{HERE.name}/{name}\n")


if __name__ == "__main__":
    main()
