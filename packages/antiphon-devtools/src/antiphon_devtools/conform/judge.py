"""The verdict of one run: what arrived at the provider and what came back, compared with the case.

accepted   the provider's API accepts the request (rules/)
lost       everything that the client sent is in it
shape      the answer is valid in the client's format
answer     everything that the provider answered is in it
usage, error, stream, cancel   as named
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from antiphon_devtools.conform.bodies import canonical
from antiphon_devtools.conform.case import Case
from antiphon_devtools.conform.conversation import Call, Contents, Dialogue, Reply, Usage, Violation
from antiphon_devtools.conform.formats import FORMATS
from antiphon_devtools.conform.rules import sources
from antiphon_devtools.conform.upstream import ReceivedRequest

Verdict = Literal["passed", "refused", "failed", "not applicable"]
_OPENAI = ("openai-chat", "openai-responses")


class Finding(Struct, frozen=True):
    """One thing that is wrong: the check, what was expected, and what was there."""

    check: str
    expected: str
    got: str
    rule: str = ""
    source: str = ""


class Run(Struct, frozen=True):
    """One request through the gateway, as both ends saw it."""

    case: Case
    client: str
    upstream: str
    reply: Reply
    arrived: list[ReceivedRequest]
    own_violations: list[Violation]
    """Rules of the client's own API that its request breaks."""
    is_cut: bool = False
    other_paths: list[str] = []


def judge(run: Run) -> tuple[Verdict, list[Finding]]:
    """The verdict of a run that ended in time, with its findings."""
    case, reply = run.case, run.reply
    if run.is_cut or case.fault.error_event_after is not None:
        found = _judge_cut(run)
    elif case.statuses:
        found = judge_error(run)
    elif _is_right_refusal(run):
        return "refused", []
    else:
        found = _judge_upstream(run)
        found += _judge_answer(run) if reply.status == 200 else _judge_unexpected_error(run)
    return ("failed" if found else "passed"), found


def _is_right_refusal(run: Run) -> bool:
    may_refuse = run.own_violations or run.case.refusable
    return bool(may_refuse) and 400 <= run.reply.status < 500 and not run.reply.problems


def _judge_unexpected_error(run: Run) -> list[Finding]:
    if not run.arrived or any(each.violations for each in run.arrived):
        return []  # it is reported already
    where = f"; the gateway asked for {run.other_paths[0]}" if run.other_paths else ""
    got = f"{run.reply.status or 'no answer'}: {run.reply.error[:200]}{where}"
    return [Finding("answer", "the answer of the provider, with status 200", got)]


def _judge_upstream(run: Run) -> list[Finding]:
    found = [_violation(each) for arrived in run.arrived for each in arrived.violations[:2]]
    if found:
        return list(dict.fromkeys(found))
    if not run.arrived:
        got = f"none arrived; the client got {run.reply.status or 'no answer'}: {run.reply.error[:160]}"
        return [Finding("accepted", f"a request at the {run.upstream} provider", got)]
    last = run.arrived[-1]
    if last.format != run.upstream:
        return [Finding("accepted", f"a request at the {run.upstream} provider", f"one at {last.format}")]
    contents = FORMATS[run.upstream].read_request(last.body)
    return [Finding("lost", expected, got) for expected, got in _losses(run, contents, last.body)]


def _violation(broken: Violation) -> Finding:
    known = sources().get(broken.rule)
    rule, source = (known.rule, known.source) if known is not None else (broken.rule, "")
    return Finding("accepted", rule, f"{broken.where}: {broken.message}", broken.rule, source)


