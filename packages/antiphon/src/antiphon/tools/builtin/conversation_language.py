"""The language of a conversation: a person reads the results of tools too, so their words are in that language."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from antiphon.history import ModelInputEntry
from antiphon.parts import text_of
from antiphon.tools.context import ToolContext

Language: TypeAlias = Literal["en", "zh"]

_CHINESE = re.compile(r"[\u3400-\u9fff]")
_LETTER = re.compile(r"[^\W\d_]")


def language_of(context: ToolContext, *texts: str) -> Language:
    """The language of the latest message that has words; without one, that of `texts`, which the call is about."""
    if context.log is not None:
        for entry in reversed(context.log.snapshot().entries):
            if isinstance(entry, ModelInputEntry) and entry.channel not in ("system", "developer"):
                words = text_of(entry.content)
                if _LETTER.search(words):
                    return _language(words)
    return _language(" ".join(texts))


def _language(text: str) -> Language:
    return "zh" if _CHINESE.search(text) else "en"
