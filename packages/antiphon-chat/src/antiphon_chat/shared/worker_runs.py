"""The runs that `antiphon worker` executes without an `--app`: chats with the models of the environment, plans and search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.conversation import Conversation, ToolLoop
from antiphon.history import AgentHistory, Run
from antiphon.history.location import data_folder_for
from antiphon.runs import RunRegistry
from antiphon.tools.tool import ask_before_changes
from antiphon_chat.shared.models import find_model, models_from_environment
from antiphon_chat.shared.toolbox import Toolboxes


@asynccontextmanager
async def chat_runs(
    store: str | Path, environ: Mapping[str, str], *, asks: bool = False
) -> AsyncIterator[tuple[RunRegistry, str]]:
    """The kinds with the kind `chat`, and a line that names its model. With `asks`, every change needs approval."""
    offer = models_from_environment(environ)
    toolboxes = Toolboxes(data_folder_for(store))
    registry = toolboxes.of("").registry
    approval = ask_before_changes if asks else None
    kinds = RunRegistry()

    @kinds.kind("chat")
    async def chat(history: AgentHistory, run: Run) -> AsyncIterator[ToolLoop]:
        named = str(run.options.get("model", ""))
        model = find_model(named, offer.names, offer.router, environ) if named else offer.choice.model
        system = run.options.get("system")
        yield ToolLoop(
            Conversation(
                model, tools=registry, history=history, provider=offer.router, system=system, approval=approval
            )
        )

    try:
        yield kinds, str(offer.choice)
    finally:
        await offer.router.aclose()
        await toolboxes.aclose()
