"""`antiphon serve`: runs the gateway from a file or the environment; also checks that file and prints its schema.

Options override `[gateway]` in the file, also after a reload.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from antiphon.cli.options import whole_number
from antiphon.cli.terminal import write, write_error, write_json
from antiphon.extensions import EXTENSIONS, find_part, load_part
from antiphon.gateway.access.client_keys import ClientKeys
from antiphon.gateway.cluster.store_url import parse_store_url
from antiphon.gateway.config.file import config_from_environment, load_config
from antiphon.gateway.config.settings import Config, ProviderSettings, config_schema
from antiphon.history.location import store_location

if TYPE_CHECKING:
    from antiphon.gateway.app import Gateway, TapeHandler

_HIGHEST_PORT = 65_535
_MOST_WORKERS = 256


class Configured(Struct, frozen=True):
    """The configuration, its file (None: the environment), and a line that describes the source."""

    config: Config
    path: Path | None
    summary: str


def configure(parser: argparse.ArgumentParser) -> None:
    port = whole_number(0, _HIGHEST_PORT)
    add_config(parser)
    parser.add_argument("--host", help="the address to listen on")
    parser.add_argument("--port", type=port, help="the port of the main service")
    parser.add_argument("--format-port", type=port, metavar="PORT", help="the port of the format proxy")
    parser.add_argument(
        "--workers", type=whole_number(1, _MOST_WORKERS), default=1, metavar="N", help="number of worker processes"
    )
    parser.add_argument("--log", choices=("json", "console"), help="log format")
    tape = parser.add_argument_group(
        "tapes", "record what clients ask and get, and answer them again without a provider"
    )
    tape.add_argument("--record", metavar="TAPE", help="record requests and answers in this file, without secrets")
    tape.add_argument("--replay", metavar="TAPE", help="answer from this file; needs no configuration, key or network")
    if (cassettes := find_part(EXTENSIONS, "cassettes")) is not None:
        cassettes.configure_tapes(tape)
    parser.add_argument("--check", action="store_true", help="check the configuration, print a summary and exit")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of the configuration and exit")


def add_config(parser: argparse.ArgumentParser) -> None:
    """The option that names the file."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="configuration file (default: providers whose API key is set)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped."""
    if arguments.schema:
        write_json(config_schema())
        return 0
    overrides = {
        name: value
        for name in ("host", "port", "format_port", "log")
        if (value := getattr(arguments, name)) is not None
    }
    option = next((name for name in ("record", "replay") if getattr(arguments, name) is not None), "")
    cassettes = load_part(EXTENSIONS, "cassettes", f"--{option}") if option else find_part(EXTENSIONS, "cassettes")
    if cassettes is not None and (problem := cassettes.problem_with_tapes(arguments)):
        write_error(f"antiphon: {problem}")
        return 2
    if arguments.replay is not None and cassettes is not None:
        code: int = cassettes.replay_tape(arguments, overrides)
        return code
    configured = configured_by(arguments.config, overrides)
    if arguments.check:
        write(summary(configured))
        return 0
    if configured.path is None:
        write_error(f"antiphon: {configured.summary}")
    tape = None
    if arguments.record is not None and cassettes is not None:
        tape = cassettes.start_recording(arguments)
        write_error(f"antiphon: recording to {arguments.record}")
    return _served(configured, overrides, arguments.workers, tape)


def configured_by(path: Path | None, overrides: dict[str, Any]) -> Configured:
    """The configuration in the file, or that of the environment. Raises `ConfigError`."""
    if path is None:
        offer = config_from_environment(os.environ, overrides=overrides)
        return Configured(offer.config, None, offer.summary)
    return Configured(load_config(path, overrides=overrides), path, f"{path}: ok")


def summary(configured: Configured) -> Iterator[str]:
    """A summary of the configuration."""
    config = configured.config
    gateway = config.gateway
    host = f"[{gateway.host}]" if ":" in gateway.host else gateway.host
    clients = [client.name for client in ClientKeys(config).clients]
    yield configured.summary
    yield f"  listens    http://{host}:{gateway.port}, format proxy on {gateway.format_port}"
    yield f"  clients    {', '.join(clients) or 'no keys; loopback only'}"
    if gateway.shared:
        yield f"  shared     {parse_store_url(gateway.shared)}"
    for provider in config.providers:
        yield f"  provider   {_described(provider)}"
    for model in config.models:
        yield f"  model      {model.name} -> {', then '.join(model.targets)}"


def _described(provider: ProviderSettings) -> str:
    if provider.is_offline:
        return f"{provider.name}: not a language model, needs no key and no network"
    count = len(provider.keys)
    keys = "no key" if not count else "1 key" if count == 1 else f"{count} keys"
    preset = provider.effective_preset
    return f"{provider.name}: {preset.format} at {provider.base_url or preset.base_url}, {keys}"


def _served(
    configured: Configured,
    overrides: dict[str, Any],
    workers: int,
    tape: Callable[[Gateway], TapeHandler] | None = None,
) -> int:
    from antiphon.gateway.cluster.workers import serve_in_workers
    from antiphon.gateway.serve import serve, tune_memory

    page = find_part(EXTENSIONS, "chat_page")
    store = store_location(None)
    if workers > 1:
        chats = None if page is None else partial(page.shared_chat_factory, store)
        return serve_in_workers(
            configured.config, workers, path=configured.path, overrides=overrides, chat=chats, tape=tape
        )
    chat = None if page is None else page.chat_factory(store)
    asyncio.run(
        serve(configured.config, path=configured.path, overrides=overrides, chat=chat, ready=tune_memory, tape=tape)
    )
    return 0
