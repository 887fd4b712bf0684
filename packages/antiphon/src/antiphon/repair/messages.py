"""`repair_messages`: plain messages of any format, made legal for a format, in one line.

    client.messages.create(model=…, max_tokens=…, messages=repair_messages(messages, for_="anthropic"))

The format of the messages is recognised: `messages` of OpenAI Chat or Anthropic, `input` of Responses or Interactions, `contents`
of Gemini. Those of the wanted format come back as they are, as far as they are legal; others are translated first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, overload

from antiphon.errors import WireError
from antiphon.repair.action import Action
from antiphon.repair.chat_messages import fix_chat_messages
from antiphon.repair.repairer import log_actions, repair
from antiphon.wire import FORMATS, formats
from antiphon.wire.loss import Loss
from antiphon.wire.rules import Violation
from antiphon.wire.spec import detect_format, is_signed

logger = logging.getLogger("antiphon.repair")

Change: TypeAlias = Action | Loss | Violation
"""A repair, something that the format cannot express, or a broken rule that now holds."""

_INSTRUCTIONS = ("system", "instructions", "systemInstruction", "system_instruction")


@overload
def repair_messages(
    messages: Sequence[Mapping[str, Any]], for_: str = "openai-chat", *, report: list[Change] | None = None
) -> list[dict[str, Any]]: ...


@overload
def repair_messages(
    messages: Mapping[str, Any], for_: str = "openai-chat", *, report: list[Change] | None = None
) -> dict[str, Any]: ...


def repair_messages(
    messages: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    for_: str = "openai-chat",
    *,
    report: list[Change] | None = None,
) -> Any:
    """Messages that the API of `for_` accepts: every call is answered, in order, and nothing is deleted.

    `messages` is a list in any of the five formats, or a whole body; the same comes back. Legal messages of `for_` are returned
    as the same object. `report` gets what was changed: repairs, what the format cannot express, and broken rules that now hold.

    Raises `WireError` for what are not messages, and for a list with a system instruction where the format has it outside of the
    list: then give the body, `{"messages": […]}`.
    """
    if for_ not in formats:
        raise WireError(f"unknown format {for_!r}; expected one of: {', '.join(formats)}")
    given: Any = messages
    is_body = isinstance(given, Mapping)
    if not is_body and (isinstance(given, str | bytes) or not isinstance(given, Sequence)):
        raise WireError(f"expected a list of messages or a body, got {type(given).__name__}")
    source = (detect_format(dict(given)) or _only_key(given, for_)) if is_body else format_of_messages(given, for_)
    key = formats[source].spec.messages_key
    body = dict(given) if is_body else {key: list(given)}
    changes: list[Change] = []
    if source == for_:
        repaired = _repair_own(body, key, for_, changes)
        result = given if repaired is None else {**body, key: repaired} if is_body else repaired
    else:
        result = _translate(body, source, for_, changes)
        if not is_body:
            result = _only_messages(result, for_)
    log_actions([change for change in changes if isinstance(change, Action)])
    if report is not None:
        report += changes
    return result


def _repair_own(body: dict[str, Any], key: str, format_name: str, changes: list[Change]) -> list[Any] | None:
    """The repaired messages; None if they are legal, or cannot be read: then the API says what is wrong with them (law L5)."""
    wire, given = formats[format_name], body[key]
    actions: list[Action] = []
    try:
        if format_name == "openai-chat":
            fixed = fix_chat_messages(given, actions)
        else:
            request = wire.read_request(body)
            repaired, actions = repair(request, format_name, is_logged=False)
            fixed = given if repaired is request else list(wire.write_request(repaired).body[key])
        changes += actions
        violations = _violations({**body, key: fixed}, format_name)
        if violations:  # beyond their order: fields that are legal when they are written again
            rest = repair(wire.read_request({**body, key: fixed}), format_name, is_logged=False).request
            written, losses = wire.write_request(rest)
            left = _violations({**body, key: written[key]}, format_name)
            if len(left) < len(violations):
                fixed = list(written[key])
                changes += [*(each for each in violations if each not in left), *losses]
    except Exception:
        logger.exception("repair failed; forwarding the messages unchanged")
        return None
    return None if fixed is given else fixed


def _violations(body: dict[str, Any], format_name: str) -> list[Violation]:
    """What the API would refuse in the messages of a body."""
    key = formats[format_name].spec.messages_key
    found = formats[format_name].check_request(body)
    return [violation for violation in found if violation.path.startswith(key) and not violation.advisory]


def _translate(body: dict[str, Any], source: str, target: str, changes: list[Change]) -> dict[str, Any]:
    repaired, actions = repair(formats[source].read_request(body), target, is_logged=False)
    written, losses = formats[target].write_request(repaired)
    changes += [*actions, *losses]
    return written


def _only_messages(body: dict[str, Any], format_name: str) -> list[Any]:
    """The messages of a body, which has nothing else that says something."""
    key = formats[format_name].spec.messages_key
    if any(body.get(name) for name in _INSTRUCTIONS):
        raise WireError(
            f"{format_name} has the system instruction outside of its messages; give the body: "
            f'repair_messages({{"messages": messages}}, for_="{format_name}")'
        )
    return list(body[key])


def _only_key(body: Mapping[str, Any], wanted: str) -> str:
    """The format of a body that fits several: the wanted one if it does."""
    fitting = [name for name in formats if formats[name].spec.messages_key in body]
    if not fitting:
        raise WireError(f"not a body: expected one of the keys messages, input and contents, got {sorted(body)[:5]}")
    return wanted if wanted in fitting else fitting[0]


def format_of_messages(messages: Sequence[Any], wanted: str) -> str:
    """The format of a list of messages: by what only one format has, else the wanted one."""
    for message in messages:
        if not isinstance(message, Mapping):
            raise WireError(f"not a message: expected an object, got {type(message).__name__}")
    if wanted not in FORMATS and is_signed(wanted, messages):
        return wanted
    if any("parts" in message for message in messages):
        return "gemini"
    if any("role" not in message or message.get("type") == "message" for message in messages):
        return detect_format({"input": list(messages)}) or "openai-responses"
    if found := detect_format({"messages": list(messages)}):
        return found
    has_system = any(message["role"] == "system" for message in messages)
    return "openai-chat" if wanted.startswith("gemini") or (has_system and wanted == "anthropic") else wanted
