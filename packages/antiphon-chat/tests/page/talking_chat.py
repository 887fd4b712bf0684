"""A chat whose model does what a message says, so that one server serves many tests of the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import antiphon as ap
from antiphon.parts import Text, Thinking
from antiphon.providers import ProviderCallOptions
from antiphon.providers.scripted import call
from antiphon.wire.output import ProviderError
from page.rig import Browser, Gate, models, served
from page.window import Window


def last_words(context: Sequence[Any]) -> str:
    return "".join(part.text for part in context[-1].content if type(part) is Text)


@ap.tool(needs_approval=True)
def book_flight(to: str) -> str:
    "Book a flight."
    return f"booked: {to}"


GATES: dict[str, Gate] = {}
"""Where the answer to a message waits."""


def talker() -> ap.FunctionModel:
    """Does what the message says, so that one server serves all tests."""

    async def answer(context: Sequence[Any], options: ProviderCallOptions) -> AsyncIterator[Any]:
        words = last_words(context)
        if words.startswith("wait"):
            yield Thinking("I wait **here**.")
            yield "First half,\n\n"
            await GATES[words].passed()
            yield "second half."
        elif words.startswith("fly"):
            yield call("book_flight", to=words.split()[1])
        elif words.startswith("slowly"):
            for number in range(400):
                await asyncio.sleep(0.01)
                yield f"word {number} "
        else:
            yield f"You wrote: {words}"

    return ap.FunctionModel(answer, name="talker")


def talking_chat(path: Path) -> AbstractContextManager[Browser]:
    """The chat, served: `talker`, and models named `other` and `broken`."""
    other = ap.FunctionModel(lambda context, options: "The other one speaks.", name="other")

    def broken(context: Sequence[Any], options: ProviderCallOptions) -> Any:
        return ProviderError("the key was refused", "authentication") if len(context) < 2 else "Well again."

    known = models(talker(), other, ap.FunctionModel(broken, name="broken"))
    return served(path, known, tools=[book_flight])


def edit_in_fork(shown: Window, text: str) -> None:
    message = shown.thread.locator(".message.input").last
    message.hover()
    message.get_by_role("button", name="Edit", exact=True).click()
    message.get_by_role("textbox").fill(text)
    message.get_by_role("button", name="Send as a branch").click()
    shown.sees(f"You wrote: {text}")
    shown.rest()


def inputs(chat: Browser, conversation: str) -> list[Any]:
    return [entry for entry in chat.show(conversation)["entries"] if entry["kind"] == "model_input"]
