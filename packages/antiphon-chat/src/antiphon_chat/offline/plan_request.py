"""Reads a request to search, to plan, to list plans or to change a goal, step by step, in English and in Chinese."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

from msgspec import Struct

from antiphon.text import one_line
from antiphon.tools.builtin import Plan
from antiphon_chat.language import Language, say

_POLITE = (
    r"^(?:please\s+|can you\s+|could you\s+|first,?\s+|also\s+|now\s+|"
    r"请|帮我|麻烦|你|先|我想|再|并|也|综合(?=制定|做|写))*\s*"
)
_SEARCH = re.compile(
    _POLITE + r"(?:search(?:\s+the\s+web|\s+online)?(?:\s+for)?|find(?:\s+out)?|look\s+(?:up|for)|"
    r"搜索一下|搜索|搜一下|搜|查找|查一下|查询|查查|查|找一下|找)\s*(.+)",
    re.IGNORECASE | re.DOTALL,
)
_PLAN = re.compile(
    r"\b(?:make|create|write|draft|build|need|want|give)\b.*\bplan\b|^plan\b|(?:制定|做|创建|写|生成|来|要|安排).*计划",
    re.IGNORECASE | re.DOTALL,
)
_LIST = re.compile(
    _POLITE + r"(?:(?:list|show|display|see|view)\s+(?:me\s+)?(?:all\s+)?(?:of\s+)?(?:my|the)?\s*(?:all\s+)?plans\b|"
    r"(?:what|which)\s+plans\b|what\s+are\s+my\s+plans\b|"
    r"(?:列出|列一下|显示|展示|查看|看看|看一下|看)(?:一下)?(?:我)?(?:的)?(?:所有|全部)?(?:的)?计划|我?(?:都)?有(?:哪些|什么)计划)",
    re.IGNORECASE,
)
_ORDINAL = r"first|second|third|fourth|fifth|last|latest|1st|2nd|3rd|4th|5th"
_GOAL = re.compile(
    _POLITE
    + rf"(?:update|change|set)\s+the\s+goal\s+of\s+(?:the\s+|my\s+)?(?P<a>{_ORDINAL})?\s*(?P<b>plan[\s-]*\d*)\s+"
    rf"(?:to|as)\s+(?P<c>.+)|"
    + _POLITE
    + rf"(?:update|change|set)\s+(?:the\s+|my\s+)?(?P<d>{_ORDINAL})?\s*(?P<e>plan[\s-]*\d*)['’]s\s+goal\s+(?:to|as)\s+(?P<f>.+)|"
    + _POLITE
    + r"(?:更新|修改|改|把|将|设置|设定)?(?:我的?)?(?P<g>第\s*[一二三四五\d]+\s*个|最后一个|最新的?)?"
    r"(?P<h>计划\s*\d*|plan-\d+)\s*的?目标\s*"
    r"(?:更新|修改|改|设置|设定|定)?(?:为|成|到)\s*(?P<i>.+)",
    re.IGNORECASE | re.DOTALL,
)
_PLACES = {
    "first": 0,
    "1st": 0,
    "second": 1,
    "2nd": 1,
    "third": 2,
    "3rd": 2,
    "fourth": 3,
    "4th": 3,
    "fifth": 4,
    "5th": 4,
}
_PLACES |= {
    "last": -1,
    "latest": -1,
    "最后一个": -1,
    "最新": -1,
    "最新的": -1,
    "一": 0,
    "二": 1,
    "三": 2,
    "四": 3,
    "五": 4,
}
_VERB = r"(?:make|create|write|draft|build|search|find|look\s+(?:up|for)|list|show|update|change|set)\b"
_NEXT = re.compile(
    rf"\s*[,;.]?\s*\b(?:and\s+)?(?:then|after\s+that|finally)\b,?\s*|\s*,?\s*\band\s+(?:also\s+)?(?={_VERB})|\s*,\s*(?={_VERB})|"
    r"\s*[，,；;。]\s*(?:然后|再|并|接着|最后|之后)|\s*[，,；;。]\s*(?=(?:请|帮我|你|先)*(?:搜|查|找|做|制定|更新|修改|把|创建|列出|综合))|"
    r"然后|[;。；]|\.(?!\d)",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    r"\bplan\s+(?:for|to|about|on)\s+(.+)|^plan\s+(?:my\s+|a\s+)?(.+)|(?:为|关于)\s*(.+?)\s*(?:制定|做)", re.IGNORECASE
)
_BAND = re.compile(r"(\d(?:\.\d)?)\s*分(?!钟)|\b(?:band|IELTS)\s+(\d(?:\.\d)?)\b", re.IGNORECASE)
_DURATION = re.compile(
    r"(\d{1,3}|\b(?:a|one|two|three|four|six|twelve)\b)[\s-]*(day|week|month)s?\b|"
    r"(\d{1,3}|[一二两三四六半])\s*(?:(天|周)|个\s*(星期|月))",
    re.IGNORECASE,
)
_NUMBERS = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "six": 6, "twelve": 12, "半": 0.5}
_NUMBERS |= {"一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "六": 6}
_DAYS = {"day": 1, "天": 1, "week": 7, "周": 7, "星期": 7, "month": 30, "月": 30}
_ENDS = " \t\r\n.,;:!?，。；：！？、"


class GoalChange(Struct, frozen=True):
    """The goal to set: of the plan with an id, or at a place in the list."""

    goal: str
    place: int = 0
    plan_id: str = ""

    def plan_in(self, plans: tuple[Plan, ...]) -> Plan | None:
        """The plan that is meant."""
        if self.plan_id:
            return next((plan for plan in plans if plan.id == self.plan_id), None)
        return plans[self.place] if -len(plans) <= self.place < len(plans) else None


class PlanRequest(Struct, frozen=True):
    """What to search for, one after the other; whether to make a plan, its topic and its length in days; whether to list the
    plans, and the goal to change."""

    queries: tuple[str, ...]
    wants_plan: bool = False
    topic: str = ""
    days: int = 28
    duration: str = ""
    band: str = ""
    lists_plans: bool = False
    change: GoalChange | None = None


def read_request(message: str, language: Language) -> PlanRequest | None:
    """The request in a message; None if it asks for none of these."""
    message = one_line(message)
    steps = [step.strip(_ENDS) for step in _NEXT.split(message)]
    lists_plans = any(_LIST.match(step) for step in steps)
    change = next((_goal_change(found) for step in steps if (found := _GOAL.match(step))), None)
    if lists_plans or change is not None:
        return PlanRequest((), lists_plans=lists_plans, change=change)
    searches = (_SEARCH.match(step) for step in steps)
    queries = tuple(query for found in searches if found and (query := found[1].strip(_ENDS)))
    wants_plan = any(_PLAN.search(step) for step in steps)
    if not queries and not wants_plan:
        return None
    topic = _TOPIC.search(steps[0]) if not queries else None
    named = next(filter(None, topic.groups())) if topic else say(language, "and").join(queries)
    length = _DURATION.search(message)
    days, duration = _length(length) if length else (28, "4周" if language == "zh" else "4-week")
    title = (_DURATION.sub("", named).strip(_ENDS) or say(language, "my_topic"))[:80]
    band = next(filter(None, found.groups())) if (found := _BAND.search(message)) else ""
    if wants_plan and language == "zh":
        queries = tuple(map(_in_chinese, queries))
    return PlanRequest(queries, wants_plan, title[:1].upper() + title[1:], days, duration, band)


def _in_chinese(query: str) -> str:
    """A query that finds documents in the person's language."""
    if not query.isascii():
        return query
    return f"{query} 雅思" if "ielts" in query.lower() else f"{query} 计划"


