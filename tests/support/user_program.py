"""A program of a user, for the type checkers: everything comes from `antiphon`, and they know what each thing is."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Literal, assert_type

import antiphon as ap
from antiphon.history import AgentHistorySnapshot


@dataclasses.dataclass
class Account:
    owner: str
    balance: int


@dataclasses.dataclass
class Receipt:
    amount: int


@ap.tool(effect="read")
async def balance(context: ap.ToolContext[Account]) -> str:
    "The balance of the account."
    assert_type(context.state, Account)
    assert_type(context.history, AgentHistorySnapshot)
    assert_type(context.usage, ap.TokenUsage)
    return str(context.state.balance)


@ap.tool(needs_approval=True, timeout=5)
def pay(amount: int, context: ap.ToolContext[Account]) -> int:
    "Pay an amount."
    context.progress("paying", 0.5)
    return context.state.balance - amount


def show(event: ap.LoopEvent) -> str:
    match event:
        case ap.TextDelta(text):
            return assert_type(text, str)
        case ap.ToolCallFinished(call, result, seconds):
            return f"{call.tool_name} {result.status} {seconds:.1f}"
        case ap.LoopFinished(reason):
            return reason
        case _:
            return ""


async def main() -> None:
    model = ap.ScriptedModel(
        ap.call("balance"), ap.call("final_answer", answer={"amount": 5}), "bye", '{"answer": "yes"}'
    )
    async with ap.Conversation(
        model, tools=[balance, pay], state=Account("Ada", 5), settings=ap.ModelSettings(temperature=0)
    ) as chat:
        assert_type(chat.state, Account)
        loop = ap.ToolLoop(chat, max_rounds=3, max_seconds=60)
        receipt = await loop.run("Pay.", output=Receipt)
        assert_type(receipt, ap.RunResult[Receipt])
        assert_type(receipt.output, Receipt)
        print(receipt.output.amount)
        async for event in loop.stream("Bye.", settings={"seed": 1}):
            print(show(event))
        answer: Literal["yes", "no"] = (await loop.run("Sure?", output=Literal["yes", "no"])).output
        print(answer)


def plain() -> None:
    chat: ap.Conversation = ap.Conversation(ap.FunctionModel(lambda context, options: f"{len(context)} entries"))
    result = ap.ToolLoop(chat, limits=ap.RunLimits(max_rounds=1)).run_sync("Hi.")
    assert_type(result.text, str)
    assert_type(result.entry, ap.ModelOutputEntry | None)
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
    plain()
