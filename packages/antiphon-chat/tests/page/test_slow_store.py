"""A store on another machine that keeps one client waiting: the others are served, and no two write a log at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import antiphon as ap
from antiphon.history import AgentHistory, ConversationInfo, HistoryEntry, SqliteStore
from antiphon.history.lease import Lease
from antiphon.history.sql.log import Log, StoreJournal
from antiphon_chat.page.live_conversation import LiveConversation
from page.rig import Browser, models, served
from support.waiting import SECONDS


class Jam:
    """Where calls about one conversation wait until the test releases them; an empty name is a call about none."""

    def __init__(self) -> None:
        self.stopped: tuple[str, str] | None = None
        self.reached = threading.Event()
        self.over = threading.Event()

    def passing(self, call: str, conversation: str = "") -> None:
        if (call, conversation) == self.stopped:
            self.reached.set()
            assert self.over.wait(SECONDS), "it was not released"


class FarLog(Log):
    """A log whose reads take as long as a test wants."""

    jam: Jam

    def read(self, number: int, conversation: str, after: int) -> Sequence[HistoryEntry]:
        self.jam.passing("read", conversation)
        return super().read(number, conversation, after)

    def journal(
        self, number: int, conversation: str, fork: Any, lease: Lease | None = None, *, is_import: bool = False
    ) -> FarJournal:
        return FarJournal(self, self._dialect, number, conversation, fork, lease, is_import=is_import)


class FarJournal(StoreJournal):
    """A journal whose writes take as long as a test wants."""

    def write(self, entry: HistoryEntry, stored: bytes) -> None:
        assert isinstance(self._log, FarLog)
        self._log.jam.passing("append", self.conversation_id)
        super().write(entry, stored)


class FarStore(SqliteStore):
    """A store that says it is elsewhere, and can be made to take long."""

    is_local = False

    def __init__(self, path: Path, jam: Jam) -> None:
        super().__init__(path)
        self._jam = jam
        self._log = FarLog(self._dialect, self._leases)
        self._log.jam = jam

    def info(self, conversation: str) -> ConversationInfo:
        self._jam.passing("info", conversation)
        return super().info(conversation)

    def list(self, *, limit: int = 50, offset: int = 0, tag: str | None = None) -> Sequence[ConversationInfo]:
        self._jam.passing("list")
        return super().list(limit=limit, offset=offset, tag=tag)

    def create(self, title: str = "", *, tags: Sequence[str] = ()) -> AgentHistory:
        self._jam.passing("create")
        return super().create(title, tags=tags)

    def open(self, conversation: str, *, lease: Lease | None = None) -> AgentHistory:
        self._jam.passing("open", conversation)
        return super().open(conversation, lease=lease)

    def delete(self, conversation: str) -> None:
        self._jam.passing("delete", conversation)
        super().delete(conversation)


@contextmanager
def stuck(jam: Jam, call: str, conversation: str, work: Callable[[], object]) -> Iterator[None]:
    """A thread does that work and waits in the call while the block lasts; then it must succeed."""
    jam.stopped = (call, conversation)
    with ThreadPoolExecutor(1) as clients:
        doing = clients.submit(work)
        assert jam.reached.wait(SECONDS), f"no call of {call}"
        try:
            yield
        finally:
            jam.stopped = None
            jam.over.set()
        doing.result(SECONDS)


ChatRequest = Callable[[Browser, str], object]
CALLS: dict[str, tuple[str, bool, ChatRequest]] = {
    "listing": ("list", False, lambda browser, _: browser.api("GET", "/conversations")),
    "making": ("create", False, lambda browser, _: browser.create()),
    "looking": ("info", True, lambda browser, it: browser.show(it)),
    "opening": ("open", True, lambda browser, it: browser.show(it)),
    "catching up": ("read", True, lambda browser, it: browser.show(it)),
    "deleting": ("delete", True, lambda browser, it: browser.api("DELETE", f"/conversations/{it}")),
    "changing": (
        "append",
        True,
        lambda browser, it: browser.api("PATCH", f"/conversations/{it}", {"system": "Be kind."}),
    ),
    "rolling back": (
        "append",
        True,
        lambda browser, it: browser.api("POST", f"/conversations/{it}/rollback", {"to": 0}),
    ),
}


@pytest.mark.parametrize("what", CALLS)
def test_while_one_client_waits_for_the_store_another_is_served(tmp_path: Path, what: str) -> None:
    call, is_about_it, ask = CALLS[what]
    jam = Jam()
    path = tmp_path / "chats.db"
    with SqliteStore(path) as before:
        waited_for, other = before.create("slow").id, before.create("quick").id
    with served(path, ap.ScriptedModel("Hello."), kept_in=lambda place: FarStore(place, jam)) as browser:
        if call == "read":
            browser.show(waited_for)  # it is open already
        with stuck(jam, call, waited_for if is_about_it else "", lambda: ask(browser, waited_for)):
            assert browser.api("GET", "/state")["version"] == ap.__version__
            assert browser.show(other)["info"]["title"] == "quick"
            assert browser.ask(other, "Are you there?")[-1].data["reason"] == "answered"


@pytest.mark.parametrize("change", [("rollback", {"to": 0}), ("compact", None)], ids=["rollback", "compact"])
def test_a_change_that_comes_while_a_turn_begins_is_refused(tmp_path: Path, change: tuple[str, object]) -> None:
    jam, answering = Jam(), threading.Event()

    async def slowly(*_: object) -> str:
        await asyncio.to_thread(answering.wait, SECONDS)
        return "Hello."

    path = tmp_path / "chats.db"
    with SqliteStore(path) as before:
        it = before.create("talk").id
    name, body = change
    talking = models(ap.ScriptedModel("Never said.", name="one"), ap.FunctionModel(slowly, name="two"))
    with (
        served(path, talking, kept_in=lambda place: FarStore(place, jam)) as browser,
        ThreadPoolExecutor(1) as clients,
    ):
        browser.show(it)
        with stuck(jam, "append", it, lambda: browser.say(it, "Are you there?", model="two")):
            # The turn is about to begin: its model is being written. The change comes in now, and waits.
            changing = clients.submit(browser.request, "POST", f"/chat/api/conversations/{it}/{name}", body)
            assert not changing.done()
            time.sleep(0.3)
        try:
            got = changing.result(SECONDS)
        finally:
            answering.set()
        assert (got.status, got.json["error"]["code"]) == (409, "running"), got.body
    with SqliteStore(path) as after:
        assert not {"rollback", "compaction"} & {entry.kind for entry in after.open(it).entries}


def test_a_turn_waits_for_the_write_of_a_disconnected_client() -> None:
    """The log has one writer: without waiting, the turn would be refused, or the note."""
    jam = Jam()

    class SlowJournal:
        conversation_id = "far away"

        def write(self, entry: HistoryEntry, stored: bytes) -> None:
            jam.passing("write", entry.kind)

        def read(self, after: int) -> Sequence[HistoryEntry]:
            return ()

        def fork(self, at: int) -> AgentHistory:
            raise NotImplementedError

    async def run() -> list[str]:
        jam.stopped = ("write", "debug_log")
        chat = ap.Conversation(ap.ScriptedModel("Hello."), history=AgentHistory(journal=SlowJournal()))
        live = LiveConversation(chat, is_local=False)
        choosing = asyncio.create_task(live.set_model("another"))
        assert await asyncio.to_thread(jam.reached.wait, SECONDS)
        choosing.cancel()
        beginning = asyncio.create_task(live.start_turn(ap.Text("hi")))
        await asyncio.sleep(0.01)
        assert chat.history.version == 0
        jam.over.set()
        await beginning
        while live.is_running:
            await asyncio.sleep(0.001)
        return [entry.kind for entry in chat.history.entries]

    assert asyncio.run(run()) == ["debug_log", "model_input", "model_output"]