def _goal_change(found: re.Match[str]) -> GoalChange:
    names = found.groupdict()
    ordinal = (names["a"] or names["d"] or names["g"] or "first").lower()
    ordinal = re.sub(r"[第个\s]", "", ordinal) if ordinal.startswith("第") else ordinal
    place = int(ordinal) - 1 if ordinal.isdecimal() else _PLACES.get(ordinal, 0)
    number = re.search(r"\d+", names["b"] or names["e"] or names["h"] or "")
    goal = (names["c"] or names["f"] or names["i"]).strip(_ENDS + "“”\"'")
    return GoalChange(goal, place, f"plan-{number[0]}" if number else "")


def _length(found: re.Match[str]) -> tuple[int, str]:
    word = (found[1] or found[3]).lower()
    number = float(word) if word.isdecimal() else _NUMBERS[word]
    unit = (found[2] or found[4] or found[5]).lower()
    days = max(1, round(number * _DAYS[unit]))
    return days, f"{number:g}-{unit}" if found[2] else "".join(found[0].split())


class FoundText(Struct, frozen=True):
    """A document that the search tool found."""

    title: str
    source: str
    excerpt: str

    @property
    def steps(self) -> list[str]:
        """The sentences of the excerpt that say what to do."""
        text = self.excerpt.replace("**", "").removeprefix(self.title)
        sentences = (_NUMBERED.sub("", sentence).strip(" 。；.;") for sentence in _SENTENCE_END.split(text))
        return [sentence for sentence in sentences if 6 <= len(sentence) <= 160 and _ACTION.match(sentence)]


