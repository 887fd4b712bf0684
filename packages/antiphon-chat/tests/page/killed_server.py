"""A chat in a process of its own that is meant to be killed: `python killed_server.py STORE MARKS` prints its port.

Its model calls the tool named in the question and then answers; its tools leave a mark and hang.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import antiphon as ap
from antiphon.history import SqliteStore
from antiphon.providers import ProviderCallOptions
from antiphon.providers.default_model import ModelChoice
from antiphon.providers.router import ProviderRouter
from antiphon.providers.scripted import call
from antiphon_chat.page.app import ChatApp
from antiphon_chat.page.server import serve_app
from antiphon_chat.page.services import ChatServices
from antiphon_chat.shared.models import ChatModels
from antiphon_chat.shared.toolbox import Toolboxes


def tools(marks: Path, *, hang: bool) -> list[Any]:
    """Two tools that mark each run: `charge` must run once, `fetch` may run again."""

    async def ran(name: str) -> str:
        with (marks / name).open("a") as mark:
            mark.write("x")
        if hang:
            await asyncio.sleep(600)
        return f"{name} done"

    @ap.tool
    async def charge() -> str:
        "Charge the card."
        return await ran("charge")

    @ap.tool(effect="read")
    async def fetch() -> str:
        "Fetch the page."
        return await ran("fetch")

    return [charge, fetch]


async def answer(context: Sequence[Any], options: ProviderCallOptions) -> AsyncIterator[Any]:
    """Call the tool that the question names, then tell what came of it; `talk` talks forever."""
    last = context[-1]
    if last.role == "tool_result":
        yield "It said: " + last.content[0].result_markdown
    elif last.content[0].text == "talk":
        while True:
            yield "words "
            await asyncio.sleep(0.01)
    else:
        yield call(last.content[0].text)


def main(store: str, marks: str) -> None:
    """Serve until killed."""
    model = ap.FunctionModel(answer, name="caller")
    talking = ChatModels(ProviderRouter({"caller": model}, environ={}), ModelChoice("caller", "a test", "None."))
    with SqliteStore(store) as conversations:
        toolboxes = Toolboxes(Path(store).parent, tools=tools(Path(marks), hang=True), with_builtin=False)
        app = ChatApp(ChatServices(conversations, lambda: talking, toolboxes))
        asyncio.run(serve_app(app, on_ready=lambda url: print(url.split(":")[2].partition("/")[0], flush=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])
