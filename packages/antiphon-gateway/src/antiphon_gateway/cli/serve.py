"""`antiphon serve`: runs the gateway from a file or the environment; also checks that file and prints its schema.

Options override `[gateway]` in the file, also after a reload.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import structs

from antiphon.cli.options import whole_number
from antiphon.cli.terminal import write, write_error, write_json
from antiphon.extensions import EXTENSIONS, find_part, load_part
from antiphon.history.location import store_location
from antiphon_gateway.access.client_keys import ClientKeys
from antiphon_gateway.config.file import Configured, config_from_environment, load_config
from antiphon_gateway.config.references import parse_store_url
from antiphon_gateway.config.settings import ProviderSettings, config_schema

if TYPE_CHECKING:
    from antiphon_gateway.app import Gateway, TapeHandler

_USUAL_NAME = "antiphon.toml"
_HIGHEST_PORT = 65_535
_MOST_WORKERS = 256
_FASTEST = 1000


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
    tape.add_argument(
        "--replay-speed",
        type=_speed,
        metavar="real|instant|N",
        help="play streams with their recorded times, at once (default), or N times as fast",
    )
    tape.add_argument("--replay-once", action="store_true", help="play each answer once instead of repeating the last")
    tape.add_argument(
        "--match",
        choices=("path", "body", "loose", "exact"),
        help="what must be equal: method and path; query and body, too (default); the same without dates, times and ids; "
        "or every field, also those that clients fill with session ids",
    )
    tape.add_argument(
        "--ignore",
        action="append",
        metavar="FIELD",
        help="a field that may differ: metadata, messages[*].id, query.alt",
    )
    tape.add_argument(
        "--redact", action="append", metavar="NAME", help="a header or field to remove from the recording, too"
    )
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
    if problem := _tape_problem(arguments):
        write_error(f"antiphon: {problem}")
        return 2
    if arguments.replay is not None:
        code: int = _cassettes("--replay").replay_tape(arguments, overrides)
        return code
    configured = configured_by(arguments.config, overrides)
    if arguments.check:
        write(summary(configured))
        return 0
    if configured.path is None:
        write_error(f"antiphon: {configured.summary}")
    tape = None
    if arguments.record is not None:
        tape = _cassettes("--record").start_recording(arguments)
        write_error(f"antiphon: recording to {arguments.record}")
    return _served(configured, overrides, arguments.workers, tape)


def configured_by(path: Path | None, overrides: dict[str, Any]) -> Configured:
    """The configuration in the file, or that of the environment. Raises `ConfigError`."""
    if path is None:
        offer = config_from_environment(os.environ, overrides=overrides)
        unread = f"; {_USUAL_NAME} in this folder is not read without --config" if Path(_USUAL_NAME).exists() else ""
        return structs.replace(offer, summary=offer.summary + unread)
    return Configured(load_config(path, overrides=overrides), f"{path}: ok", path)


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


def _tape_problem(arguments: argparse.Namespace) -> str:
    """What is wrong with the options about tapes; empty if nothing is."""
    for_replay = [
        option
        for option, value in (
            ("--replay-speed", arguments.replay_speed),
            ("--replay-once", arguments.replay_once or None),
            ("--match", arguments.match),
            ("--ignore", arguments.ignore),
        )
        if value is not None
    ]
    if arguments.replay is None:
        if for_replay:
            return f"{for_replay[0]} needs --replay TAPE"
        return "--redact needs --record TAPE" if arguments.redact and not arguments.record else ""
    if arguments.record is not None:
        return "--record and --replay exclude each other; record first, then replay"
    if arguments.redact:
        return "--redact needs --record; a replay removes what its tape names"
    if arguments.config is not None:
        return "--replay needs no configuration; leave out --config"
    if arguments.workers > 1:
        return "--replay plays one tape in order, so it needs one process; leave out --workers"
    if arguments.ignore:
        problem: str = _cassettes("--ignore").check_ignored_paths(arguments.ignore)
        return problem
    return ""


def _cassettes(option: str) -> ModuleType:
    return load_part(EXTENSIONS, "cassettes", option)


def _served(
    configured: Configured,
    overrides: dict[str, Any],
    workers: int,
    tape: Callable[[Gateway], TapeHandler] | None = None,
) -> int:
    from antiphon_gateway.serve import serve, tune_memory
    from antiphon_gateway.workers import serve_in_workers

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


def _speed(text: str) -> float:
    known = {"real": 1.0, "instant": inf}.get(text)
    if known is not None:
        return known
    try:
        speed = float(text) if text.isascii() else 0.0
    except ValueError:
        speed = 0.0
    if not 0 < speed <= _FASTEST:
        raise argparse.ArgumentTypeError(
            f"invalid speed {text!r}: expected real, instant, or a number up to {_FASTEST}"
        )
    return speed
