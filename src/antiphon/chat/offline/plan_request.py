"""Reads a request to search and to plan: the query, the topic and the time, in English and in Chinese."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

from msgspec import Struct

from antiphon.chat.language import Language
from antiphon.chat.offline.texts import say
from antiphon.text import one_line

_POLITE = r"^(?:please\s+|can you\s+|could you\s+|first,?\s+|请|帮我|麻烦|你|先|我想)*\s*"
_SEARCH = re.compile(
    _POLITE + r"(?:search(?:\s+the\s+web|\s+online)?(?:\s+for)?|find(?:\s+out)?|look\s+(?:up|for)|"
    r"搜索一下|搜索|搜一下|搜|查找|查一下|查询|查查|查|找一下|找)\s*(.+)",
    re.IGNORECASE | re.DOTALL,
)
_PLAN = re.compile(
    r"\b(?:make|create|write|draft|build|need|want|give)\b.*\bplan\b|^plan\b|(?:制定|做|创建|写|生成|来|要|安排).*计划",
    re.IGNORECASE | re.DOTALL,
)
_NEXT = re.compile(
    r"\s*[,;.]?\s*\b(?:and\s+)?then\b|\s*,?\s*\band\s+(?:make|create|write|draft|build)\b|[，,；;。]\s*(?:然后|再|并|接着|最后|做|制定|帮我)|"
    r"然后|[.;。；]",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    r"\bplan\s+(?:for|to|about|on)\s+(.+)|^plan\s+(?:my\s+|a\s+)?(.+)|(?:为|关于)\s*(.+?)\s*(?:制定|做)", re.IGNORECASE
)
_DURATION = re.compile(
    r"(\d{1,3}|\b(?:a|one|two|three|four|six|twelve)\b)[\s-]*(day|week|month)s?\b|"
    r"(\d{1,3}|[一二两三四六半])\s*(?:(天|周)|个\s*(星期|月))",
    re.IGNORECASE,
)
_NUMBERS = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "twelve": 12, "半": 0.5}
_NUMBERS |= {"一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "六": 6}
_DAYS = {"day": 1, "天": 1, "week": 7, "周": 7, "星期": 7, "month": 30, "月": 30}
_TITLE = re.compile(r"^\s*\d+\.\s+\*\*(.+?)\*\*\s*$", re.MULTILINE)
_ENDS = " \t\r\n.,;:!?，。；：！？、"
_MAX_DOCUMENTS = 3


class PlanRequest(Struct, frozen=True):
    """What to search for (empty: no search), whether to make a plan, its topic and its length in days."""

    query: str
    wants_plan: bool
    topic: str
    days: int
    duration: str


def read_request(message: str, language: Language) -> PlanRequest | None:
    """The request in a message; None if it asks neither for a search nor for a plan."""
    message = one_line(message)
    search = _SEARCH.match(message)
    wants_plan = _PLAN.search(message) is not None
    if search is None and not wants_plan:
        return None
    query = _NEXT.split(search[1], maxsplit=1)[0].strip(_ENDS) if search else ""
    if query and wants_plan and language == "zh" and query.isascii():
        query += " 计划"  # the documents in the person's language
    topic = _TOPIC.search(_NEXT.split(message)[0] if not search else "")
    named = next(filter(None, topic.groups())) if topic else query
    length = _DURATION.search(message)
    days, duration = _length(length) if length else (28, "4周" if language == "zh" else "4-week")
    title = (_DURATION.sub("", named).strip(_ENDS) or say(language, "my_topic"))[:80]
    return PlanRequest(query, wants_plan, title[:1].upper() + title[1:], days, duration)


def _length(found: re.Match[str]) -> tuple[int, str]:
    word = (found[1] or found[3]).lower()
    number = float(word) if word.isdecimal() else _NUMBERS[word]
    unit = (found[2] or found[4] or found[5]).lower()
    days = max(1, round(number * _DAYS[unit]))
    return days, f"{number:g}-{unit}" if found[2] else "".join(found[0].split())


def titles_in(result: str) -> list[str]:
    """The titles of the documents that the search tool found."""
    return [found.strip() for found in _TITLE.findall(result)][:_MAX_DOCUMENTS]


def plan_arguments(request: PlanRequest, titles: list[str], language: Language, today: date) -> dict[str, Any]:
    """The arguments of `create_plan`: a task for each document, or the general tasks without a search."""
    if request.query:
        tasks = [*(say(language, "read", title=title) for title in titles), say(language, "check")]
    else:
        tasks = say(language, "general").split("|")
    ends = [max(1, round(request.days * (place + 1) / len(tasks))) for place in range(len(tasks))]
    return {
        "title": say(language, "title", topic=request.topic, duration=request.duration),
        "tasks": [
            {"title": task, "due": str(today + timedelta(days=end))} for task, end in zip(tasks, ends, strict=True)
        ],
    }
