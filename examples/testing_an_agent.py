"""Testing an agent: what it called, what the model was sent, and that every provider accepts the conversation.

The test needs no key and no network. Run it with pytest, or as a program.
"""

from __future__ import annotations

import antiphon as ap
from antiphon.testing import (
    FunctionModel,
    ScriptedModel,
    assert_accepted,
    assert_called,
    assert_not_called,
    assert_sent,
)


@ap.tool(effect="read")
async def find_order(number: int) -> str:
    "Find an order."
    return f"order {number}: 2 lamps"


@ap.tool(needs_approval=True)
async def refund(number: int) -> str:
    "Refund an order."
    return f"refunded {number}"


def agent(model: ap.ProviderClient) -> ap.Conversation:
    """The agent under test: everything but the model is as in production."""
    return ap.Conversation(model, tools=[find_order, refund], system="You help with orders.")


def test_it_looks_the_order_up() -> None:
    model = ScriptedModel(ap.call("find_order", number=7), "Two lamps.")
    chat = agent(model)
    assert ap.ToolLoop(chat).run_sync("What did I order? It was number 7.").text == "Two lamps."
    assert_called(chat, "find_order", number=7)
    assert_not_called(chat, "refund")
    assert_sent(model, "You help with orders.", "order 7: 2 lamps")
    assert_accepted(chat)


def test_a_refund_waits_for_a_person() -> None:
    result = ap.ToolLoop(agent(ScriptedModel(ap.call("refund", number=7)))).run_sync("Refund 7.")
    assert [call.tool_name for call in result.pending] == ["refund"]


def test_it_answers_in_one_round_without_a_question() -> None:
    chat = agent(FunctionModel(lambda context, _: f"{len(context)} messages"))
    assert ap.ToolLoop(chat).run_sync("Hello.").rounds == 1


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: passed")
