"""tau2's customer service desks (tasks, databases and tools as `inspect-evals` ships them), killed at every step.

A task of tau2 has the actions that solve it. A model makes exactly these, through the loop and a stored conversation. The desk is
a service outside: it books an action under the key that the call brings. The process is killed with `kill -9` after every entry
of the log, and once more after every booking whose result was not yet stored; another one resumes. In the end the database must
be the one that tau2's own tools make of the actions, and no action may be booked twice. `make referees` installs what it needs.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import ContextEntry, ToolCallResultsEntry
from antiphon.history.location import open_store
from antiphon.parts import ToolCallRequest
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, call
from antiphon.tools import Settled, Tool, ToolContext
from antiphon.tools.tool import SchemaTool
from support.child_process import in_a_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("inspect_evals") is None, reason="inspect-evals is not installed: make referees"),
    pytest.mark.filterwarnings("ignore"),
]

DOMAINS = {"retail": "RetailAgentTools", "airline": "AirlineAgentTools"}
OUTSIDE = ("calculate", "transfer_to_human_agents")
"""Actions that change no database."""
READS = ("get_", "find_", "list_", "search_", *OUTSIDE)


class Action(NamedTuple):
    name: str
    arguments: dict[str, Any]


class Point(NamedTuple):
    """Where a process dies: after so many entries, or after so many bookings. 0: never."""

    entries: int = 0
    bookings: int = 0


@lru_cache
def desk(domain: str) -> Any:
    """tau2's tools over its database. Only processes of their own change it."""
    name = DOMAINS[domain]
    tools = getattr(import_module(f"inspect_evals.tau2.{domain}.{name}"), name)()
    tools.initialize()
    return tools


def tasks(domain: str) -> dict[str, list[Action]]:
    """The actions of each task that has any."""
    folder = Path(import_module("inspect_evals.tau2.utils").TAU2_DATA_DIR) / "domains" / domain
    packed, plain = folder / "tasks.json.gz", folder / "tasks.json"
    listed = json.loads(plain.read_text() if plain.exists() else gzip.decompress(packed.read_bytes()))
    found = {
        str(task["id"]): [
            Action(action["name"], action["arguments"])
            for action in task["evaluation_criteria"].get("actions") or ()
            if action.get("requestor", "assistant") == "assistant"
        ]
        for task in listed
    }
    return {name: actions for name, actions in found.items() if actions}


def act(domain: str, action: Action) -> str:
    """What tau2 answers; a refusal is an answer too."""
    if action.name in OUTSIDE:
        return "done"
    try:
        return str(getattr(desk(domain), action.name)(**action.arguments))
    except Exception as error:
        return f"refused: {error}"


def digest(domain: str) -> str:
    return str(desk(domain).db.get_hash())


def booked(file: Path) -> dict[str, Action]:
    """The actions that were booked, by their keys, in their order."""
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines]
    assert len({key for key, *_ in rows}) == len(rows), "booked twice"
    return {key: Action(name, arguments) for key, name, arguments in rows}


def tools_of(domain: str, actions: Sequence[Action], file: Path, die_after: int) -> list[Tool]:
    """The tools of the desk. A changing one books its call first, under its key, in a file that outlives the process."""
    answers: dict[str, str] = {}
    for key, action in booked(file).items():
        answers[key] = act(domain, action)

    def find(_: ToolCallRequest, context: ToolContext) -> Settled:
        answer = answers.get(context.idempotency_key)
        return Settled.not_done() if answer is None else Settled.done(answer)

    def handler(name: str) -> Callable[[dict[str, Any], ToolContext], str]:
        def run(arguments: dict[str, Any], context: ToolContext) -> str:
            if name.startswith(READS):
                return act(domain, Action(name, arguments))
            with file.open("a") as stream:
                stream.write(json.dumps([context.idempotency_key, name, arguments]) + "\n")
            if die_after and len(booked(file)) == die_after:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(domain, Action(name, arguments))

        return run

    made: list[Tool] = []
    for name in sorted({action.name for action in actions}):
        if name.startswith(READS):
            made.append(SchemaTool(name, name, {"type": "object"}, handler(name), effect="read"))
        else:
            made.append(
                SchemaTool(
                    name, name, {"type": "object"}, handler(name), effect="once", reconcile=find, settle_seconds=0
                )
            )
    return made


def play(domain: str, actions: Sequence[Action], folder: Path, point: Point) -> None:
    """Start or resume the conversation of a task, and die at `point`."""

    def next_action(context: Sequence[ContextEntry], _: ProviderCallOptions) -> Any:
        made = sum(len(entry.content) for entry in context if isinstance(entry, ToolCallResultsEntry))
        return "Done." if made == len(actions) else call(actions[made].name, **actions[made].arguments)

    with open_store(folder / "chats.db") as store:
        known = store.list()
        chat = Conversation(
            FunctionModel(next_action),
            tools=tools_of(domain, actions, folder / "booked", point.bookings),
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
        (folder / "digest").write_text(digest(domain))


def run(domain: str, actions: Sequence[Action], folder: Path, *points: Point) -> None:
    """One process after the other; each dies at its point."""
    for point in (*points, Point()):
        process, pipe = in_a_process(lambda _, point=point: play(domain, actions, folder, point))  # type: ignore[misc]
        _, status = os.waitpid(process, 0)
        os.close(pipe)
        assert os.WIFSIGNALED(status) is (point != Point()), point
    assert (folder / "digest").exists(), "the last process failed; its traceback is above"


def truth(domain: str, actions: Sequence[Action], folder: Path) -> str:
    """The database that tau2's own tools make of the actions."""
    file = folder / "truth"

    def work(_: int) -> None:
        for action in actions:
            act(domain, action)
        file.write_text(digest(domain))

    process, pipe = in_a_process(work)
    os.waitpid(process, 0)
    os.close(pipe)
    return file.read_text()


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.timeout(3_000)
def test_every_task_survives_a_kill_at_every_step(domain: str, tmp_path: Path) -> None:
    desk(domain)
    kills = 0
    found = tasks(domain)
    assert len(found) >= 40
    for name, actions in found.items():
        folder = tmp_path / name.replace("/", "_")
        folder.mkdir()
        expected = truth(domain, actions, folder)
        run(domain, actions, folder)
        assert (folder / "digest").read_text() == expected, name
        entries, writes = int((folder / "entries").read_text()), len(booked(folder / "booked"))
        points = [Point(entries=number) for number in range(1, entries)]
        points += [Point(bookings=number) for number in range(1, writes + 1)]
        for number, point in enumerate(points):
            place = folder / str(number)
            place.mkdir()
            run(domain, actions, place, point)
            assert (place / "digest").read_text() == expected, (name, point)
            assert len(booked(place / "booked")) == writes, (name, point)
            kills += 1
    print(f"\n  tau2 {domain}: {len(found)} tasks, {kills} kills")