_FOUND = re.compile(r"^\s*\d+\.\s+\*\*(.+?)\*\*[ \t]*\n[ \t]+(?:Source: |来源：)(.+)\n?(.*)$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[。！？])\s*|(?<=[a-z0-9)”\"][.!?])\s+|(?<=：)\s+(?=第)")
_NUMBERED = re.compile(r"^\s*(?:\d+\.\s+|[-*]\s+)?")
_ACTION = re.compile(
    r"第\s*\d|先|在题|每[天周]|动笔|一段只|练习|留[一二三四五\d]|注意|限时|列|写|读|划|做|订|定|查|按|把|用|算|目标要|宁可|出发前|"
    r"(?:Weeks?\s+\d|Read|Underline|Take|Note|Work|Learn|Plan|Prefer|Keep|Have|Practice|Say the goal|Measure|Count|Cut|Put|Once|"
    r"Stay|Do not|One paragraph|Leave|Look|Choose|Book|List|Write|Matching|Two or three|"
    r"Six to|Four weeks|Two weeks|The week|The day)\b"
)
_OWN = re.compile(r"\bantiphon(?:\.zh)?\.md$")
_MAX_DOCUMENTS = 3
_MAX_STEPS = 6


def documents_in(result: str, query: str = "", limit: int = _MAX_DOCUMENTS) -> list[FoundText]:
    """The documents that the search tool found, the best first; the one about Antiphon only if that was asked for."""
    found = [
        FoundText(title.strip(), source.strip(), excerpt.strip()) for title, source, excerpt in _FOUND.findall(result)
    ]
    is_about_antiphon = "antiphon" in query.lower()
    return [text for text in found if is_about_antiphon or not _OWN.search(text.source)][:limit]


def documents_of(request: PlanRequest, results: list[str]) -> list[FoundText]:
    """What the searches of a request found together, each document once; every search counts the same."""
    limit = max(1, _MAX_DOCUMENTS // max(1, len(request.queries)))
    pairs = zip(request.queries, results, strict=False)
    found = (text for query, result in pairs for text in documents_in(result, query, limit))
    return list({text.title: text for text in found}.values())


def plan_arguments(request: PlanRequest, documents: list[FoundText], language: Language, today: date) -> dict[str, Any]:
    """The arguments of `create_plan`: tasks from what the documents advise, or the general tasks without a search."""
    if request.queries:
        tasks = [task for text in documents for task in _tasks_of(text, _MAX_STEPS // len(documents), language)]
        tasks.append({"title": say(language, "check")})
    else:
        tasks = [{"title": title} for title in say(language, "general").split("|")]
    ends = [max(1, round(request.days * (place + 1) / len(tasks))) for place in range(len(tasks))]
    by = str(today + timedelta(days=request.days))
    goal = say(language, "goal_band", date=by, band=request.band) if request.band else ""
    return {
        "title": say(language, "title", topic=request.topic, duration=request.duration),
        "goal": goal or say(language, "goal", date=by, topic=request.topic),
        "tasks": [task | {"due": str(today + timedelta(days=end))} for task, end in zip(tasks, ends, strict=True)],
    }


def _tasks_of(text: FoundText, limit: int, language: Language) -> list[dict[str, str]]:
    steps = text.steps[: max(1, limit)]
    if not steps:
        return [{"title": say(language, "read", title=text.title)}]
    return [{"title": step, "notes": say(language, "from", title=text.title)} for step in steps]
