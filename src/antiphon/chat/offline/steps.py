"""Turns clauses into calls: which tool a clause needs, and with which arguments, given the results so far.

A step is one call. A step on an existing plan needs its id, so the plans are listed first. A step is prepared just before it
runs, from the results of earlier steps: a new plan from the search results, a change from the listed plan. A step that cannot be
prepared is stuck, with a message about what it needs. There are at most four steps.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from msgspec import Struct

from antiphon.chat.offline.arguments import coerced, filled
from antiphon.chat.offline.clauses import Clause, Language, clauses_of, ordinal_in, quoted_in, tidy
from antiphon.chat.offline.draft import drafted, plan_arguments
from antiphon.chat.offline.offered import (
    Offer,
    Offers,
    name_words,
    part_of,
    resolved,
    shared_pairs,
    type_of,
    words_of,
)
from antiphon.chat.offline.results import Point, Record, points_in, records_in, short
from antiphon.chat.offline.turn import Done, Turn
from antiphon.chat.offline.wording import ASKS, say

_MOST_STEPS = 4
_ABOUT_PLANS = frozenset({"get", "update", "delete", "tick"})

_TASK = re.compile(
    r"\btasks?\s+#?\d+|\b(?:first|second|third|fourth|fifth|last|\d+(?:st|nd|rd|th))\s+task|"
    r"第[一二三四五六七八九十\d]+[个项条]?任务|任务\s*\d+|最后一?[个项条]任务",
    re.IGNORECASE,
)
_CHANGES: tuple[tuple[str, str], ...] = (
    (r"\b(goal|title|name|status)\b.*?\s(?:to|as|=)\s+(.+)$", ""),
    (r"\brename\b.*?\sto\s+(.+)$", "title"),
    (r"(目标|标题|名称|名字|状态)\s*(?:更新|修改|改|设置|设定|设|调整|变)?\s*(?:为|成|到)\s*(.+)$", ""),
    (r"(?:改名|重命名|命名)(?:为|成|叫)\s*(.+)$", "title"),
    (r"\b(archive)\b|(归档)", "status"),
)
_FIELDS = {
    **dict.fromkeys(("goal", "目标"), frozenset({"goal", "objective", "target"})),
    **dict.fromkeys(("title", "name", "标题", "名称", "名字"), frozenset({"title", "name"})),
    **dict.fromkeys(("status", "状态"), frozenset({"status", "state"})),
}
_STATES = {
    **dict.fromkeys(("done", "finished", "complete", "completed", "完成", "已完成"), ("done", "completed", "complete")),
    **dict.fromkeys(("archive", "archived", "归档", "已归档"), ("archived", "archive")),
    **dict.fromkeys(("active", "open", "进行中"), ("active", "open")),
}


class Step(Struct, frozen=True):
    """A planned call: its role (`tool` for any tool), its clause, and the tool to call.

    A step that was not requested only prepares the next, and is left out of the answer.
    """

    part: str
    clause: Clause
    offer: Offer
    is_asked_for: bool = True


class Ready(Struct, frozen=True):
    """The arguments of a step."""

    arguments: dict[str, Any]


class Stuck(Struct, frozen=True):
    """Why a step cannot run, as a message for the user."""

    why: str


class Found:
    """The results of the calls of a turn so far."""

    def __init__(self, earlier: tuple[Done, ...] = ()) -> None:
        self.queries: list[str] = []
        self.points: list[Point] = []
        self.records: list[Record] = []
        for done in earlier:
            if part_of(done.call.tool_name) in ("list", "get") and not done.has_failed:
                self.records = records_in(done.text)

    def take(self, part: str, arguments: dict[str, Any], text: str) -> None:
        """Read the result of a step."""
        if part == "search":
            query = next((value for value in arguments.values() if isinstance(value, str)), "")
            self.queries.append(query)
            self.points = _woven(self.points, _on_topic(points_in(text), query))
        elif part in ("list", "get"):
            self.records = records_in(text)


def _on_topic(points: list[Point], query: str) -> list[Point]:
    """The points that share a word with the query, if there are at least two."""
    words = words_of(query)
    close = [point for point in points if words_of(point.title) & words or shared_pairs(point.title, query)]
    return close if len(close) > 1 else points


def _woven(first: list[Point], second: list[Point]) -> list[Point]:
    """The results of two searches, interleaved, so that a plan has some of both."""
    pairs = zip(first, second, strict=False)
    both = min(len(first), len(second))
    woven = [*(point for pair in pairs for point in pair), *first[both:], *second[both:]]
    return list({point.title: point for point in reversed(woven)}.values())[::-1]


def steps_of(message: str, offers: Offers, language: Language) -> tuple[list[Step], list[str]]:
    """The steps for a message, and notes about requests that cannot be met."""
    steps: list[Step] = []
    unmet: list[str] = []
    for clause in clauses_of(message):
        step = _step_of(clause, offers)
        if step is None:
            unmet += [clause.text] if clause.intent not in ("", "question") else []
            continue
        lister = offers.playing("list")
        if step.part in _ABOUT_PLANS and lister and not any(known.part == "list" for known in steps):
            steps.append(Step("list", clause, lister, is_asked_for=False))
        steps.append(step)
    notes = [say(language, "no_tool", wishes="; ".join(map(short, unmet)))] if unmet else []
    if left := [step.clause.text for step in steps[_MOST_STEPS:]]:
        notes.append(say(language, "left", most=_MOST_STEPS, wishes="; ".join(map(short, left))))
    return steps[:_MOST_STEPS], notes


def _step_of(clause: Clause, offers: Offers) -> Step | None:
    if (named := offers.named_in(clause.text)) and named.part in (None, "search"):
        return Step("tool", clause, named)
    intent = clause.intent
    if intent in ("search", "question"):
        offer = offers.best_for(clause.text, by_name=True)
        searching = offers.playing("search")
        if offer is None and searching is not None:
            return Step("search", clause, searching)
    elif intent and (playing := offers.playing("update" if intent == "tick" else intent)):
        return Step(intent, clause, playing)
    offer = offers.best_for(clause.text)
    return Step("tool", clause, offer) if offer else None


def prepared(step: Step, turn: Turn, found: Found, today: date) -> Ready | Stuck:
    """The arguments of a step, or the reason it is stuck."""
    match step.part:
        case "search":
            return _search(step, turn)
        case "create":
            draft = drafted(step.clause, turn.message, found.queries, found.points, turn.language, today)
            return _complete(step, plan_arguments(step.offer, draft), turn, today)
        case "get" | "update" | "delete" | "tick":
            return _about_a_plan(step, turn, found)
    return _complete(step, {}, turn, today)


def _search(step: Step, turn: Turn) -> Ready | Stuck:
    texts = [name for name, schema in step.offer.properties.items() if type_of(schema) == "string"]
    name = next((name for name in (*step.offer.required, *texts) if name in texts), None)
    if name is None or not step.clause.query:
        return Stuck(_asking(step, [name or "query"], turn.language))
    return Ready({name: step.clause.query})


def _complete(step: Step, arguments: dict[str, Any], turn: Turn, today: date) -> Ready | Stuck:
    """The arguments, with the remaining required ones filled in."""
    answer = turn.message if turn.asked_for else ""
    more = filled(step.offer, step.clause.text, today, answer)
    missing = [name for name in more.missing if name not in arguments]
    return Stuck(_asking(step, missing, turn.language)) if missing else Ready({**more.arguments, **arguments})


def _asking(step: Step, missing: list[str], language: Language) -> str:
    questions = []
    for name in missing:
        schema = step.offer.properties.get(name, {})
        choices = schema.get("enum")
        about = (
            "/".join(map(str, choices)) if isinstance(choices, list) else schema.get("description") or type_of(schema)
        )
        questions.append(f"`{name}` ({about})")
    return ASKS[language].format(tool=step.offer.name, missing=", ".join(questions))


def _about_a_plan(step: Step, turn: Turn, found: Found) -> Ready | Stuck:
    language, text = turn.language, step.clause.text
    identity = next((name for name in (*step.offer.required, *step.offer.properties) if "id" in name_words(name)), None)
    if identity is None:
        return Stuck(say(language, "no_such_plan"))
    if not found.records:
        named = re.search(r"\b(?:plan|id)[\s:#]+([\w-]*\d[\w-]*)", text, re.IGNORECASE)
        return (
            Ready({identity: named[1]})
            if named and step.part in ("get", "delete")
            else Stuck(say(language, "no_such_plan"))
        )
    record = _meant(_TASK.sub(" ", text), found.records)
    if record is None:
        lines = [f"{place}. {record.title or record.id}" for place, record in enumerate(found.records, 1)]
        return Stuck("\n".join([say(language, "which"), *lines]))
    chosen = {identity: coerced(record.id, step.offer.properties[identity])}
    if step.part == "tick":
        return _ticked(step, record, chosen, language)
    if step.part != "update":
        return Ready(chosen)
    changes = _changes(step.offer, text)
    return Ready({**chosen, **changes}) if changes else Stuck(say(language, "what_change"))


def _meant(text: str, records: list[Record]) -> Record | None:
    """The record a text refers to: by its id, title or position, or because it is the only one."""
    lowered = text.lower()
    quoted = [tidy(one).lower() for one in quoted_in(text)]
    for record in records:
        title = record.title.lower()
        if re.search(rf"(?<![\w-]){re.escape(record.id.lower())}(?![\w-])", lowered) and not record.id.isdecimal():
            return record
        if title and (title in lowered or any(one and one in title for one in quoted)):
            return record
    place = ordinal_in(text)
    if place is not None:
        place = place - 1 if place > 0 else place
        return records[place] if -len(records) <= place < len(records) else None
    return records[0] if len(records) == 1 else None


def _changes(offer: Offer, text: str) -> dict[str, Any]:
    for pattern, field in _CHANGES:
        if (match := re.search(pattern, text, re.IGNORECASE)) is None:
            continue
        groups = [group for group in match.groups() if group]
        names = _FIELDS[(field or groups[0]).lower()]
        value = tidy(groups[-1])
        for name, schema in offer.properties.items():
            if value and name_words(name) & names and "id" not in name_words(name):
                return {name: _in_words_of(schema, value)}
    return {}


def _in_words_of(schema: dict[str, Any], value: str) -> Any:
    """A value mapped to one that the schema allows, if it matches."""
    allowed = schema.get("enum")
    if not isinstance(allowed, list):
        return value
    meant = (value.lower(), *_STATES.get(value.lower(), ()))
    return next((one for one in allowed if str(one).lower() in meant), value)


def _ticked(step: Step, record: Record, chosen: dict[str, Any], language: Language) -> Ready | Stuck:
    tasks = record.tasks
    task = _TASK.search(step.clause.text)
    place = ordinal_in(task[0]) if task else None
    named = [one.lower() for one in quoted_in(step.clause.text)]
    if place is None:
        place = next((at for at, known in enumerate(tasks, 1) if str(known.get("title", "")).lower() in named), 0)
    if not 0 < abs(place) <= len(tasks):
        return Stuck(say(language, "no_such_task", title=record.title or record.id, count=len(tasks)))
    at = place - 1 if place > 0 else place
    root = step.offer.tool.parameters or {}
    lists = {
        name: resolved(schema.get("items"), root).get("properties")
        for name, schema in step.offer.properties.items()
        if type_of(schema) == "array"
        and name_words(name) & {"task", "tasks"}
        and not name_words(name) & {"add", "remove"}
    }
    for name, properties in lists.items():
        known = properties if isinstance(properties, dict) else {"title": {}, "done": {}}
        done = next((one for one in known if name_words(one) & {"done", "completed", "finished"}), None)
        identity = next((one for one in known if "id" in name_words(one)), None)
        if done and identity and "update" in "".join(name_words(name)):
            return Ready({**chosen, name: [{identity: tasks[at].get("id", place), done: True}]})
        if done and not any("update" in "".join(name_words(other)) for other in lists):
            kept = [{key: value for key, value in one.items() if key in known and value is not None} for one in tasks]
            kept[at][done] = True
            return Ready({**chosen, name: kept})
    return Stuck(say(language, "what_change"))
