"""The verdict of a run without a mock provider: of a hosted API only the client's side can be seen.

The content of the answer is not known. What is judged: its shape, its end, its usage, that a forced call is made and fits the
tool's schema, that structured output fits its schema, that a limit of tokens is reported, and the shape of errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from antiphon.json_text import NOT_JSON
from antiphon_devtools.conform.case import ClientOnly
from antiphon_devtools.conform.conversation import Reply
from antiphon_devtools.conform.judge import Finding, Run, Verdict, judge_error, judge_shape


def judge_client_side(run: Run) -> tuple[Verdict, list[Finding]]:
    """The verdict, with its findings."""
    case, reply = run.case, run.reply
    wanted = case.client_only or ClientOnly()
    if wanted.expects == "error":
        found = judge_error(run)
    elif wanted.refusable and 400 <= reply.status < 500 and not reply.problems:
        return "refused", []
    elif reply.status != 200:
        got = f"{reply.status or 'no answer'}: {reply.error[:200]}"
        found = [Finding("answer", "an answer, with status 200", got)]
        found += [Finding("shape", f"an error in the shape of {run.client}", each) for each in reply.problems]
    else:
        found = judge_shape(run) or list(_content(run, wanted))
    return ("failed" if found else "passed"), found


def _content(run: Run, wanted: ClientOnly) -> Iterator[Finding]:
    reply, dialogue = run.reply, run.case.dialogue
    if not (reply.text or reply.calls or reply.finish == "length"):
        yield Finding("answer", "some text", "none")
    if dialogue.tool_choice == "none" and reply.calls:
        yield Finding("answer", "no call: tool_choice is none", f"a call of {reply.calls[0].name}")
    match wanted.expects:
        case "usage":
            yield from _usage(reply)
        case "call":
            yield from _forced_call(run)
        case "json":
            yield from _structured(reply, dialogue.schema or {})
        case "length" if reply.finish != "length":
            limit = dialogue.settings.max_tokens
            yield Finding("answer", f"the finish reason length after {limit} tokens", reply.finish or "none")
    if run.client != "gemini" and any(not call.id for call in reply.calls):
        yield Finding("answer", "an id for each call", "a call without one")


def _usage(reply: Reply) -> Iterator[Finding]:
    usage = reply.usage
    if usage is None:
        yield Finding("usage", "usage", "none")
        return
    for name, part in (("input", "cached"), ("output", "reasoning")):
        total, contained = getattr(usage, name), getattr(usage, part)
        if total <= 0:
            yield Finding("usage", f"more than 0 {name} tokens", str(total))
        elif contained > total:
            yield Finding("usage", f"at most {total} {part} tokens, because {name} includes them", str(contained))


def _forced_call(run: Run) -> Iterator[Finding]:
    dialogue, calls = run.case.dialogue, run.reply.calls
    is_named = dialogue.tool_choice in dialogue.tools
    allowed = [dialogue.tool_choice] if is_named else list(dialogue.tools)
    if not calls:
        yield Finding("call", f"a call of {' or '.join(allowed)}", f"no call, but the text {run.reply.text[:80]!r}")
    for call in calls:
        if call.name not in allowed:
            yield Finding("call", f"a call of {' or '.join(allowed)}", f"a call of {call.name}")
            continue
        for problem in _misfits(call.arguments, dialogue.tools[call.name], "arguments"):
            yield Finding("call", f"arguments that fit the schema of {call.name}", problem)


def _structured(reply: Reply, schema: dict[str, Any]) -> Iterator[Finding]:
    try:
        value = msgspec.json.decode(reply.text)
    except NOT_JSON:
        yield Finding("answer", "a text that is JSON", repr(reply.text[:120]))
        return
    for problem in _misfits(value, schema, "answer"):
        yield Finding("answer", "JSON that fits the schema", problem)


def _misfits(value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    """How a value differs from a schema."""
    from jsonschema_rs import validator_for

    for error in validator_for(schema).iter_errors(value):
        place = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in error.instance_path)
        yield f"{where}{place}: {error.message}"
