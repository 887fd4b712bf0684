"""The files of the page: no inline code, no text, style or icon that nothing uses, and two languages with the same texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import get_args

import pytest

from antiphon.conversation import EndReason
from antiphon.conversation.replay import CallPolicy
from antiphon.providers.default_model import CHOICE_TEXTS
from antiphon.tools.builtin.plans import PlanStatus
from antiphon_chat.shared.markdown import MATH_TAGS
from antiphon_chat.shared.mcp.servers import State
from antiphon_chat.shared.mcp.settings import Approval
from antiphon_chat.shared.uploads import IMAGE_BYTES, IMAGE_TYPES, MAX_FILE_BYTES, MEBIBYTE
from antiphon_devtools.cache_doctor.difference import Change
from antiphon_devtools.cache_doctor.report import Verdict
from support.repository import CHAT, LIBRARY

PAGE = CHAT / "page" / "assets"
LOCALES = PAGE / "texts"
SHARED = LIBRARY / "page"
INDEX = (PAGE / "index.html").read_text(encoding="utf-8")
OURS = [path for path in sorted([*PAGE.rglob("*.js"), *SHARED.glob("*.js")]) if ".min." not in path.name]
"""What is minified is another project's, and runs in a frame that reaches nothing."""
SCRIPTS = "\n".join(path.read_text(encoding="utf-8") for path in OURS)
MADE_BY_THE_SERVER = {"footnotes", "level-1", "level-2", "level-3", "middle"}
"""Classes in the blocks of `chat/markdown.py`."""


def texts(language: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((LOCALES / f"{language}.json").read_text(encoding="utf-8"))
    return found


def is_used(name: str) -> bool:
    """Whether a script or the page has this name, whole or as a part that is completed there (`code-${kind}`, `${word}One`)."""
    prefix = re.match(r"(\w+?[_-])\w", name)
    suffix = re.search(r"\w(_[a-z]+)$", name)
    return bool(
        re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", SCRIPTS + INDEX)
        or (prefix and f"{prefix[1]}${{" in SCRIPTS)
        or (suffix and f"}}{suffix[1]}`" in SCRIPTS and is_used(name.removesuffix(suffix[1])))
        or (name.endswith("One") and "}One`" in SCRIPTS and is_used(name.removesuffix("One")))
    )


def test_both_languages_have_the_same_texts_with_the_same_values() -> None:
    english, chinese = texts("en"), texts("zh")
    assert english.keys() == chinese.keys()
    values = re.compile(r"\{\w+\}")
    assert [
        key for key in english if sorted(values.findall(english[key])) != sorted(values.findall(chinese[key]))
    ] == []


def test_every_text_is_used_and_every_used_text_exists() -> None:
    english = texts("en")
    assert [key for key in english if not is_used(key)] == []
    used = {*re.findall(r'\bsay\("(\w+)"', SCRIPTS), *re.findall(r'data-say(?:-\w+)?="(\w+)"', INDEX)}
    assert used - english.keys() == set()


@pytest.mark.parametrize(
    ("prefix", "values"),
    [
        ("ended_", set(get_args(EndReason)) - {"answered", "approval", "failed", "interrupted", "stepped"}),
        ("cache_", get_args(Verdict)),
        ("change_", get_args(Change)),
        ("status_", get_args(PlanStatus)),
        ("mcp_", get_args(State)),
        ("mcp_approval_", get_args(Approval)),
        ("replayCalls_", set(get_args(CallPolicy)) - {"ask"}),
        ("choice_", set(CHOICE_TEXTS) - {"keys"}),
    ],
)
def test_every_value_of_the_server_has_a_text(prefix: str, values: Iterable[str]) -> None:
    assert [value for value in values if prefix + value not in texts("en")] == []


def test_every_class_with_a_style_is_used() -> None:
    styles = "".join(path.read_text(encoding="utf-8") for path in PAGE.glob("*.css"))
    selectors = re.sub(r"/\*.*?\*/|\{[^{}]*\}", " ", styles, flags=re.DOTALL)
    classes = set(re.findall(r"\.([a-zA-Z][\w-]*)", selectors)) - MADE_BY_THE_SERVER
    assert sorted(name for name in classes if not is_used(name)) == []


def test_the_page_has_the_limits_and_types_of_the_server() -> None:
    """The page refuses a file before it is uploaded, and draws the tags of formulas that the server sends."""
    limits = dict(re.findall(r"const (\w+_LIMIT) = (\d+) \* 1024 \* 1024;", SCRIPTS))
    assert limits == {"IMAGE_LIMIT": f"{IMAGE_BYTES // MEBIBYTE}", "DOCUMENT_LIMIT": f"{MAX_FILE_BYTES // MEBIBYTE}"}
    images = re.search(r"const IMAGES = new Set\((\[.*?\])\)", SCRIPTS)
    tags = re.search(r"const MATH = new Set\(\s*\((.*?)\)\.split", SCRIPTS, re.DOTALL)
    assert images
    assert tags
    assert json.loads(images[1]) == list(IMAGE_TYPES)
    assert set(" ".join(re.findall(r'"(.*?)"', tags[1])).split()) == MATH_TAGS


class StaticTexts(HTMLParser):
    """The texts of elements with `data-say`, by key."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._key = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._key = dict(attrs).get("data-say") or ""

    def handle_data(self, data: str) -> None:
        if self._key:
            self.found[self._key], self._key = data, ""


def test_the_static_page_has_the_english_texts() -> None:
    reader = StaticTexts()
    reader.feed(INDEX)
    english = texts("en")
    assert len(reader.found) > 10
    assert {key: english[key] for key in reader.found} | {"language": "中文"} == reader.found


def test_the_page_is_plain_files_without_inline_code() -> None:
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)|https?:", INDEX)
    making = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    assert re.findall(making, SCRIPTS.replace("no innerHTML in", "")) == []
