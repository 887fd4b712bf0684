"""The available tools, matched by their names, descriptions and schemas.

Some tools have a known role: search, and the five operations on plans. They are recognized by the words in their names
(`create_plan`, `planCreate`), so tools of other programs work too. Any other tool is found by comparing the words of its name
and description with those of the message; a small lexicon maps Chinese words to English names. One matching word of a
description alone is chance, so it does not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from antiphon.wire.request import ToolChoice, ToolDefinition

Part: TypeAlias = Literal["search", "create", "list", "get", "update", "delete"]

_VERBS: Mapping[str, Part] = MappingProxyType(
    {
        **dict.fromkeys(("create", "add", "new", "make", "insert"), "create"),
        **dict.fromkeys(("list", "all"), "list"),
        **dict.fromkeys(("get", "show", "read", "fetch", "load"), "get"),
        **dict.fromkeys(("update", "edit", "change", "modify", "set"), "update"),
        **dict.fromkeys(("delete", "remove", "drop"), "delete"),
    }
)
_SEARCHES = frozenset({"search", "websearch", "lookup", "google", "tavily"})
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an and any are as at be by can call do does for from get give has have how i if in into is it its me my need of on or "
        "our out please run set show tell that the their them then this to tool use used uses using want was what when where "
        "which who will with you your all one current returns return given about make let",
    )
)
_LEXICON: tuple[tuple[str, str], ...] = (
    ("天气|气温|下雨|温度", "weather temperature forecast"),
    ("时间|几点", "time clock"),
    ("日期|今天几号|星期几", "date day"),
    ("计算|算一下|算算|加|减|乘|除", "calculate calculator add math"),
    ("翻译", "translate translation"),
    ("邮件|邮箱", "email mail"),
    ("发送|发给|发一", "send"),
    ("文件", "file"),
    ("新闻", "news"),
    ("价格|多少钱|股价", "price stock"),
    ("换算|转换|兑换", "convert currency"),
    ("提醒", "reminder remind"),
    ("笔记|记下", "note"),
    ("路线|导航", "route directions"),
    ("酒店", "hotel"),
    ("航班|机票", "flight"),
    ("订单", "order"),
    ("用户", "user"),
    ("图片|画", "image draw"),
    ("运行|执行", "run execute"),
)
_WORD = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Offer(Struct, frozen=True):
    """A tool, its role if it has a known one, and its arguments."""

    tool: ToolDefinition
    part: Part | None
    properties: dict[str, dict[str, Any]]
    required: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.tool.name


class Offers:
    """The tools that may be called now."""

    def __init__(self, tools: Sequence[ToolDefinition], choice: ToolChoice | None = None) -> None:
        if choice is not None and choice.mode == "none":
            tools = ()
        elif choice is not None and choice.mode in ("tool", "allowed"):
            tools = [tool for tool in tools if tool.name in choice.names]
        self.all = tuple(offer_of(tool) for tool in tools)
        self.must_call = choice is not None and (choice.mode in ("tool", "required") or choice.must_call)

    def playing(self, part: str) -> Offer | None:
        """The tool with a role."""
        return next((offer for offer in self.all if offer.part == part), None)

    def named_in(self, text: str) -> Offer | None:
        """The tool whose exact name is in a text."""
        lowered = text.lower()
        named = (offer for offer in self.all if re.search(rf"(?<!\w){re.escape(offer.name.lower())}(?!\w)", lowered))
        return max(named, key=lambda offer: len(offer.name), default=None)

    def best_for(self, text: str, *, by_name: bool = False) -> Offer | None:
        """The tool without a known role that best matches the words of a text; with `by_name`, by its name alone."""
        words = words_of(text)
        best, most = None, 2
        for offer in self.all:
            if offer.part is None and (score := _score(offer, text, words, by_name)) > most:
                best, most = offer, score
        return best


def offer_of(tool: ToolDefinition) -> Offer:
    """A tool with its parsed schema. An invalid schema has no arguments."""
    schema = tool.parameters if isinstance(tool.parameters, dict) else {}
    properties = schema.get("properties")
    known = {
        name: resolved(value, schema) for name, value in (properties.items() if isinstance(properties, dict) else ())
    }
    required = schema.get("required")
    named = (
        tuple(name for name in required if isinstance(name, str) and name in known)
        if isinstance(required, list | tuple)
        else ()
    )
    return Offer(tool, part_of(tool.name), known, named)


def resolved(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """A schema with its reference followed and its alternatives narrowed to one: the most specific, and never null."""
    for _ in range(4):
        if not isinstance(schema, dict):
            return {}
        if isinstance(reference := schema.get("$ref"), str):
            defined: Any = root
            for step in reference.removeprefix("#/").split("/"):
                defined = defined.get(step, {}) if isinstance(defined, dict) else {}
            schema = defined
        elif isinstance(alternatives := schema.get("anyOf") or schema.get("oneOf"), list) and alternatives:
            choices = [one for one in alternatives if isinstance(one, dict) and one.get("type") != "null"]
            schema = next(
                (one for one in choices if "$ref" in one or "properties" in one), choices[0] if choices else {}
            )
        else:
            break
    return schema if isinstance(schema, dict) else {}


def type_of(schema: dict[str, Any]) -> str:
    """The type of a value; string by default."""
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "string")
    return kind if isinstance(kind, str) else "string"


def part_of(name: str) -> Part | None:
    """The role of a tool, by its name."""
    words = name_words(name)
    if words & _SEARCHES:
        return "search"
    if not words & {"plan", "plans"}:
        return None
    if "plans" in words and words & {"get", "show", "fetch"}:
        return "list"
    return next((_VERBS[word] for word in sorted(words) if word in _VERBS), None)


def name_words(name: str) -> set[str]:
    """The words in a name."""
    return set(_WORD.findall(_CAMEL.sub("_", name).lower()))


def words_of(text: str) -> set[str]:
    """The significant words of a text, normalized."""
    lowered = text.lower()
    words = {_stem(word) for word in _WORD.findall(lowered) if word not in _COMMON}
    for pattern, english in _LEXICON:
        if re.search(pattern, lowered):
            words.update(map(_stem, english.split()))
    return words


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) > 2:
            return word.removesuffix(ending)
    return word


def _score(offer: Offer, text: str, words: set[str], by_name: bool) -> int:
    named = {_stem(word) for word in name_words(offer.name) if word not in _COMMON}
    verbs = {_stem(verb) for verb in _VERBS} if len(named) > 1 else set()
    score = 3 * len((named - verbs) & words) + 2 * len(named & verbs & words)
    if by_name:
        return score
    description = offer.tool.description or ""
    return score + len((words_of(description) - named) & words) + shared_pairs(description, text)


def shared_pairs(description: str, text: str) -> int:
    """How many pairs of Chinese characters two texts share, as a measure of their words."""
    pairs = [
        {run[place : place + 2] for run in re.findall(r"[\u3400-\u9fff]{2,}", one) for place in range(len(run) - 1)}
        for one in (description, text)
    ]
    return 2 * len(pairs[0] & pairs[1])
