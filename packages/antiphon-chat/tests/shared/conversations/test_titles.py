"""Titles that a model writes."""

from __future__ import annotations

import asyncio

import pytest

from antiphon import Conversation, DebugLogEntry, ModelInputEntry, ModelOutputEntry, tool
from antiphon.providers.call import ProviderClient
from antiphon.providers.scripted import FunctionModel, ScriptedModel
from antiphon_chat.language import Language
from antiphon_chat.offline.tour import title_of
from antiphon_chat.shared.conversations.titles import write_title


def conversation(model: ProviderClient, name: str = "openai/gpt-5.5") -> Conversation:
    chat = Conversation(name, provider=model, tools=[look])
    chat.history.append(ModelInputEntry.of("Where do herons sleep? " + "x" * 10_000))
    chat.history.append(ModelOutputEntry.of("In trees."))
    return chat


@tool
def look(place: str) -> str:
    "Look."
    return place


def title_by(model: ProviderClient, name: str = "openai/gpt-5.5", seconds: float = 20.0) -> str:
    return asyncio.run(write_title(conversation(model, name), seconds))


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Sleeping herons", "Sleeping herons"),
        ('"Sleeping herons."\n\nI hope this helps.', "Sleeping herons"),
        ("# 苍鹭睡在哪里。", "苍鹭睡在哪里"),
        ("word " * 60, "word " * 15 + "word…"),
        ("", ""),
    ],
)
def test_the_first_line_is_the_title(written: str, title: str) -> None:
    assert title_by(FunctionModel(lambda context, options: written)) == title


def test_the_request_is_small_and_has_no_tools() -> None:
    seen: list[int] = []

    def answer(context: object, options: object) -> str:
        seen.append(len(str(context)))
        assert getattr(options, "tools", ()) == ()
        assert options.settings.max_output_tokens <= 400  # type: ignore[attr-defined]
        return "Herons"

    assert title_by(FunctionModel(answer)) == "Herons"
    assert seen[0] < 6_000


def test_the_log_has_what_a_title_used() -> None:
    chat = conversation(ScriptedModel("Herons"))
    assert asyncio.run(write_title(chat)) == "Herons"
    note = chat.history.entries[-1]
    assert isinstance(note, DebugLogEntry)
    assert (note.category, note.message) == ("side call", "title")
    assert chat.usage.total > 0
    assert len(chat.context()) == 2, "no model sees the note"


def test_the_tour_writes_no_title() -> None:
    def refuse(context: object, options: object) -> str:
        raise AssertionError("the tour was asked")

    assert title_by(FunctionModel(refuse), "offline/plain") == ""


@pytest.mark.parametrize(("language", "title"), [("en", "Search, then plan"), ("zh", "先搜索，再制定计划")])
def test_a_chat_begun_with_a_number_of_the_tour_is_called_by_what_it_chose(language: Language, title: str) -> None:
    assert title_of("1", language) == title
    assert title_of("5", language) == title_of("", language) == title_of("1 apple", language) == ""


def test_a_model_that_does_not_answer_leaves_the_conversation_as_it_is() -> None:
    async def never(context: object, options: object) -> str:
        await asyncio.Event().wait()
        return ""

    assert title_by(FunctionModel(never), seconds=0.05) == ""
