"""`python -m bench long-chat [TURNS]`: a long conversation in a real browser: how fast it opens, and how smoothly it streams.

A conversation of 300 turns (questions, searches, answers with headings, lists, code and a table) is served by the chat and opened
in chromium. Printed are the milliseconds from the start of the navigation until the last answer is painted, the nodes in the
document then and when the browser has been idle, the frames while an answer is streamed at the end, and whether the words of the
first answer are found by find-in-page. The exit code is 1 if it opens in a second or more, streams below 55 frames a second, or
the word is not found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

import antiphon as ap

TURNS, OPENINGS, CHUNKS, CHUNK_SECONDS = 300, 5, 150, 0.025
MOST_MILLISECONDS, FEWEST_FRAMES = 1_000.0, 55.0
FIRST_WORD, LAST_WORD, STREAMED_END = "hippocampus", "penultimate", "the end of the stream"
_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
_MODEL = ap.Origin("openai", "openai-chat", "gpt-5")
_ANSWER = """## Step {number}

The importer reads **one page at a time** and keeps its place, so a restart costs a page ({word}):

- `read_page` asks for the page after the last one that was stored;
- a page that fails is asked for again, *three times* at most;
- what arrived twice is recognised by its key.

```python
for attempt in range(3):
    page = await read_page(after=place)
    if page.rows:
        await store(page.rows, key="{number}")
```

| Try | Wait | Rows |
| --- | ---: | ---: |
| 1 | 0.5 s | {number} |
| 2 | 1 s | 0 |
"""
_PAINTED = f"""() => new Promise((done) => {{
  const look = () => {{
    const last = [...document.querySelectorAll("#thread .message.output")].at(-1);
    if (!last?.textContent.includes("{LAST_WORD}")) return requestAnimationFrame(look);
    return requestAnimationFrame(() => setTimeout(() => done(performance.now())));
  }};
  look();
}})"""
_FRAMES = f"""() => new Promise((done) => {{
  const times = [];
  let begun = false;
  const tick = (now) => {{
    const words = [...document.querySelectorAll("#thread .message.output")].at(-1)?.textContent ?? "";
    begun ||= Boolean(document.querySelector("#thread .draft .prose"));
    if (begun) times.push(now);
    if (words.includes("{STREAMED_END}")) return done(times.slice(1).map((one, index) => one - times[index]));
    return requestAnimationFrame(tick);
  }};
  requestAnimationFrame(tick);
}})"""


def record(path: Path, turns: int) -> str:
    """Store the conversation; its id."""
    with ap.SqliteStore(path) as store:
        history = store.create(title=f"{turns} turns")
        for number in range(1, turns + 1):
            word = FIRST_WORD if number == 1 else LAST_WORD if number == turns else "place"
            history.append(ap.ModelInputEntry.of(f"And what happens in step {number} if the connection is lost?"))
            if number % 5 == 0:
                call = ap.ToolCallRequest("search_web", f"call_{number}", json.dumps({"query": f"retry {number}"}))
                found = f'1 result for "retry {number}":\n\n1. **Retries**\n   Source: https://example.org/{number}\n   Why.\n'
                history.append(ap.ModelOutputEntry((call,), origin=_MODEL))
                history.append(ap.ToolCallResultsEntry((ap.ToolCallResult.of(call, found),)))
            history.append(ap.ModelOutputEntry((ap.Text(_ANSWER.format(number=number, word=word)),), origin=_MODEL))
        return str(history.id)


class _Upstream(BaseHTTPRequestHandler):
    """Streams an answer, a few words at a time."""

    def do_GET(self) -> None:
        self._head("application/json")
        self.wfile.write(json.dumps({"object": "list", "data": [{"id": "gpt-5", "object": "model"}]}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._head("text/event-stream")
        for number in range(CHUNKS):
            words = f"word {number} **of** a `streamed` answer. " + ("\n\n" if number % 12 == 11 else "")
            self._event({"delta": {"content": words}})
            time.sleep(CHUNK_SECONDS)
        self._event({"delta": {"content": STREAMED_END}})
        self._event({"delta": {}, "finish_reason": "stop"})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, choice: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps({'id': 'c', 'choices': [{'index': 0, **choice}]})}\n\n".encode())
        self.wfile.flush()

    def _head(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - as in the base class
        pass


@contextmanager
def served_chat(folder: Path) -> Iterator[str]:
    """The chat with the store in that folder; its address."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "OPENAI_API_KEY": "sk-none",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{upstream.server_port}/v1",
        "ANTIPHON_MODEL": "openai/gpt-5",
    }
    command = [sys.executable, "-m", "antiphon", "chat", "--web", "--no-tools", "--port", "0", "--store"]
    command.append(str(folder / "chats.db"))
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        assert server.stdout is not None
        yield next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
    finally:
        server.terminate()
        server.wait()
        upstream.shutdown()


def _open(page: Page, address: str) -> tuple[float, int]:
    page.goto("about:blank")
    page.goto(address, wait_until="commit")
    return float(page.evaluate(_PAINTED)), _nodes(page)


def _nodes(page: Page) -> int:
    return int(page.evaluate("document.getElementsByTagName('*').length"))


def main(arguments: list[str]) -> int:
    """Measure and print."""
    browser = os.environ.get("ANTIPHON_BROWSER") or shutil.which("chromium")
    if browser is None:
        print("long-chat is measured with chromium, and there is none here", file=sys.stderr)
        return 2
    turns = int(arguments[0]) if arguments else TURNS
    with tempfile.TemporaryDirectory(prefix="antiphon-long-chat-") as name, sync_playwright() as playwright:
        folder = Path(name)
        conversation = record(folder / "chats.db", turns)
        with served_chat(folder) as root:
            chromium = playwright.chromium.launch(executable_path=browser, args=_FLAGS)
            page = chromium.new_page(viewport={"width": 1280, "height": 860})
            opened = [_open(page, f"{root.partition('#')[0]}#/c/{conversation}") for _ in range(OPENINGS)]
            page.wait_for_timeout(3_000)
            idle = _nodes(page)
            is_found = bool(page.evaluate(f"window.find('{FIRST_WORD}', false, false, true)"))
            page.locator("#composer-text").fill("Go on.")
            page.keyboard.press("Enter")
            frames = page.evaluate(_FRAMES)
            chromium.close()
    milliseconds = statistics.median(taken for taken, _ in opened)
    per_second = 1000 * len(frames) / sum(frames)
    print(
        f"{turns} turns: open {milliseconds:.0f} ms (of {OPENINGS}: {', '.join(f'{taken:.0f}' for taken, _ in opened)}), "
        f"{opened[-1][1]:,} nodes, {idle:,} when idle; streaming {per_second:.1f} frames a second, "
        f"slowest {max(frames):.0f} ms; {FIRST_WORD!r} {'found' if is_found else 'not found'} by find-in-page"
    )
    return int(milliseconds >= MOST_MILLISECONDS or per_second < FEWEST_FRAMES or not is_found)
