"""Typed state: tools share an application's object, know the conversation they run in, and stop early when they are given up.

The model is scripted, so that the example runs without a key.
"""

from __future__ import annotations

import dataclasses

import antiphon as ap


@dataclasses.dataclass
class Stock:
    """What the application keeps; the model never sees it."""

    items: dict[str, int]
    sold: int = 0


@ap.tool(effect="read")
async def count(item: str, context: ap.ToolContext[Stock]) -> int:
    "How many of an item are left."
    return context.state.items.get(item, 0)


@ap.tool
def sell(item: str, number: int, context: ap.ToolContext[Stock]) -> str:
    "Sell some of an item."
    for _ in range(number):
        context.raise_if_cancelled()
        context.state.items[item] -= 1
        context.state.sold += 1
    return f"sold in round {context.round}, after {context.usage.total} tokens and {context.history.version} entries"


MODEL = ap.ScriptedModel(
    ap.call("count", item="lamp"), ap.call("sell", item="lamp", number=2), "Two lamps are sold; one is left."
)


def main() -> None:
    chat = ap.Conversation(MODEL, tools=[count, sell], state=Stock({"lamp": 3}))
    result = ap.ToolLoop(chat).run_sync("Sell two lamps if there are two.")
    print(result.text)
    print("state:", chat.state)


if __name__ == "__main__":
    main()
