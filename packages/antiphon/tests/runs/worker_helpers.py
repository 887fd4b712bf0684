"""What the tests of workers share: a model, a worker, and waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import AgentHistory, ContextEntry, HistoryStore, Run
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer
from antiphon.runs import RunRegistry, RunRetryPolicy, Worker
from antiphon.tools import ToolContext, tool
from support.planned_turns import planned

QUICK = RunRetryPolicy(first_delay=0.05, longest_delay=0.2)


def saying(*turns: ScriptedAnswer) -> RunRegistry:
    """A registry with one kind, whose model says these things, one a call."""
    registry = RunRegistry()
    left = list(turns)

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        return left.pop(0) if len(left) > 1 else left[0]

    @registry.kind("chat")
    def chat(history: AgentHistory, run: Run) -> ToolLoop:
        return ToolLoop(Conversation(FunctionModel(answer), history=history))

    return registry


def worker_of(store: HistoryStore, registry: RunRegistry, **settings: Any) -> Worker:
    return Worker(store, registry, **{"retry_policy": QUICK, "lease_seconds": 30, **settings})


def play(store: HistoryStore, registry: RunRegistry, **settings: Any) -> Worker:
    """Play what there is."""

    async def work() -> Worker:
        worker = worker_of(store, registry, **settings)
        await worker.run(once=True)
        return worker

    return asyncio.run(work())


@asynccontextmanager
async def working(*workers: Worker) -> AsyncIterator[None]:
    """The workers at work, for as long as the block lasts."""
    tasks = [asyncio.ensure_future(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


class Watched:
    """A kind whose tool notes how many of it run at the same time, by provider."""

    def __init__(self) -> None:
        self.registry = RunRegistry()
        self.most: Counter[str] = Counter()
        self.played: Counter[str] = Counter()
        now: Counter[str] = Counter()

        @self.registry.kind("watched")
        def watched(history: AgentHistory, run: Run) -> ToolLoop:
            @tool
            async def look(context: ToolContext) -> str:
                """Looks for a moment."""
                self.played[context.conversation_id] += 1
                now[run.provider] += 1
                self.most[run.provider] = max(self.most[run.provider], now[run.provider])
                await asyncio.sleep(0.03)
                now[run.provider] -= 1
                return "seen"

            return ToolLoop(Conversation(planned([["look"]]), tools=[look], history=history))


def counted_claims(store: HistoryStore) -> list[int]:
    """How often a worker asks the store for a run, counted from here on."""
    asked, claim = [0], store.runs.claim

    def counted(*given: Any, **named: Any) -> Run | None:
        asked[0] += 1
        return claim(*given, **named)

    store.runs.claim = counted  # type: ignore[method-assign]
    return asked
