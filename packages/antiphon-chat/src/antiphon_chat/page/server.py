"""`serve_chat`: the chat's page on a port of this machine, for `antiphon chat --web`."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping

from antiphon.errors import GatewayStartError
from antiphon.history.location import data_folder_for
from antiphon.http.origin import OriginRules, is_loopback
from antiphon.http.server.application import Limits
from antiphon.http.server.listener import Listener, bind_socket, stop_on_signals
from antiphon.tools.registry import ToolRegistry
from antiphon_chat.page.app import ChatApp
from antiphon_chat.page.services import ChatServices
from antiphon_chat.shared.mcp.servers import McpServers
from antiphon_chat.shared.session import ChatSettings, open_chat_store, resume_conversation
from antiphon_chat.shared.setup.model_setup import ModelSetup

PORT = 8765
SHUTDOWN_GRACE_SECONDS = 5.0
_LIMITS = Limits(max_connections=200)


def serve_chat(
    settings: ChatSettings,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    opens_browser: bool = False,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Serve the chat until Ctrl-C or SIGTERM; returns the exit code. Prints the default model and the address of the page.

    Only this machine is served, because there are no keys; `antiphon serve` has keys. Plans and documents are in the folder
    of the store. With `resume` in the settings the page opens that conversation, with their model and system instruction.
    """
    if host != "localhost" and not is_loopback(host):
        raise GatewayStartError(
            f"the chat without keys is for this machine alone, not for {host}; `antiphon serve` has keys"
        )
    folder = data_folder_for(settings.store)
    setup = ModelSetup(os.environ if environ is None else environ, folder, settings.model)
    _say(str(setup.models.choice))
    servers = McpServers(folder, settings.tools)
    toolboxes = settings.toolboxes(servers, setup.models.choice.model)
    for agent in settings.turns.agents:  # a name that is taken is better reported now than by the first conversation
        ToolRegistry([*toolboxes.of("").registry, *agent.tools])
    with open_chat_store(settings.store) as store:
        shown = ""
        if settings.resume:
            shown = f"#/c/{resume_conversation(store, settings.resume, settings.model, settings.system).id}"

        def on_ready(url: str) -> None:
            _say(f"the chat is at {url}{shown}")
            if opens_browser:
                webbrowser.open(f"{url}{shown}")

        chat = ChatServices(
            store,
            lambda: setup.models,
            toolboxes,
            system=settings.system or "",
            turns=lambda: settings.turns,
            asks_before_changes=settings.asks_before_changes,
            setup=setup,
            mcp=servers if settings.has_tools else None,
            writes_titles=True,
        )
        asyncio.run(_serve(ChatApp(chat, rules=lambda: OriginRules(host)), setup, host, port, on_ready))
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
