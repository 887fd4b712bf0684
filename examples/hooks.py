"""Hooks: a guard that masks mail addresses, allows only some tools, and stops at a budget, in one conversation.

The model is scripted, so that the example runs without a key.
"""

from __future__ import annotations

import re

from msgspec import structs

import antiphon as ap
from antiphon.tools import HookedModelCall

MAIL = re.compile(r"[\w.]+@[\w.]+")


class MaskMails(ap.Hook):
    """Keeps addresses in tool results from the model and from the log."""

    async def after_tool(self, call: ap.ToolCallRequest, result: ap.ToolCallResult) -> ap.ToolCallResult:
        return structs.replace(result, content=(ap.Text(MAIL.sub("[mail]", result.result_markdown)),))


class AllowList(ap.Hook):
    def __init__(self, *names: str) -> None:
        self.names = names

    def before_tool(self, call: ap.ToolCallRequest, tool: ap.Tool | None) -> None:
        if call.tool_name not in self.names:
            raise ap.ToolError(f"{call.tool_name} is not allowed here")


class CostStop(ap.Hook):
    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def before_model(self, call: HookedModelCall) -> None:
        if call.usage.total >= self.tokens:
            raise ap.CallRefused(f"the budget of {self.tokens} tokens is used")


@ap.tool(effect="read")
async def find_customer(name: str) -> str:
    "Find a customer."
    return f"{name}, {name.lower()}@example.org"


@ap.tool
async def delete_customer(name: str) -> str:
    "Delete a customer."
    return f"deleted {name}"


MODEL = ap.ScriptedModel(
    [ap.call("find_customer", name="Ada"), ap.call("delete_customer", name="Ada")],
    "Found her; I may not delete her.",
    "…",
)


def main() -> None:
    hooks = [CostStop(40), AllowList("find_customer"), MaskMails()]
    chat = ap.Conversation(MODEL, tools=[find_customer, delete_customer], hooks=hooks)
    print(ap.ToolLoop(chat).run_sync("Find and delete Ada.").text)
    for entry in chat.by_role("tool"):
        for part in entry.content:
            print("result:", getattr(part, "result_markdown", ""))
    refused = ap.ToolLoop(chat).run_sync("Again.")
    print(f"{refused.reason}: {refused.text}")


if __name__ == "__main__":
    main()
