"""Splits a message into clauses by rules, in English and Chinese, and finds the intent of each.

A message is split where a new request may start (full stops, commas, "then", "然后"); a piece without an intent is joined to the
clause before it, so splitting too often does no harm. Quoted text is never split. The first verb decides the intent: "find out
how to delete a plan" is a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Literal, TypeAlias

from msgspec import Struct, structs

Language: TypeAlias = Literal["en", "zh"]

Intent: TypeAlias = Literal["search", "create", "list", "get", "update", "delete", "tick", "question", ""]
"""The intent of a clause; all but search and question are about plans. Empty: another intent, or none."""

_CHINESE = re.compile(r"[\u3400-\u9fff]")

_VERBS = (
    r"search|look\s+(?:up|for|into)|find|google|research|make|create|draw\s+up|write|build|prepare|design|plan|list|show|"
    r"change|update|set|rename|modify|edit|delete|remove|mark|complete|finish|tick|check\s+off"
)
_CUT = re.compile(
    r"[。；;！!？?\n]+|\.(?=\s|$)|[，,]|\b(?:and\s+)?then\b|\bafter(?:wards|\s+that)\b|"
    rf"\band\s+(?=(?:please\s+)?(?:{_VERBS})\b)|然后|接着|随后|最后|并且|再(?=[搜查制做列更删创改])|并(?=[制做列更删创改])",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"“([^”]+)”|\"([^\"]+)\"|「([^」]+)」|《([^》]+)》|‘([^’]+)’|`([^`]+)`")
_LEADING = re.compile(
    r"^(?:(?:please|kindly|can you|could you|would you|will you|i want you to|i want to|i'd like to|help me(?: to)?|first|"
    r"also|now|and|so|just|ok|okay|hi|hello)\b[\s,]*|(?:请|麻烦|你|能不能|能|可以|帮我|帮忙|给我|先|再|也|我想要?|一起|综合|把)\s*)+",
    re.IGNORECASE,
)

_PLAN = r"(?:plans?|schedules?|roadmaps?|timetables?)"
_ONE = rf"(?:{_PLAN}|ones?|it)"
_PATTERNS: tuple[tuple[Intent, str], ...] = (
    (
        "tick",
        r"\b(?:mark|complete|finish|tick|check\s+off)\b.*\btasks?\b|\btask\s+#?\w+\s+(?:is\s+|as\s+)?(?:done|finished)",
    ),
    ("tick", r"(?:标记|完成|勾掉|勾选|做完|搞定)[^，。]*任务|任务[^，。]*(?:标记|完成|勾|做完|搞定)"),
    ("delete", rf"\b(?:delete|remove|drop|throw\s+away)\b.*\b{_ONE}\b"),
    (
        "delete",
        r"(?:删除|删掉|移除|去掉|删)[^，。]*(?:计划|[一二两三四五六七八九十\d]个)|计划[^，。]*(?:删除|删掉|移除|删了)",
    ),
    ("update", rf"\b(?:change|update|set|rename|modify|edit|archive)\b.*\b(?:{_ONE}|goal|title|status)\b"),
    (
        "update",
        r"(?:更新|修改|改|设|调整|归档)[^，。]*(?:计划|目标|标题|状态)|(?:计划|目标|标题|状态)[^，。]*(?:更新|修改|改|设|调整)[为成到]",
    ),
    ("list", r"\b(?:list|show|see|display|what\s+are|which)\b.*\b(?:plans|schedules|roadmaps)\b"),
    (
        "list",
        r"(?:列出|列一下|列|显示|查看|看看|看一下|展示)[^，。]*(?:所有|全部|哪些|我的)[^，。]*计划|有哪些计划|有什么计划|列出[^，。]*计划",
    ),
    ("get", rf"\b(?:show|open|get|display|read)\b.*\b{_PLAN}\b"),
    ("get", r"(?:查看|打开|显示|看看|看一下)[^，。]*计划"),
    (
        "create",
        rf"\b(?:make|create|draw\s+up|write|build|prepare|design|put\s+together|set\s+up|need|want|give)\b.*\b{_PLAN}\b",
    ),
    ("create", r"^plan\s+\w|\b(?:and|to|me)\s+plan\s+\w"),
    ("create", r"(?:制定|制订|做|创建|新建|生成|安排|写|规划|设计|来)[^，。]*(?:计划|规划|方案|日程)|规划|^计划"),
    ("search", r"\b(?:search|look\s+(?:up|for|into)|find|google|research)\b"),
    ("search", r"搜索|搜一下|搜|查一下|查找|查询|查|检索|找一下|找"),
    ("question", r"^(?:who|what|when|where|which|why|how|is|are|does|do|can)\b"),
    ("question", r"什么|怎么|如何|多少|哪|为什么|吗$|几"),
)
_QUERY = re.compile(
    r"\b(?:search(?:\s+(?:the\s+)?(?:web|internet|online))?|look\s+(?:up|for|into)|find|google|research)\b"
    r"(?:\s+(?:me|out|for|about|on|online|some|information|info|the\s+web))*\s*|"
    r"(?:上网|网上)?(?:搜索|搜一下|搜|查一下|查找|查询|查|检索|找一下|找)(?:一下|下)?(?:关于|有关)?\s*",
    re.IGNORECASE,
)

_NUMBERS: dict[str, float] = {
    "a": 1,
    "an": 1,
    "half": 0.5,
    "半": 0.5,
    "两": 2,
    **{word: number for number, word in enumerate("零一二三四五六七八九十")},
    **{
        word: number
        for number, word in enumerate(
            re.findall(r"\w+", "zero one two three four five six seven eight nine ten eleven twelve")
        )
    },
}
_DAYS = {"day": 1, "天": 1, "week": 7, "周": 7, "星期": 7, "礼拜": 7, "month": 30, "月": 30, "year": 365, "年": 365}
_DURATION = re.compile(
    r"(?P<number>\d+|\b(?:a|an|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half\s+a)\b)[\s-]*"
    r"(?P<unit>day|week|month|year)s?\b|"
    r"(?P<count>\d+|[半一二两三四五六七八九十]+)\s*(?:(?P<sign>天|周|年)|个\s*(?P<measured>星期|礼拜|月))",
    re.IGNORECASE,
)
_ORDINAL = re.compile(
    r"\b(?P<word>first|second|third|fourth|fifth|last)\b|\b(?P<figure>\d+)(?:st|nd|rd|th)\b|"
    r"第(?P<sign>[一二三四五六七八九十\d]+)[个项条]?|(?P<end>最后一?[个项条])|"
    r"(?:\btasks?|\bplans?|任务|计划|#)\s*#?(?P<after>\d+)\b",
    re.IGNORECASE,
)
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": -1}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class Duration(Struct, frozen=True):
    """A time span: in days, as a noun (`3 months`) and before a noun (`3-month`)."""

    days: int
    noun: str
    before_noun: str


class Clause(Struct, frozen=True):
    """One request of a message: its text and its intent."""

    text: str
    intent: Intent = ""

    @property
    def query(self) -> str:
        """What to search for."""
        found = _QUERY.search(self.text)
        return tidy(self.text[found.end() :] if found and self.intent == "search" else self.text)


def language_of(text: str) -> Language:
    """Chinese if the text has Chinese characters."""
    return "zh" if _CHINESE.search(text) else "en"


def clauses_of(message: str) -> list[Clause]:
    """The clauses of a message, in order."""
    clauses: list[Clause] = []
    for piece in _pieces(message):
        text = _LEADING.sub("", piece).strip()
        intent = _intent_of(text)
        if intent or not clauses:
            clauses.append(Clause(text, intent))
        else:
            joint = ", " if language_of(piece) == "en" else "，"
            clauses[-1] = structs.replace(clauses[-1], text=f"{clauses[-1].text}{joint}{piece}")
    wishes = [clause for clause in clauses if clause.intent not in ("", "question")]
    return wishes or clauses


def _pieces(message: str) -> Iterator[str]:
    quoted = [found.span() for found in _QUOTED.finditer(message)]
    start = 0
    for cut in _CUT.finditer(message):
        if any(begin < cut.start() < end for begin, end in quoted):
            continue
        if piece := message[start : cut.start()].strip():
            yield piece
        start = cut.end()
    if piece := message[start:].strip():
        yield piece


def _intent_of(text: str) -> Intent:
    found = [
        (match.start(), order, intent)
        for order, (intent, pattern) in enumerate(_PATTERNS)
        if (match := re.search(pattern, text, re.IGNORECASE))
    ]
    wishes = [candidate for candidate in found if candidate[2] != "question"] or found
    return min(wishes)[2] if wishes else ""


def tidy(text: str) -> str:
    """The text without punctuation around it."""
    return text.strip(" \t\r\n.,;:!?，。；：！？、")


def quoted_in(text: str) -> list[str]:
    """The quoted texts."""
    return [next(group for group in found.groups() if group) for found in _QUOTED.finditer(text)]


def duration_in(text: str) -> Duration | None:
    """The first time span in a text."""
    found = _DURATION.search(text)
    if found is None:
        return None
    number = _number(found["number"] or found["count"])
    unit = (found["unit"] or found["sign"] or found["measured"]).lower()
    days = max(1, min(3650, round(number * _DAYS[unit])))
    if found["unit"] is None:
        return Duration(days, found[0], found[0])
    return Duration(days, f"{number:g} {unit}{'' if number == 1 else 's'}", f"{number:g}-{unit}")


def without_duration(text: str) -> str:
    """The text without its time span and the preposition before it."""
    return re.sub(
        rf"(?:\b(?:in|for|within|over|of)\s+)?(?:{_DURATION.pattern})(?:内|的)?", " ", text, flags=re.IGNORECASE
    )


def ordinal_in(text: str) -> int | None:
    """The ordinal in a text: 1 is the first, -1 the last."""
    found = _ORDINAL.search(text)
    if found is None:
        return None
    if found["word"]:
        return _ORDINALS[found["word"].lower()]
    return -1 if found["end"] else max(1, int(_number(found["figure"] or found["sign"] or found["after"])))


def _number(word: str) -> float:
    word = word.lower().split()[0]
    if word.isdecimal():
        return min(int(word[:9]), 10_000)
    if word in _NUMBERS:
        return _NUMBERS[word]
    tens, ten, ones = word.partition("十")
    return _NUMBERS.get(tens, 1) * (10 if ten else 1) + _NUMBERS.get(ones, 0)


def date_in(text: str, today: date) -> date | None:
    """The first date in a text, in digits or in words such as tomorrow."""
    if found := re.search(r"(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})", text):
        try:
            return date(*map(int, found.groups()))
        except ValueError:
            return None
    for pattern, days in ((r"day after tomorrow|后天", 2), (r"\btomorrow\b|明天", 1), (r"\btoday\b|今天", 0)):
        if re.search(pattern, text, re.IGNORECASE):
            return today + timedelta(days=days)
    if found := re.search(rf"\b({'|'.join(_WEEKDAYS)})\b", text, re.IGNORECASE):
        return today + timedelta(days=(_WEEKDAYS.index(found[1].lower()) - today.weekday() - 1) % 7 + 1)
    return None
