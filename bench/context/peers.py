"""The same turn by other libraries, in the environment of the peers: `peers.py NAME URL ROUNDS LIMIT`.

Each is set up as its documentation shows it, with the limit as its threshold. Only the standard library is imported at the top.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.context.depots import MODEL, QUESTION, SYSTEM, describe

os.environ.setdefault("ANTHROPIC_API_KEY", "sk-test")


def look(number: int) -> str:
    """Look at a depot."""
    return describe(number)


def pydantic_ai(url: str, rounds: int, limit: int) -> None:
    """pydantic-ai with the tiers of its harness: clear tool results, then summarise."""
    del rounds  # it has no limit of its own
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai_harness.compaction import ClearToolResults, SummarizingCompaction, TieredCompaction

    tiers: list[Any] = [ClearToolResults(max_tokens=1), SummarizingCompaction(max_messages=1)]
    agent = Agent(
        AnthropicModel(MODEL, provider=AnthropicProvider(base_url=url, api_key="sk-test")),
        system_prompt=SYSTEM,
        tools=[look],
        capabilities=[TieredCompaction(tiers=tiers, target_tokens=limit)],
    )
    asyncio.run(agent.run(QUESTION, usage_limits=UsageLimits(request_limit=None)))


def _langchain(url: str, rounds: int, make: Callable[[Any], list[Any]]) -> None:
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model=MODEL, base_url=url, api_key="sk-test", max_tokens=4_096)
    agent: Any = create_agent(model, [look], system_prompt=SYSTEM, middleware=make(model))
    agent.invoke({"messages": [("user", QUESTION)]}, {"recursion_limit": rounds * 10 + 100})


def langchain(url: str, rounds: int, limit: int) -> None:
    """LangChain's summarisation middleware; twenty messages are kept, its default."""
    from langchain.agents.middleware import SummarizationMiddleware

    _langchain(url, rounds, lambda model: [SummarizationMiddleware(model, trigger=("tokens", limit))])


def langchain_edits(url: str, rounds: int, limit: int) -> None:
    """LangChain's context editing: old results are cleared at the limit."""
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware

    _langchain(url, rounds, lambda _: [ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=limit)])])


PEERS = {"pydantic-ai-harness": pydantic_ai, "langchain": langchain, "langchain-edits": langchain_edits}

if __name__ == "__main__":
    name, url, rounds, limit = sys.argv[1:]
    PEERS[name](url, int(rounds), int(limit))
