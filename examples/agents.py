"""Agents: a planner, an executor and a reviewer share one conversation; two researchers work in parallel as tools.

The model is scripted, so that the example runs without a key. All agents use the conversation's model, state and hooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import antiphon as ap
from antiphon.conversation import AgentSwitched
from antiphon.providers import ProviderCallOptions


class Note(ap.Hook):
    def before_tool(self, call: ap.ToolCallRequest, tool: ap.Tool | None) -> None:
        print("  calls", call.tool_name)


@ap.tool(effect="read")
async def search(topic: str, context: ap.ToolContext[list[str]]) -> str:
    "Search for a topic."
    context.state.append(topic)
    await asyncio.sleep(0)
    return f"three facts about {topic}"


def answer(context: Sequence[ap.ContextEntry], _: ProviderCallOptions) -> str | list[ap.ToolCallRequest]:
    """What the model says, by the instructions of the agent that speaks."""
    system, last = str(context[0]), str(context[-1])
    if "Research" in system:
        return "found: facts" if "three facts" in last else [ap.call("search", topic=last.split("about ")[-1][:4])]
    if "Plan" in system:
        return "1. Research. 2. Write."
    if "Review" in system:
        return "Approved."
    asked = [ap.call("ask_historian", request="about Rome"), ap.call("ask_geographer", request="about Nile")]
    return "The report is written." if "found" in last else asked


historian, geographer = (ap.Agent(name, "Research it.", tools=[search]) for name in ("historian", "geographer"))
TEAM = [
    ap.Agent("planner", "Plan the work."),
    ap.Agent("executor", "Do the work.", tools=[historian.as_tool(), geographer.as_tool(max_rounds=3)]),
    ap.Agent("reviewer", "Review the work."),
]
NEXT = {"planner": "executor", "executor": "reviewer"}


def main() -> None:
    chat = ap.Conversation(ap.FunctionModel(answer), state=list[str](), hooks=[Note()])
    loop = ap.ToolLoop(chat, agents=TEAM, route=lambda agent, _: NEXT.get(agent.name))

    async def play() -> None:
        async for event in loop.stream("Write a report about Rome and the Nile."):
            match event:
                case AgentSwitched(before, after):
                    print(f"{before} hands off to {after}")
                case ap.LoopFinished(reason, text):
                    print(f"{reason}: {text}; searched for {sorted(chat.state)}")

    asyncio.run(play())


if __name__ == "__main__":
    main()
