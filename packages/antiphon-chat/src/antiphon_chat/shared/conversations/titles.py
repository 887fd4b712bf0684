"""Titles that the model writes: one short call after the first answer, in the background and bounded.

The tour is not asked: its conversations are called by their first words, or by what a number of its menu chose. A title that
does not come, or comes empty, changes nothing. It is a side call: not part of the conversation, but the log has what it used.
"""

from __future__ import annotations

import asyncio
import logging

from antiphon.conversation import Conversation
from antiphon.errors import AntiphonError
from antiphon.history import ModelInputEntry, ModelOutputEntry
from antiphon.parts import text_of
from antiphon.providers.call import ModelCallFailed
from antiphon.providers.default_model import is_tour
from antiphon.text import shorten
from antiphon.wire.request import ModelRequest
from antiphon_chat.language import current_language
from antiphon_chat.offline.tour import title_of
from antiphon_chat.shared.conversations.changes import clean_title

logger = logging.getLogger("antiphon.chat")

SECONDS = 20.0
_MAX_CHARS = 1_500
_MAX_TOKENS = 400
_MAX_TITLE_CHARS = 80
_PROMPT = (
    "Write a title for the conversation: at most six words, in the language of the conversation, without quotes and without a "
    "full stop. Answer with the title alone."
)


async def write_title(chat: Conversation, seconds: float = SECONDS) -> str:
    """A title for a conversation with an answer; empty if the model writes none in time."""
    if not chat.model:
        return ""
    entries = chat.history.effective
    question = next((text_of(entry.content) for entry in entries if isinstance(entry, ModelInputEntry)), "")
    answer = next((entry.response_markdown for entry in entries if isinstance(entry, ModelOutputEntry)), "")
    if is_tour(chat.model):
        return title_of(question, current_language())
    if not question.strip():
        return ""
    try:
        async with asyncio.timeout(seconds):
            written = await chat.call_aside(
                f"User: {question[:_MAX_CHARS]}\n\nAssistant: {answer[:_MAX_CHARS]}",
                purpose="title",
                system=_PROMPT,
                settings=ModelRequest(max_output_tokens=_MAX_TOKENS),
            )
    except (ModelCallFailed, AntiphonError, TimeoutError) as error:
        logger.info("no title from %s: %s", chat.model, error)
        return ""
    lines = written.text.strip().splitlines()
    title = clean_title(lines[0].strip("#*\"'“”「」《》. 。") if lines else "")
    return shorten(title, _MAX_TITLE_CHARS)