def _losses(run: Run, contents: Contents, body: Any) -> list[tuple[str, str]]:
    """What of the client's request is not in what arrived: what was expected, and what was there."""
    case, dialogue = run.case, run.case.dialogue
    if case.body_texts:
        dialogue = msgspec.structs.replace(dialogue, turns=())
    text = "\n".join(contents.texts)
    losses = [(f"the text {wanted!r}", "not found") for wanted in _texts(case, dialogue) if not _is_in(wanted, text)]
    losses += _lost_calls(dialogue, contents)
    losses += _lost_results(run, dialogue, contents)
    images = sum(turn.image for turn in dialogue.turns)
    if len(contents.images) < images:
        losses.append((f"{images} image(s)", f"{len(contents.images)}"))
    losses += _lost_tools(dialogue, contents)
    losses += _lost_settings(run, contents)
    if dialogue.schema is not None:
        written = msgspec.json.encode(contents.schema if contents.schema is not None else body).decode()
        losses += [
            (f"the property {name!r} of the schema", "not found")
            for name in dialogue.schema["properties"]
            if f'"{name}"' not in written and f'\\"{name}\\"' not in written
        ]
    return losses + _wrong_signatures(run, contents, body)


def _is_in(wanted: str, text: str) -> bool:
    """Whether a text arrived; JSON may arrive as another writing of the same value (Gemini takes results as objects)."""
    return wanted in text or canonical(wanted) in text


def _texts(case: Case, dialogue: Dialogue) -> list[str]:
    texts = [dialogue.system, *case.body_texts]
    for turn in dialogue.turns:
        texts += [turn.user or "", turn.assistant or "", *(result.text for result in turn.results)]
    return [text for text in texts if text.strip()]


def _lost_calls(dialogue: Dialogue, contents: Contents) -> list[tuple[str, str]]:
    there = [(call.name, call.arguments) for call in contents.calls]
    losses = []
    for call in (call for turn in dialogue.turns for call in turn.calls):
        if (call.name, call.arguments) in there:
            there.remove((call.name, call.arguments))
        else:
            losses.append((f"the call {_shown(call)}", f"left over: {there}" if there else "not found"))
    return losses


def _lost_results(run: Run, dialogue: Dialogue, contents: Contents) -> list[tuple[str, str]]:
    """Results that are attached to another call than in the request. Only valid requests say which call is meant."""
    if run.own_violations:
        return []
    calls = [call for turn in dialogue.turns for call in turn.calls]
    losses = []
    for result in (result for turn in dialogue.turns for result in turn.results):
        meant = [call.name for call in calls if call.id == result.id]
        if not result.text or not meant:
            continue
        found = [each for each in contents.results if _is_in(result.text, each.text)]
        names = {each.name or _name_of(each.id, contents) for each in found}
        if not found:
            losses.append((f"a result with the text {result.text!r}", "not found among the results"))
        elif not names & set(meant):
            losses.append((f"the result {result.text!r} for {meant[0]}", f"it answers {', '.join(sorted(names))}"))
    return losses


def _name_of(call_id: str, contents: Contents) -> str:
    return next((call.name for call in contents.calls if call.id == call_id), "no call")


def _lost_tools(dialogue: Dialogue, contents: Contents) -> list[tuple[str, str]]:
    losses = []
    for name, schema in dialogue.tools.items():
        if name not in contents.tools:
            losses.append((f"the tool {name}", f"tools: {', '.join(contents.tools) or 'none'}"))
            continue
        written = msgspec.json.encode(contents.tools[name]).decode()
        losses += [
            (f"the parameter {each!r} of the tool {name}", "not in its schema")
            for each in schema["properties"]
            if f'"{each}"' not in written
        ]
    wanted = dialogue.tool_choice
    if wanted and contents.tool_choice != wanted and not (wanted == "auto" and not contents.tool_choice):
        if wanted == "none" and not contents.tools:
            return []  # without tools, none can be chosen
        losses.append((f"tool_choice {wanted}", contents.tool_choice or "not set"))
    return losses


def _lost_settings(run: Run, contents: Contents) -> list[tuple[str, str]]:
    losses = []
    for name, value in run.case.settings.given().items():
        there = contents.settings.get(name)
        if name in run.case.not_sent:
            continue
        if name == "stop":
            there = (there,) if isinstance(there, str) else tuple(there or ())
        if there != value:
            losses.append((f"{name} {value}", "not set" if there in (None, ()) else str(there)))
    return losses


