"""What is in the bytes of an answer: the words of both sides, as far as they came, and errors in the client's own shape."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.parts import ToolCallRequest, text_of
from antiphon.wire import formats
from gateway.rig import Got
from laws.gateway_simulation.fault_upstream import Attempt
from laws.gateway_simulation.raw_client import Answer
from laws.gateway_simulation.steps import Ask


def content_problems(step: Ask, got: Answer, mark: str, attempts: list[Attempt], expected_text: str) -> Iterator[str]:
    """Laws L3 and L6: what the client sent arrived, and what the upstream sent (`expected_text`) arrived."""
    for attempt in attempts:
        if mark.encode() not in attempt.body:
            yield f"L3: the words of the request did not reach {attempt.provider}"
    if got.status != 200 or not attempts:
        return
    outcome = attempts[-1].outcome
    answer = Got(got.status, got.headers, got.body)
    if outcome == "answered":
        if not got.is_whole:
            yield f"L6: the answer was cut: {len(got.body)} bytes, {got.trouble}"
            return
        try:
            output = answer.output(step.client, streams=step.streams)
        except Exception as error:
            yield f"L6: the answer cannot be read: {error!r}"[:300]
            return
        if text_of(output.parts) != expected_text:
            yield f"L6: the answer differs: {text_of(output.parts)[:80]!r}… ({len(text_of(output.parts))} characters)"
        calls = [part for part in output.parts if isinstance(part, ToolCallRequest)]
        if (len(calls) == 1) != (step.shape == "tools"):
            yield f"L6: {len(calls)} calls arrived"
        if step.client == "openai-chat" and step.streams and not step.has_usage and b'"choices":[]' in got.body:
            yield "L6: usage was sent to a client that did not ask for it"
    else:
        assembler = answer.assembler(step.client)
        if assembler.is_finished or assembler.error is None:
            yield f"L6: a stream that broke does not end with an error ({got.trouble or 'it ends as if it was whole'})"
        if not expected_text.startswith(text_of(assembler.output.parts)):
            yield "L6: a stream that broke says something else than the upstream"
    if step.shape == "broken" and "x-antiphon-repairs" not in got.headers:
        yield "L3: a repair is not reported"


def error_problems(got: Answer, client: str) -> Iterator[str]:
    """Whether a client of that format understands why it was refused."""
    try:
        error = formats[client].read_error(got.body, got.status)
    except Exception as trouble:
        yield f"errors: a {client} client cannot read its error: {trouble!r}"
        return
    if not error.message or "application/json" not in got.headers.get("content-type", ""):
        yield f"errors: not in the shape of {client}: {got.text[:200]}"
