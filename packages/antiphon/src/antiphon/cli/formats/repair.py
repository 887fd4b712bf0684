"""`antiphon repair`: bodies with broken sequences in, legal ones out, and what was done on standard error."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Sequence

import msgspec

from antiphon.cli.formats.bodies import Body, add_format, add_input, process_bodies
from antiphon.cli.terminal import ellipsize, styled, write_error
from antiphon.parts import Part, Refusal, Text, ToolCallRequest, ToolCallResult
from antiphon.repair import repair
from antiphon.wire import Message, formats


def configure(parser: argparse.ArgumentParser) -> None:
    add_format(parser, "--format", "the format of the bodies")
    parser.add_argument("--explain", action="store_true", help="show what changed as a diff of the messages")
    add_input(parser)


def run(arguments: argparse.Namespace) -> int:
    wire = formats[arguments.format]

    def mend(body: Body) -> bytes:
        request = wire.read_request(body.value)
        repaired, actions = repair(request, arguments.format, request_id=body.where)
        for action in actions:
            write_error(f"{body.where}: {action}")
        if repaired is request:
            return msgspec.json.encode(body.value)
        if arguments.explain:
            for line in explained(request.messages, repaired.messages):
                write_error(line)
        written, losses = wire.encode_request(repaired)
        for loss in losses:
            write_error(f"{body.where}: lost {loss}")
        return written

    return int(process_bodies(arguments, mend, arguments.format) > 0)


def explained(before: Sequence[Message], after: Sequence[Message]) -> Iterator[str]:
    """The messages before and after, a line each, as a diff."""
    for line in difflib.unified_diff(list(_lines(before)), list(_lines(after)), "before", "after", lineterm="", n=2):
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        yield styled(line, colour) if colour else line


def _lines(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        yield f"{message.role:<10} " + " · ".join(ellipsize(_describe(part), 60) for part in message.parts)


def _describe(part: Part) -> str:
    match part:
        case Text() | Refusal():
            return part.text
        case ToolCallRequest():
            return f"→ {part.tool_name}({part.tool_call_id}) {part.arguments}"
        case ToolCallResult():
            return f"← ({part.tool_call_id}) " + " ".join(_describe(inner) for inner in part.content)
        case _:
            return f"({type(part).__name__.lower()})"
