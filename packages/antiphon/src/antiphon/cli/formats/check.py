"""`antiphon check`: which rules of an API its bodies break, one line per violation."""

from __future__ import annotations

import argparse

import msgspec

from antiphon.cli.formats.bodies import Body, add_format, add_input, process_bodies
from antiphon.cli.terminal import escape_control_chars
from antiphon.wire import formats


def configure(parser: argparse.ArgumentParser) -> None:
    add_format(parser, "--format", "the format of the bodies")
    parser.add_argument("--advisories", action="store_true", help="include rules of only some models or hosts")
    parser.add_argument("--json", action="store_true", help="print one JSON object per violation")
    add_input(parser)


def run(arguments: argparse.Namespace) -> int:
    broken = 0

    def check(body: Body) -> bytes | None:
        nonlocal broken
        violations = formats[arguments.format].check_request(body.value, advisories=arguments.advisories)
        broken += any(not violation.advisory for violation in violations)
        if arguments.json:
            lines = [msgspec.json.encode({"where": body.where, **msgspec.to_builtins(found)}) for found in violations]
        else:
            lines = [escape_control_chars(f"{body.where}: {found}").encode() for found in violations]
        return b"\n".join(lines) if lines else None

    failed = process_bodies(arguments, check, arguments.format)
    return int(broken + failed > 0)