def _wrong_signatures(run: Run, contents: Contents, body: Any) -> list[tuple[str, str]]:
    signatures = [turn.signature for turn in run.case.turns if turn.signature]
    if not signatures:
        return []
    if run.case.native == run.upstream:
        return [
            ("the signature as it was received", "not found") for each in signatures if each not in contents.signatures
        ]
    written = msgspec.json.encode(body).decode()
    return [
        (f"no signature of another API in a request to {run.upstream}", "the signature was sent")
        for each in signatures
        if each in written
    ]


def _shown(call: Call) -> str:
    return f"{call.name}({msgspec.json.encode(call.arguments).decode()})"


def judge_shape(run: Run) -> list[Finding]:
    """Whether an answer is valid in the client's format, and complete."""
    reply = run.reply
    found = [Finding("shape", f"a valid {run.client} answer", problem) for problem in dict.fromkeys(reply.problems)]
    if reply.error or not reply.is_complete:
        found.append(Finding("answer", "a complete answer", reply.error or "it has no proper end"))
    return found


def _judge_answer(run: Run) -> list[Finding]:
    reply, answer = run.reply, run.case.answer
    found = judge_shape(run)
    if reply.error or not reply.is_complete:
        return found
    if reply.text != answer.text:
        found.append(Finding("answer", f"the text {answer.text!r}", repr(reply.text)))
    there = [(call.name, call.arguments) for call in reply.calls]
    wanted = [(call.name, call.arguments) for call in answer.calls]
    if there != wanted:
        found.append(Finding("answer", f"the calls {wanted}", str(there)))
    ids = [call.id for call in reply.calls]
    if run.client != "gemini" and len(set(ids)) != len(ids):
        found.append(Finding("answer", "an id of its own for each call", str(ids)))
    finish = "tool_calls" if answer.calls else answer.finish
    if run.case.group == "answers" and reply.finish != finish:
        found.append(Finding("answer", f"the finish reason {finish}", reply.finish or "none"))
    # One wrong figure would otherwise fail every case: usage is judged where a case names it.
    return found + (_judge_usage(run, reply.usage, answer.usage) if answer.usage != Usage() else [])


def _judge_usage(run: Run, there: Usage | None, wanted: Usage) -> list[Finding]:
    if there is None:
        return [Finding("usage", "usage", "none")]
    names = ["input", "output", "cached"]
    if run.client != "anthropic" and run.upstream != "anthropic":
        names.append("reasoning")
    return [
        Finding("usage", f"{name} tokens: {getattr(wanted, name)}", str(getattr(there, name)))
        for name in names
        if getattr(wanted, name) != getattr(there, name)
    ]


def judge_error(run: Run) -> list[Finding]:
    """Whether the client got one of the expected statuses, with an error in its own shape."""
    reply, allowed = run.reply, run.case.statuses
    wanted = " or ".join(map(str, allowed))
    if reply.status == 200 and reply.error and not reply.is_complete:
        return []  # an error event in a stream that had begun
    if reply.status not in allowed:
        text = f"{reply.status or 'no answer'}: {(reply.error or reply.text or reply.raw)[:160]}"
        return [Finding("error", f"an error with status {wanted}", text)]
    return [Finding("shape", f"an error in the shape of {run.client}", each) for each in reply.problems]


def _judge_cut(run: Run) -> list[Finding]:
    reply, answer = run.reply, run.case.answer
    if reply.status >= 400:
        return [Finding("shape", f"an error in the shape of {run.client}", each) for each in reply.problems]
    if reply.is_complete:
        return [Finding("stream", "an error or a broken connection", "an answer that looks complete")]
    if not answer.text.startswith(reply.text):
        return [Finding("stream", f"the beginning of {answer.text!r}", repr(reply.text))]
    return []
