"""The Chinese texts of the terminal chat: every text has one, with the same values, and the page uses the same words."""

from __future__ import annotations

import ast
import json
import string
from collections.abc import Iterator
from contextvars import copy_context
from typing import get_args

import pytest

from antiphon.providers.default_model import CHOICE_TEXTS, default_model
from antiphon.tools.builtin.plans import PlanStatus
from antiphon_chat.language import (
    catalogue,
    chinese_texts,
    format_choice,
    language_from_environment,
    translate,
    use_language,
)
from antiphon_chat.shared.in_a_line import ADVICE, BATCH_HINTS, INTERACTIVE_HINTS
from antiphon_chat.terminal.commands import COMMANDS
from antiphon_chat.terminal.greeting import THINGS
from antiphon_chat.terminal.mcp_command import APPROVAL_TEXTS, STATE_TEXTS
from antiphon_chat.terminal.turn_view import END_MESSAGES
from support.cases import each_case
from support.repository import CHAT, DEVTOOLS

ENGLISH_TOUR = catalogue("en")
CHINESE = {text: words for text, words in catalogue("zh").items() if text not in ENGLISH_TOUR}


def texts_in_calls() -> Iterator[str]:
    """The literal texts of `translate("…")`, of what the chat says and asks, of errors, and that of `_APPROVE`."""
    for module in [
        *(CHAT / "terminal").glob("*.py"),
        DEVTOOLS / "cli" / "replay.py",
        *CHAT.glob("*.py"),
        *(CHAT / "shared").rglob("*.py"),
    ]:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                text = node.args[-1 if name == "translated" else 0]
                if name in ("translate", "translated", "say", "ask", "ask_secret") and isinstance(text, ast.Constant):
                    yield str(text.value)
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_APPROVE":
                yield ast.literal_eval(node.value)


def all_texts() -> set[str]:
    tables = [*END_MESSAGES.values(), *ADVICE.values(), *INTERACTIVE_HINTS.values(), *BATCH_HINTS.values()]
    choices = [text for texts in CHOICE_TEXTS.values() for text in texts]
    things = [text for _, *texts in THINGS for text in texts]
    commands = [command.about for command in COMMANDS.values()]
    servers = [*APPROVAL_TEXTS.values(), *STATE_TEXTS.values()]
    return {*texts_in_calls(), *things, *servers, *tables, *choices, *commands, *get_args(PlanStatus)}


def placeholders(text: str) -> list[tuple[str, str]]:
    return sorted((name, form or "") for _, name, form, _ in string.Formatter().parse(text) if name)


def test_every_text_has_a_chinese_text_and_no_other_has() -> None:
    texts = all_texts()
    assert texts - set(chinese_texts()) == set()
    assert set(CHINESE) - texts == set()


@each_case("text", CHINESE)
def test_chinese_text_has_the_same_values(text: str) -> None:
    assert placeholders(CHINESE[text]) == placeholders(text)


def test_the_tour_says_the_same_in_both_languages() -> None:
    chinese = catalogue("zh")
    for key, text in ENGLISH_TOUR.items():
        assert placeholders(chinese[key]) == placeholders(text), key


def test_page_and_terminal_have_each_text_once() -> None:
    english, chinese = (page_texts(name) for name in ("en", "zh"))
    ours = all_texts()
    shared = {(english[key], chinese[key]) for key in english if english[key] in ours}
    texts = [text for text, _ in shared]
    assert {*texts} >= {"Approve {tool}?", "Create this plan?", "done"}
    assert len(texts) == len({*texts}), "one English text has two Chinese ones on the page"
    assert {*texts}.isdisjoint(CHINESE)


def page_texts(language: str) -> dict[str, str]:
    texts: dict[str, str] = json.loads((CHAT / "page" / "assets" / "texts" / f"{language}.json").read_text("utf-8"))
    return texts


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "en_GB.UTF-8", "LC_MESSAGES": "zh_TW.UTF-8"}, "zh"),
        ({"LC_ALL": "zh_CN.UTF-8", "ANTIPHON_LANGUAGE": "en"}, "en"),
        ({"LC_ALL": "", "LANG": "zh"}, "zh"),
    ],
)
def test_language_of_the_environment(environ: dict[str, str], language: str) -> None:
    assert language_from_environment(environ) == language


def test_reason_for_a_model_in_both_languages() -> None:
    choice = default_model({"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"})
    assert format_choice(choice) == str(choice)

    def in_chinese() -> tuple[str, str]:
        use_language("zh")
        return format_choice(choice), translate("{braces}", braces="{x}")

    line, filled = copy_context().run(in_chinese)
    assert line.startswith("openai/gpt-5.5：已设置 OPENAI_API_KEY。")
    assert "（还可使用：gemini/" in line
    assert filled == "{x}"
