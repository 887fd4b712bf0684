"""Titles that the model writes: one short call after the first answer, in the background and bounded.

The tour writes none: its conversations are called by their first words. A title that does not come, or comes empty, changes
nothing. The call is not in the log, for it is not part of the conversation; it is charged like any other.
"""

from __future__ import annotations

import asyncio
import logging

from antiphon.conversation import Conversation
from antiphon.errors import AntiphonError
from antiphon.history import AgentHistory, ModelInputEntry, ModelOutputEntry
from antiphon.parts import text_of
from antiphon.providers.call import ModelCallFailed
from antiphon.providers.client import ProviderClient
from antiphon.providers.default_model import is_tour
from antiphon.text import shorten
from antiphon.wire.request import ModelRequest
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


async def write_title(history: AgentHistory, provider: ProviderClient, model: str, seconds: float = SECONDS) -> str:
    """A title for a conversation with an answer; empty if the model writes none in time."""
    if not model or is_tour(model):
        return ""
    entries = history.effective
    question = next((text_of(entry.content) for entry in entries if isinstance(entry, ModelInputEntry)), "")
    answer = next((entry.response_markdown for entry in entries if isinstance(entry, ModelOutputEntry)), "")
    if not question.strip():
        return ""
    asking = Conversation(
        model, provider=provider, system=_PROMPT, settings=ModelRequest(max_output_tokens=_MAX_TOKENS)
    )
    asking.add(f"User: {question[:_MAX_CHARS]}\n\nAssistant: {answer[:_MAX_CHARS]}")
    try:
        async with asyncio.timeout(seconds):
            written = (await asking.call_model()).response_markdown
    except (ModelCallFailed, AntiphonError, TimeoutError) as error:
        logger.info("no title from %s: %s", model, error)
        return ""
    lines = written.strip().splitlines()
    title = clean_title(lines[0].strip("#*\"'“”「」《》. 。") if lines else "")
    return shorten(title, _MAX_TITLE_CHARS)
