"""`serve_chat`: the chat's page on a port of this machine, for `antiphon chat --web`."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from antiphon.errors import GatewayStartError
from antiphon.history.location import data_folder_for
from antiphon.http.origin import OriginRules, is_loopback
from antiphon.http.server.application import Limits
from antiphon.http.server.listener import Listener, bind_socket, stop_on_signals
from antiphon.providers.client import ProviderClient
from antiphon.providers.default_model import is_tour
from antiphon.tools.registry import ToolLike, ToolRegistry
from antiphon_chat.page.app import ChatApp
from antiphon_chat.shared.mcp.servers import McpServers
from antiphon_chat.shared.session import TurnSettings, open_chat_store, resume_conversation
from antiphon_chat.shared.setup.model_setup import ModelSetup
from antiphon_chat.shared.toolbox import Toolboxes

PORT = 8765
SHUTDOWN_GRACE_SECONDS = 5.0
_LIMITS = Limits(max_connections=200)


def serve_chat(
    model: str | ProviderClient | None,
    store: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    opens_browser: bool = False,
    system: str | None = None,
    with_tools: bool = True,
    folder: Path | None = None,
    tools: Sequence[ToolLike] = (),
    token_limit: int | None = None,
    turns: TurnSettings | None = None,
    asks_before_changes: bool = False,
    resume: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Serve the chat until Ctrl-C or SIGTERM; returns the exit code. Prints the default model and the address of the page.

    Only this machine is served, because there are no keys; `antiphon serve` has keys. Plans and documents are in the folder
    of the store; `tools` are offered beside the built-in ones. With `asks_before_changes`, tools that are not read-only need
    approval. With `resume` the page opens that conversation, with `model` and `system` if they are given.
    `turns` has the limits of turns; `token_limit` is one of them.
    """
    if host != "localhost" and not is_loopback(host):
        raise GatewayStartError(
            f"the chat without keys is for this machine alone, not for {host}; `antiphon serve` has keys"
        )
    setup = ModelSetup(os.environ if environ is None else environ, data_folder_for(store), model)
    _say(str(setup.models.choice))

    servers = McpServers(data_folder_for(store), tools)
    toolboxes = Toolboxes(
        data_folder_for(store),
        folder=folder,
        with_builtin=with_tools,
        tools=(*tools, servers) if with_tools else tools,
        with_tour=is_tour(setup.models.choice.model),
    )
    for agent in (
        turns.agents if turns else ()
    ):  # a name that is taken is better reported now than by the first conversation
        ToolRegistry([*toolboxes.of("").registry, *agent.tools])
    with open_chat_store(store) as conversations:
        shown = ""
        if resume:
            shown = resume_conversation(conversations, resume, model if isinstance(model, str) else None, system).id

        def on_ready(url: str) -> None:
            address = url + (f"#/c/{shown}" if shown else "")
            _say(f"the chat is at {address}")
            if opens_browser:
                webbrowser.open(address)

        app = ChatApp(
            conversations,
            lambda: setup.models,
            toolboxes,
            rules=lambda: OriginRules(host),
            system=system or "",
            token_limit=token_limit,
            turns=lambda: turns or TurnSettings(),
            asks_before_changes=asks_before_changes,
            setup=setup,
            mcp=servers if with_tools else None,
            writes_titles=True,
        )
        asyncio.run(_serve(app, setup, host, port, on_ready))
    return 0


async def _serve(app: ChatApp, setup: ModelSetup, host: str, port: int, on_ready: Callable[[str], None]) -> None:
    try:
        await serve_app(app, host, port, on_ready=on_ready)
    finally:
        await setup.aclose()


def _say(line: str) -> None:
    sys.stderr.write(f"antiphon: {line}\n")
    sys.stderr.flush()


async def serve_app(
    app: ChatApp,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    on_ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    limits: Limits = _LIMITS,
) -> None:
    """Serve an app until a signal, or `stop`, and close it. `on_ready` gets the address of the page."""
    stop = stop or asyncio.Event()
    listener = Listener(app, "chat", limits)
    sock = bind_socket(host, port)
    try:
        await listener.open(sock)
        with stop_on_signals(stop):
            if on_ready is not None:
                name = f"[{host}]" if ":" in host else host
                on_ready(f"http://{name}:{sock.getsockname()[1]}/chat/")
            await stop.wait()
    finally:
        await asyncio.gather(listener.close(SHUTDOWN_GRACE_SECONDS), app.aclose(SHUTDOWN_GRACE_SECONDS))
