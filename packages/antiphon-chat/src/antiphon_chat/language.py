"""The language of the chat: `translate` returns a text in the user's language, with its values filled in; `say` one of the tour.

Texts are data: `texts/{en,zh}.json`, and the catalogues of the page, which a browser reads by key (`page/assets/texts`). In
Python the English text is the key of its Chinese, so the code shows what the user reads; what the page says too is only in the
page's. The sentences of the guided tour, which are long, are in both files by key. Answers, tool output and errors of the
library are not translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar, get_args

import msgspec

from antiphon.cli.program import runnable
from antiphon.providers.default_model import CHOICE_TEXTS, ModelChoice

E = TypeVar("E", bound=Exception)
Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
LANGUAGE_VARIABLE = "ANTIPHON_LANGUAGE"

_TEXTS = Path(__file__).parent / "texts"
_PAGE_TEXTS = Path(__file__).parent / "page" / "assets" / "texts"
_language: ContextVar[Language] = ContextVar("language", default="en")


def language_from_environment(environ: Mapping[str, str]) -> Language:
    """The language of `ANTIPHON_LANGUAGE`, else of the locale: the first of LC_ALL, LC_MESSAGES and LANG that is set."""
    names = (LANGUAGE_VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((value for name in names if (value := environ.get(name, "").strip())), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def use_language(language: Language) -> None:
    """Translate into this language from now on: in this context and in the tasks it starts."""
    _language.set(language)


def current_language() -> Language:
    """The language in use."""
    return _language.get()


@cache
def catalogue(language: Language, folder: Path = _TEXTS) -> Mapping[str, str]:
    """The texts of a language by their keys."""
    return msgspec.json.decode((folder / f"{language}.json").read_bytes(), type=dict[str, str])


@cache
def chinese_texts() -> Mapping[str, str]:
    """The Chinese texts by their English: those of the page, and the terminal's own."""
    english, chinese = (catalogue(language, _PAGE_TEXTS) for language in LANGUAGES)
    return {**{text: chinese[key] for key, text in english.items()}, **catalogue("zh")}


def say(language: Language, sentence: str, /, **values: object) -> str:
    """A sentence of the guided tour, with its values filled in; commands are those that run from here."""
    texts = catalogue(language)
    text = texts[f"tour.{sentence}"]
    for part in ("menu", "real_model"):
        text = text.replace(f"{{{part}}}", texts[f"tour.{part}"])
    return runnable(text.format(**values) if values else text)


def translate(text: str, /, **values: object) -> str:
    """The text in the language in use, with `{name}` filled in."""
    words = chinese_texts().get(text, text) if _language.get() == "zh" else text
    return words.format(**values) if values else words


def translated(kind: type[E], text: str, /, **values: object) -> E:
    """An error with the text in the language in use."""
    return kind(translate(text, **values))


def choice_reason(choice: ModelChoice) -> str:
    """Why a model was chosen."""
    return translate(CHOICE_TEXTS[choice.kind][0], **choice.values) if choice.kind else choice.reason


def format_choice(choice: ModelChoice) -> str:
    """The line that shows a model, why it was chosen and how to choose another."""
    if not choice.kind:
        return str(choice)
    hint = translate(CHOICE_TEXTS[choice.kind][1], **choice.values)
    return translate("{model}: {reason}. {hint}", model=choice.model, reason=choice_reason(choice), hint=hint)
