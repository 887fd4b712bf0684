"""`antiphon convert`: bodies of one format in, bodies of another out, and what could not be carried on standard error."""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from antiphon.cli.formats.bodies import Body, add_format, add_input, process_bodies
from antiphon.cli.terminal import data_writer, write_error
from antiphon.repair import repair
from antiphon.wire import Loss, LossyTranslation, ModelOutputDelta, formats


def configure(parser: argparse.ArgumentParser) -> None:
    add_format(parser, "--from", "the format of the bodies")
    add_format(parser, "--to", "the format to write")
    parser.add_argument(
        "--kind",
        choices=("request", "response", "stream"),
        default="request",
        help="kind of the bodies (default: request)",
    )
    parser.add_argument("--strict", action="store_true", help="fail for a body that would lose something")
    parser.add_argument(
        "--losses", choices=("text", "json"), default="text", help="format of the reported losses (default: text)"
    )
    parser.add_argument("--no-repair", action="store_true", help="do not repair broken tool-call sequences")
    add_input(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.kind == "stream":
        return _convert_stream(arguments)
    if arguments.kind == "response":
        return int(process_bodies(arguments, lambda body: _response(arguments, body), "") > 0)
    return int(process_bodies(arguments, lambda body: _request(arguments, body), arguments.source) > 0)


def _request(arguments: argparse.Namespace, body: Body) -> bytes:
    request = formats[arguments.source].read_request(body.value)
    if not arguments.no_repair:
        request, actions = repair(request, arguments.to, request_id=body.where)
        for action in actions:
            write_error(f"{body.where}: repaired {action}")
    written, losses = formats[arguments.to].encode_request(request)
    return _checked(arguments, body.where, written, losses)


def _response(arguments: argparse.Namespace, body: Body) -> bytes:
    output = formats[arguments.source].read_response(body.value)
    written, losses = formats[arguments.to].encode_response(output)
    return _checked(arguments, body.where, written, losses)


def _checked(arguments: argparse.Namespace, where: str, written: bytes, losses: list[Loss]) -> bytes:
    _report_losses(arguments, where, losses)
    if arguments.strict and losses:
        raise LossyTranslation(losses)
    return written


def _convert_stream(arguments: argparse.Namespace) -> int:
    """A recorded or live stream, event by event as it comes."""
    reader = formats[arguments.source].stream_reader()
    writer = formats[arguments.to].stream_writer()
    out = data_writer()
    failed = False

    def write(deltas: list[ModelOutputDelta]) -> None:
        nonlocal failed
        for delta in deltas:
            failed |= type(delta).__name__ == "Failed"
            out(writer.write(delta))
        sys.stdout.flush()

    while data := os.read(sys.stdin.fileno(), 65536):
        write(reader.feed(data))
    write(reader.close())
    out(writer.close())
    _report_losses(arguments, "standard input", writer.losses)
    return int(failed or bool(arguments.strict and writer.losses))


def _report_losses(arguments: argparse.Namespace, where: str, losses: list[Loss]) -> None:
    for loss in losses:
        if arguments.losses == "json":
            write_error(
                msgspec.json.encode({"where": where, "path": loss.path, "what": loss.what, "why": loss.why}).decode()
            )
        else:
            write_error(f"{where}: lost {loss}")
