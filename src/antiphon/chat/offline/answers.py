"""The final answer of a turn: the calls, their results, and what could not be done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.chat.offline.clauses import Language
from antiphon.chat.offline.offered import Offer, Offers, name_words, part_of
from antiphon.chat.offline.results import Record, plain, points_in, records_in, short, without_data
from antiphon.chat.offline.turn import Done, Turn
from antiphon.chat.offline.wording import say

_MOST_LINES = 8
_MOST_CHARACTERS = 1_500


class Outcome(Struct, frozen=True):
    """A call that was made, and whether it had been corrected."""

    done: Done
    was_corrected: bool = False
    title: str = ""
    """The title of the plan the call is about."""


def answer_of(turn: Turn, outcomes: Sequence[Outcome], stuck: str, notes: Sequence[str], offers: Offers) -> str:
    """The whole answer."""
    parts = [_describe(outcome, turn.language) for outcome in outcomes]
    parts += filter(None, (stuck, *notes))
    return "\n\n".join(parts) if parts else _plain(turn, offers)


def first_line(text: str) -> str:
    """The first line of a text, for errors."""
    return short(next((line for line in text.splitlines() if line.strip()), ""))


def _describe(outcome: Outcome, language: Language) -> str:
    done = outcome.done
    tool = done.call.tool_name
    if done.has_failed:
        sentence = "failed_twice" if outcome.was_corrected else "failed"
        return say(language, sentence, tool=tool, error=first_line(done.text))
    try:
        arguments = done.call.parse_arguments()
    except ValueError:
        arguments = {}
    match part_of(tool):
        case "search":
            return _searched(arguments, done.text, language)
        case "create" if _argument(arguments, {"title", "name"}):
            return _created(arguments, done.text, language)
        case "list":
            return _listed(records_in(done.text), done.text, language)
        case "update":
            changes = ", ".join(
                _change(name, value) for name, value in arguments.items() if "id" not in name_words(name)
            )
            return say(language, "updated", title=outcome.title, changes=changes)
        case "delete":
            return say(language, "deleted", title=outcome.title)
    text = without_data(done.text)
    if not text:
        return say(language, "returned_nothing", tool=tool)
    return f"{say(language, 'returned', tool=tool)}\n{_cut(text)}"


def _searched(arguments: dict[str, Any], text: str, language: Language) -> str:
    query = next((value for value in arguments.values() if isinstance(value, str)), "")
    points = points_in(text)
    if not points:
        return say(language, "found_nothing", query=query)
    lines = [f"- {point.title}{f' ({point.source})' if point.source else ''}" for point in points[:5]]
    return "\n".join([say(language, "searched", query=query), *lines, *_more(points, 5, language)])


def _created(arguments: dict[str, Any], text: str, language: Language) -> str:
    records = records_in(text)
    identity = f" (`{records[0].id}`)" if records else ""
    title = _argument(arguments, {"title", "name"})
    goal = _argument(arguments, {"goal", "objective", "description"})
    tasks = next((value for value in arguments.values() if isinstance(value, list)), [])
    lines = [f"{place}. {_task_line(task)}" for place, task in enumerate(tasks, 1)]
    return "\n".join([say(language, "created", title=title, identity=identity, goal=goal), *lines])


def _task_line(task: Any) -> str:
    if not isinstance(task, dict):
        return str(task)
    title = task.get("title") or next((value for value in task.values() if isinstance(value, str)), "")
    due = next((f" — {value}" for name, value in task.items() if name_words(name) & {"due", "deadline", "date"}), "")
    return f"{title}{due}"


def _listed(records: Sequence[Record], text: str, language: Language) -> str:
    if not records:
        nothing = re.search(r"\bno\b|没有|\[\]", text) or not text.strip()
        return say(language, "no_plans") if nothing else _cut(text.strip())
    lines = []
    for place, record in enumerate(records[:_MOST_LINES], 1):
        goal = record.fields.get("goal")
        tasks = record.tasks
        done = sum(bool(task.get("done")) for task in tasks)
        about = [
            *([str(goal)] if goal else []),
            *([say(language, "done_tasks", done=done, count=len(tasks))] if tasks else []),
        ]
        lines.append(f"{place}. {' — '.join([record.title or record.id, *about])}")
    return "\n".join([say(language, "plans", count=len(records)), *lines, *_more(records, _MOST_LINES, language)])


def _change(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"{name} = {short(text)}"


def _argument(arguments: dict[str, Any], names: set[str]) -> str:
    return next((str(value) for name, value in arguments.items() if name_words(name) & names), "")


def _more(items: Sequence[object], shown: int, language: Language) -> list[str]:
    return [say(language, "more", count=len(items) - shown)] if len(items) > shown else []


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS].rstrip()} …"


def _plain(turn: Turn, offers: Offers) -> str:
    """The answer when no tool was called."""
    language = turn.language
    words = len(re.findall(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+", turn.message))
    names = ", ".join(offer.name for offer in offers.all[:12])
    given = [
        say(language, "tools", names=names) if offers.all else say(language, "no_tools"),
        *([say(language, "earlier", count=turn.earlier_messages)] if turn.earlier_messages else []),
        *([say(language, "attached", count=turn.attached)] if turn.attached else []),
    ]
    parts = [say(language, "plain", words=words, message=short(plain(turn.message)), given="; ".join(given))]
    parts.append(say(language, "can", example=_example(offers, language)) if offers.all else say(language, "cannot"))
    return "\n\n".join(parts)


def _example(offers: Offers, language: Language) -> str:
    if offers.playing("search") and offers.playing("create"):
        return say(language, "example_plan")
    offer: Offer = offers.all[0]
    return say(
        language, "example_tool", tool=offer.name, arguments=" ".join(f"{name}=…" for name in offer.required)
    ).rstrip()
