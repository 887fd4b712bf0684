"""The language of the terminal chat: `translate` returns a text of the chat in the user's language, with its values filled in.

The English text is the key, so the code shows what the user reads. Its Chinese is in the catalogues of the page, which a browser
reads by key (`page/assets/texts`); `chinese.py` has what only the terminal and saved pages say. Answers, tool output and errors
of the library are not translated.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import msgspec

from antiphon.providers.default_model import CHOICE_TEXTS, ModelChoice
from antiphon_chat.chinese import CHINESE

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
LANGUAGE_VARIABLE = "ANTIPHON_LANGUAGE"

_PAGE = Path(__file__).parent / "page" / "assets" / "texts"
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
def chinese_texts() -> Mapping[str, str]:
    """The Chinese texts by their English: those of the page, and the terminal's own."""
    english, chinese = (
        msgspec.json.decode((_PAGE / f"{name}.json").read_bytes(), type=dict[str, str]) for name in ("en", "zh")
    )
    return {**{text: chinese[key] for key, text in english.items()}, **CHINESE}


def translate(text: str, /, **values: object) -> str:
    """The text in the language in use, with `{name}` filled in."""
    words = chinese_texts().get(text, text) if _language.get() == "zh" else text
    return words.format(**values) if values else words


def format_choice(choice: ModelChoice) -> str:
    """The line that shows a model, why it was chosen and how to choose another."""
    if not choice.kind:
        return str(choice)
    reason, hint = (translate(text, **choice.values) for text in CHOICE_TEXTS[choice.kind])
    return translate("{model}: {reason}. {hint}", model=choice.model, reason=reason, hint=hint)
