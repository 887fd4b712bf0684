"""`antiphon worker`: executes the runs of a store. Any number of workers on any number of machines can share one.

`--app module:registry` names a `RunRegistry` with the kinds of runs it can execute. Without one it executes the kind `chat`: the
default model of the environment with plans and search, as in `antiphon chat`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import uniform

from antiphon.cli.options import add_store, whole_number
from antiphon.cli.terminal import write_error
from antiphon.errors import RunConfigError, StoreUnreachable
from antiphon.extensions import EXTENSIONS, load_part
from antiphon.history import HistoryStore
from antiphon.history.location import open_location, store_location
from antiphon.logs import configure_logs
from antiphon.providers.presets import PRESETS
from antiphon.runs import RunRegistry, Worker, load_run_registry
from antiphon.threads import STORES

logger = logging.getLogger("antiphon.runs")

_LONGEST_WAIT = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app", metavar="MODULE:NAME", help="the RunRegistry to execute (default: the kind `chat`)")
    add_store(parser)
    parser.add_argument(
        "--slots", type=whole_number(1, 10_000), default=8, metavar="N", help="concurrent runs (default 8)"
    )
    parser.add_argument(
        "--lease",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="lease duration in seconds (default 10)",
    )
    parser.add_argument(
        "--limit",
        type=_limit,
        action="append",
        default=[],
        metavar="PROVIDER=N",
        help="concurrent runs of a provider over all workers",
    )
    parser.add_argument(
        "--grace",
        type=_seconds_or_none,
        default=30.0,
        metavar="SECONDS",
        help="shutdown grace period in seconds (default 30)",
    )
    parser.add_argument("--once", action="store_true", help="execute waiting runs, then exit")
    parser.add_argument(
        "--ask", action="store_true", help="kind `chat`: require approval for every tool that is not read-only"
    )
    parser.add_argument("--name", default="", help="lease holder name (default: host:pid)")
    parser.add_argument("--log", choices=("json", "console"), default="console", help="log format")


def run(arguments: argparse.Namespace) -> int:
    """Work until stopped."""
    configure_logs(arguments.log, secrets=_secrets)
    asyncio.run(_work(arguments))
    return 0


async def _work(arguments: argparse.Namespace) -> None:
    place = store_location(arguments.store)
    async with _registry(arguments, place) as registry:
        with await _opened(place, is_patient=not arguments.once) as store:
            worker = Worker(
                store,
                registry,
                slots=arguments.slots,
                lease_seconds=arguments.lease,
                limits=dict(arguments.limit),
                holder=arguments.name,
                grace=arguments.grace,
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, worker.stop)
            await worker.run(once=arguments.once)


async def _opened(place: str | Path, *, is_patient: bool) -> HistoryStore:
    """The store. If its server is down, waits for it if `is_patient`, else raises."""
    wait, reported = 0.5, ""
    while True:
        try:
            return await STORES.run(open_location, place, create=True)
        except StoreUnreachable as error:
            if not is_patient:
                raise
            if str(error) != reported:
                reported = str(error)
                logger.warning("waiting for the store: %s", error)
        await asyncio.sleep(uniform(wait / 2, wait))
        wait = min(wait * 2, _LONGEST_WAIT)


@asynccontextmanager
async def _registry(arguments: argparse.Namespace, place: str | Path) -> AsyncIterator[RunRegistry]:
    if arguments.app is not None:
        if arguments.ask:
            raise RunConfigError(
                "--ask is for the kind `chat`; the tools of an --app say themselves what needs a person"
            )
        yield load_run_registry(arguments.app)
        return
    chat_runs = load_part(EXTENSIONS, "chat_runs", "the kind `chat`, which a worker without --app executes,").chat_runs
    async with chat_runs(place, os.environ, asks=arguments.ask) as (registry, summary):
        write_error(f"antiphon: {summary}")
        yield registry


def _secrets() -> Iterator[str]:
    """The values to redact in the log: the keys in the environment."""
    for preset in PRESETS.values():
        for variable in preset.secret_variables:
            if value := os.environ.get(variable, "").strip():
                yield value


def _seconds_or_none(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"invalid number of seconds {text!r}")
    return seconds


def _seconds(text: str) -> float:
    seconds = _seconds_or_none(text)
    if not seconds:
        raise argparse.ArgumentTypeError("must be more than 0 seconds")
    return seconds


def _limit(text: str) -> tuple[str, int]:
    provider, _, number = text.partition("=")
    if not provider or not number.isascii() or not number.isdigit():
        raise argparse.ArgumentTypeError(f"invalid limit {text!r}: expected provider=number, such as openai=4")
    return provider, int(number)
