"""`serve_chat`: the chat's page on a port of this machine, for `antiphon chat --web`."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path

from antiphon.errors import ServeRefused
from antiphon.gateway.access.client_keys import is_loopback
from antiphon.gateway.access.origin import OriginRules
from antiphon.gateway.config.settings import GatewaySettings
from antiphon.gateway.http.listener import Listener, bound
from antiphon.gateway.observe.metrics import Metrics
from antiphon.gateway.serve import stopped_by_signals
from antiphon.history import HistoryStore
from antiphon.history.location import data_folder_for, open_location
from antiphon.providers.client import ProviderClient
from antiphon.web.app import ChatApp
from antiphon.web.live_conversation import chosen_model, model_note
from antiphon.web.models import models_of_environment
from antiphon.web.toolbox import Toolboxes

PORT = 8765
GRACE = 5.0
_SETTINGS = GatewaySettings(max_connections=200)


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
    token_limit: int | None = None,
    asks: bool = False,
    resume: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Serve the chat until Ctrl-C or SIGTERM; the exit code. Says what answers, and where the page is.

    Only this machine is served, for there are no keys here: `antiphon serve` has them. Plans and documents are beside the store.
    With `asks`, tools that change something need approval. With `resume` the page opens that conversation, with `model` and
    `system` if they are given.
    """
    if host != "localhost" and not is_loopback(host):
        raise ServeRefused(
            f"the chat without keys is for this machine alone, not for {host}; `antiphon serve` has keys"
        )
    models = models_of_environment(os.environ if environ is None else environ, model)
    _say(str(models.choice))

    toolboxes = Toolboxes(data_folder_for(store), folder=folder, with_builtin=with_tools)
    with open_location(store) as conversations:
        shown = _resumed(conversations, resume, model, system) if resume else ""

        def ready(url: str) -> None:
            address = url + (f"#/c/{shown}" if shown else "")
            _say(f"the chat is at {address}")
            if opens_browser:
                webbrowser.open(address)

        app = ChatApp(
            conversations,
            lambda: models,
            toolboxes,
            rules=lambda: OriginRules(host),
            system=system or "",
            token_limit=token_limit,
            asks=asks,
        )
        asyncio.run(serving(app, host, port, ready=ready))
    return 0


def _resumed(store: HistoryStore, resume: str, model: str | ProviderClient | None, system: str | None) -> str:
    """The id of the conversation to resume, with another model and system instruction if they are given."""
    history = store.open(resume)
    if system is not None and system != history.system_instruction:
        history.set_system_instruction(system)
    if isinstance(model, str) and model != chosen_model(history.snapshot()):
        history.append(model_note(model))
    return history.id


def _say(line: str) -> None:
    sys.stderr.write(f"antiphon: {line}\n")
    sys.stderr.flush()


async def serving(
    app: ChatApp,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    settings: GatewaySettings = _SETTINGS,
) -> None:
    """Serve an app until a signal, or `stop`, and close it. `ready` is told the address of the page."""
    stop = stop or asyncio.Event()
    metrics = Metrics(())
    listener = Listener(app, "chat", metrics, lambda: settings)
    sock = bound(host, port)
    try:
        await listener.open(sock)
        with stopped_by_signals(stop):
            if ready is not None:
                name = f"[{host}]" if ":" in host else host
                ready(f"http://{name}:{sock.getsockname()[1]}/chat/")
            await stop.wait()
    finally:
        await asyncio.gather(listener.close(GRACE), app.aclose(GRACE))
        metrics.close()
