"""`antiphon serve --record | --replay`: what tapes add to the command, for the gateway, which finds this by name."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from antiphon.cli.terminal import write, write_error
from antiphon_devtools.cassettes.matching import MatchRules
from antiphon_devtools.cassettes.matching import check_ignored_paths as check_ignored_paths
from antiphon_devtools.cassettes.tape import Tape

if TYPE_CHECKING:
    from antiphon_gateway.app import Gateway, TapeHandler


def start_recording(arguments: argparse.Namespace) -> Callable[[Gateway], TapeHandler]:
    """What records the requests of a gateway. A file that cannot be written is refused here, before the ports are open."""
    from antiphon_devtools.cassettes.recorder import recorder_to

    Tape(arguments.record, records=True).close()
    return recorder_to(arguments.record, arguments.redact or ())


def replay_tape(arguments: argparse.Namespace, overrides: dict[str, Any]) -> int:
    """Serve a tape until stopped."""
    from antiphon_devtools.cassettes.player import ReplayOptions, player_of, replay_config
    from antiphon_gateway.serve import serve

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
