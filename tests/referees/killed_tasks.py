"""Tasks of a benchmark, killed at every step.

A task has the actions that solve it. A model makes exactly these, through the loop and a stored conversation. The `Desk` is a
service outside: it books an action that changes something under the key that the call brings. The process is killed with
`kill -9` after every entry of the log, and once more after every booking whose result was not yet stored; another one resumes.
In the end the desk must be as the benchmark's own tools leave it after the same actions, and no action may be booked twice.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import ContextEntry, ToolCallResultsEntry
from antiphon.history.location import open_store
from antiphon.parts import ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, call
from antiphon.tools import Settled, Tool, ToolContext
from antiphon.tools.tool import SchemaTool
from support.child_process import in_a_process


class Action(NamedTuple):
    name: str
    arguments: dict[str, Any]


class Point(NamedTuple):
    """Where a process dies: after so many entries, or after so many bookings. 0: never."""

    entries: int = 0
    bookings: int = 0


class Desk(Protocol):
    """The benchmark's own tools over its own data. Only processes of their own change it."""

    actions: Sequence[Action]
    """Those that solve the task."""

    def act(self, action: Action) -> str:
        """What the tool answers; a refusal is an answer too."""

    def digest(self) -> str:
        """A text that is the same exactly if the data are."""

    def is_read(self, name: str) -> bool:
        """Whether a tool changes nothing."""

    def schema(self, name: str) -> dict[str, Any]:
        """The schema of a tool's arguments."""


def kill_everywhere(desk: Desk, folder: Path) -> int:
    """Play a task without a kill and once for each point of death; how many those were."""
    folder.mkdir()
    expected = _truth(desk, folder)
    _run(desk, folder)
    assert (folder / "digest").read_text() == expected, folder.name
    entries, writes = int((folder / "entries").read_text()), len(_booked(folder / "booked"))
    points = [*(Point(entries=number) for number in range(1, entries)), *_bookings(writes)]
    for number, point in enumerate(points):
        place = folder / str(number)
        place.mkdir()
        _run(desk, place, point)
        assert (place / "digest").read_text() == expected, (folder.name, point)
        assert len(_booked(place / "booked")) == writes, (folder.name, point)
    return len(points)


def _bookings(writes: int) -> Iterator[Point]:
    return (Point(bookings=number) for number in range(1, writes + 1))


def _booked(file: Path) -> dict[str, Action]:
    """The actions that were booked, by their keys, in their order."""
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines]
    assert len({key for key, *_ in rows}) == len(rows), "booked twice"
    return {key: Action(name, arguments) for key, name, arguments in rows}


def _tools(desk: Desk, file: Path, die_after: int) -> list[Tool]:
    """The tools of the desk. A changing one books its call first, under its key, in a file that outlives the process."""
    answers = {key: desk.act(action) for key, action in _booked(file).items()}

    def find(_: ToolCallRequest, context: ToolContext) -> Settled:
        answer = answers.get(context.idempotency_key)
        return Settled.not_done() if answer is None else Settled.done(answer)

    def handler(name: str) -> Callable[[dict[str, Any], ToolContext], str]:
        def run(arguments: dict[str, Any], context: ToolContext) -> str:
            if desk.is_read(name):
                return desk.act(Action(name, arguments))
            with file.open("a") as stream:
                stream.write(json.dumps([context.idempotency_key, name, arguments]) + "\n")
            if die_after and len(_booked(file)) == die_after:
                os.kill(os.getpid(), signal.SIGKILL)
            return desk.act(Action(name, arguments))

        return run

    made: list[Tool] = []
    for name in sorted({action.name for action in desk.actions}):
        schema = desk.schema(name)
        if desk.is_read(name):
            made.append(SchemaTool(name, name, schema, handler(name), effect="read"))
        else:
            made.append(SchemaTool(name, name, schema, handler(name), effect="once", reconcile=find, settle_seconds=0))
    return made


def _play(desk: Desk, folder: Path, point: Point) -> None:
    """Start or resume the conversation of a task, and die at `point`."""
    actions = desk.actions

    def next_action(context: Sequence[ContextEntry], _: ProviderCallOptions) -> Any:
        made = sum(len(entry.content) for entry in context if isinstance(entry, ToolCallResultsEntry))
        return "Done." if made == len(actions) else call(actions[made].name, **actions[made].arguments)

    with open_store(folder / "chats.db") as store:
        known = store.list()
        chat = Conversation(
            FunctionModel(next_action),
            tools=_tools(desk, folder / "booked", point.bookings),
            store=store,
            resume=known[0].id if known else None,
        )

        def count(_: object) -> None:
            if chat.history.version == point.entries:
                os.kill(os.getpid(), signal.SIGKILL)

        chat.history.on_append(count)
        has_asked = any(entry.kind == "model_input" for entry in chat.history.entries)
        limit = len(actions) + 2
        loop = ToolLoop(chat, max_rounds=limit, max_repeats=limit, max_failed_rounds=limit)
        result = loop.run_sync(*([] if has_asked else ["Please help me."]))
        assert result.reason == "answered", result.reason
        (folder / "entries").write_text(str(chat.history.version))
        (folder / "digest").write_text(desk.digest())


def _run(desk: Desk, folder: Path, *points: Point) -> None:
    """One process after the other; each dies at its point."""
    for point in (*points, Point()):
        process, pipe = in_a_process(lambda _, point=point: _play(desk, folder, point))  # type: ignore[misc]
        _, status = os.waitpid(process, 0)
        os.close(pipe)
        assert os.WIFSIGNALED(status) is (point != Point()), point
    assert (folder / "digest").exists(), "the last process failed; its traceback is above"


def _truth(desk: Desk, folder: Path) -> str:
    """What the benchmark's own tools make of the actions."""
    file = folder / "truth"

    def work(_: int) -> None:
        for action in desk.actions:
            desk.act(action)
        file.write_text(desk.digest())

    process, pipe = in_a_process(work)
    os.waitpid(process, 0)
    os.close(pipe)
    return file.read_text()
