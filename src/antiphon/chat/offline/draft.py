"""Drafts a plan from a request and from search results.

The topic comes from the request or from the search query. The tasks are the search results, between a first task (assess the
starting point) and a last one (review), spread over the requested time. The names of the arguments come from the schema of
the tool.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from msgspec import Struct

from antiphon.chat.offline.clauses import (
    Clause,
    Duration,
    Language,
    duration_in,
    quoted_in,
    tidy,
    without_duration,
)
from antiphon.chat.offline.offered import Offer, name_words, resolved, type_of
from antiphon.chat.offline.results import Point, short
from antiphon.chat.offline.wording import say

_USUAL = {"en": Duration(28, "4 weeks", "4-week"), "zh": Duration(28, "4周", "4周")}
_MOST_FOUND = 4

_TOPIC = re.compile(r"\bplan\s+(?:for|to|about|on|of)\s+(.+)|^plan\s+(.+)|\bplan\s+my\s+(.+)", re.IGNORECASE)
_TOPIC_ZH = re.compile(r"(?:为|关于|针对|根据)\s*(.+?)\s*(?:制定|制订|做|创建|生成|安排|写|规划)")
_KIND = re.compile(
    r"\b((?:study|learning|training|travel|trip|work|project|reading|revision|fitness|meal|daily|weekly)\s+)?"
    r"(plan|schedule|roadmap|timetable)\b",
    re.IGNORECASE,
)
_KIND_ZH = re.compile(r"((?![的个份一月周天年])[\u3400-\u9fff](?![的个份一])[\u3400-\u9fff])?(计划|规划|方案|日程)")
_MAKING = ("制定", "制订", "创建", "新建", "生成", "安排", "详细")
_AIM = re.compile(
    r"\b(?:goal\s+(?:is|of)|to\s+(?:reach|get|achieve|score))\s+(.+)|(目标(?:是|为)|达到)\s*(.+)", re.IGNORECASE
)


class Task(Struct, frozen=True):
    """One task of a draft."""

    title: str
    notes: str
    due: date


class Draft(Struct, frozen=True):
    """A plan before it is created."""

    title: str
    goal: str
    tasks: tuple[Task, ...]


def drafted(
    clause: Clause, message: str, queries: Sequence[str], points: Sequence[Point], language: Language, today: date
) -> Draft:
    """A plan for the request in `clause`."""
    duration = duration_in(clause.text) or duration_in(message) or _USUAL[language]
    topic = short(_topic(clause, queries, message, language))
    kind = _kind(clause.text, language)
    quoted = quoted_in(clause.text)
    topic = topic[:1].upper() + topic[1:]
    title = quoted[0] if quoted else say(language, "title", topic=topic, duration=duration.before_noun, kind=kind)
    found = _AIM.search(message)
    goal = tidy(found[0]) if found else say(language, "goal", topic=topic, duration=duration.noun)
    return Draft(short(title), goal, _tasks(points, duration.days, language, today))


def _topic(clause: Clause, queries: Sequence[str], message: str, language: Language) -> str:
    wish = without_duration(clause.text)
    found = _TOPIC.search(wish) or _TOPIC_ZH.search(wish)
    named = tidy(next((group for group in found.groups() if group), "")) if found else ""
    searched = say(language, "and").join(dict.fromkeys(filter(None, queries)))
    return named or searched or tidy(message) or say(language, "kind")


def _kind(text: str, language: Language) -> str:
    found = _KIND_ZH.search(text) if language == "zh" else _KIND.search(text)
    if found is None:
        return say(language, "kind")
    if language == "en":
        return f"{found[1] or ''}{found[2]}".lower()
    before = "" if found[1] in _MAKING else found[1] or ""
    return before + found[2]


def _tasks(points: Sequence[Point], days: int, language: Language, today: date) -> tuple[Task, ...]:
    middle = list(points[:_MOST_FOUND])
    if len(middle) < 2:
        middle += [Point(phase) for phase in say(language, "phases").split("|")][: 3 - len(middle)]
    steps = [Point(say(language, "start")), *middle, Point(say(language, "end"))]
    ends = [round(days * (place + 1) / len(steps)) for place in range(len(steps))]
    return tuple(
        Task(
            step.title,
            say(language, "note_source" if step.source else "note", days=max(1, end - start), source=step.source),
            today + timedelta(days=max(1, end)),
        )
        for step, start, end in zip(steps, [0, *ends], ends, strict=False)
    )


def plan_arguments(offer: Offer, draft: Draft) -> dict[str, Any]:
    """The draft as arguments of the tool."""
    arguments: dict[str, Any] = {}
    for name, schema in offer.properties.items():
        words = name_words(name)
        if words & {"title", "name"}:
            arguments[name] = draft.title
        elif words & {"goal", "objective", "target", "description", "summary"}:
            arguments[name] = draft.goal
        elif (
            type_of(schema) == "array" and words & {"tasks", "steps", "items", "milestones", "task"} and len(words) == 1
        ):
            items = resolved(schema.get("items"), offer.tool.parameters or {})
            arguments[name] = [_task_arguments(task, items) for task in draft.tasks]
    return arguments


def _task_arguments(task: Task, items: dict[str, Any]) -> Any:
    properties = items.get("properties")
    if not isinstance(properties, dict):
        return f"{task.title} ({task.due})" if type_of(items) == "string" and items else {"title": task.title}
    arguments: dict[str, Any] = {}
    for name in properties:
        words = name_words(name)
        if words & {"title", "name", "task", "text"}:
            arguments[name] = task.title
        elif words & {"notes", "note", "description", "details"}:
            arguments[name] = task.notes
        elif words & {"due", "deadline", "date"}:
            arguments[name] = str(task.due)
    return arguments
