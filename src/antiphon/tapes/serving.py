"""`antiphon serve --record | --replay`: what tapes add to the command, for the gateway, which finds this by name."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from antiphon.cli.terminal import write, write_error
from antiphon.tapes.matching import MatchRules, check_ignored_paths
from antiphon.tapes.tape import Tape

if TYPE_CHECKING:
    from antiphon.gateway.app import Gateway, TapeHandler

_FASTEST = 1000


def configure_tapes(tape: argparse._ArgumentGroup) -> None:
    """Add the options that go with `--record` and `--replay`."""
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


def problem_with_tapes(arguments: argparse.Namespace) -> str:
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
        return check_ignored_paths(arguments.ignore)
    return ""


def start_recording(arguments: argparse.Namespace) -> Callable[[Gateway], TapeHandler]:
    """What records the requests of a gateway. A file that cannot be written is refused here, before the ports are open."""
    from antiphon.tapes.recorder import recorder_to

    Tape(arguments.record, records=True).close()
    return recorder_to(arguments.record, arguments.redact or ())


def replay_tape(arguments: argparse.Namespace, overrides: dict[str, Any]) -> int:
    """Serve a tape until stopped."""
    from antiphon.gateway.serve import serve
    from antiphon.tapes.player import ReplayOptions, player_of, replay_config

    config = replay_config(os.environ, overrides)
    tape = Tape(arguments.replay)
    try:
        count = sum(1 for _ in tape.requests())
    finally:
        tape.close()
    lines = [f"{arguments.replay}: {count} recorded {'exchange' if count == 1 else 'exchanges'}"]
    if arguments.check:
        write(lines)
        return 0
    write_error(f"antiphon: replaying {lines[0]}")
    rules = MatchRules(arguments.match or "body", tuple(arguments.ignore or ()))
    options = ReplayOptions(arguments.replay_speed or inf, arguments.replay_once, rules)
    asyncio.run(serve(config, overrides=overrides, tape=player_of(arguments.replay, options)))
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
