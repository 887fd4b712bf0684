"""`antiphon serve`: runs the gateway from a file or the environment; also checks that file and prints its schema.

Options override `[gateway]` in the file, also after a reload.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from antiphon.cli.terminal import write, write_error, write_json
from antiphon.gateway.access.client_keys import ClientKeys
from antiphon.gateway.cluster.redis_store import parse_store_url
from antiphon.gateway.config.file import config_from_environment, load_config
from antiphon.gateway.config.settings import Config, ProviderSettings, config_schema
from antiphon.history.location import store_location

_HIGHEST_PORT = 65_535
_MOST_WORKERS = 256


class Configured(Struct, frozen=True):
    """The configuration, its file (None: the environment), and a line that describes the source."""

    config: Config
    path: Path | None
    summary: str


def configure(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--host", help="the address to listen on")
    parser.add_argument("--port", type=_port, help="the port of the main service")
    parser.add_argument("--format-port", type=_port, metavar="PORT", help="the port of the format proxy")
    parser.add_argument("--workers", type=_workers, default=1, metavar="N", help="number of worker processes")
    parser.add_argument("--log", choices=("json", "console"), help="log format")
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
    configured = configured_by(arguments.config, overrides)
    if arguments.check:
        write(summary(configured))
        return 0
    if configured.path is None:
        write_error(f"antiphon: {configured.summary}")
    return _served(configured, overrides, arguments.workers)


def configured_by(path: Path | None, overrides: dict[str, Any]) -> Configured:
    """The configuration in the file, or that of the environment. Raises `ConfigRefused`."""
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


def _served(configured: Configured, overrides: dict[str, Any], workers: int) -> int:
    from antiphon.gateway.cluster.workers import serve_in_workers
    from antiphon.gateway.serve import serve, tune_memory

    store = store_location(None)
    if workers > 1:
        from antiphon.web.mounted.shared_chat import shared_chat_factory

        chats = partial(shared_chat_factory, store)
        return serve_in_workers(configured.config, workers, path=configured.path, overrides=overrides, chat=chats)
    from antiphon.web.mounted.gateway_chat import chat_factory

    chat = chat_factory(store)
    asyncio.run(serve(configured.config, path=configured.path, overrides=overrides, chat=chat, ready=tune_memory))
    return 0


def _port(text: str) -> int:
    return _number(text, 0, _HIGHEST_PORT)


def _workers(text: str) -> int:
    return _number(text, 1, _MOST_WORKERS)


def _number(text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text[:12]) <= most:
        raise argparse.ArgumentTypeError(f"invalid number {text!r}: expected {least}-{most}")
    return int(text)
