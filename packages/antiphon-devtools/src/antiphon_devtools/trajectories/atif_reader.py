"""ATIF documents as entries: the reverse of `atif.py`, for trajectories that other agents wrote.

A step becomes its messages, and those are read as every import is (`conversation/interchange.py`): the sequence is
repaired, and what a history has no place for is reported. Media that a document names by a path are not opened: a document from
somewhere else must not decide which files of this machine are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import structs

from antiphon.conversation.interchange import MessageSource, MessagesRead, read_dated_messages
from antiphon.errors import WireError
from antiphon.parts import Audio, Image, Part, Text, Thinking, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.wire.loss import Loss
from antiphon.wire.media import is_web_url
from antiphon.wire.request import Message

_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_KNOWN = frozenset(
    (
        *("step_id", "timestamp", "source", "model_name", "message", "reasoning_content", "tool_calls", "observation"),
        *("llm_call_count", "is_copied_context"),
    )
)
_NOT_KEPT = "a history has no place for it"


def read_atif(document: Mapping[str, Any]) -> MessagesRead:
    """The entries of a trajectory. Raises `WireError` if it is not an ATIF document."""
    version = document.get("schema_version")
    if not isinstance(version, str) or not version.startswith("ATIF-v1."):
        raise WireError(f"not an ATIF trajectory: schema_version is {version!r}; expected 'ATIF-v1.…'")
    steps = document.get("steps")
    if not isinstance(steps, list) or not steps:
        raise WireError("not an ATIF trajectory: steps must be a list with at least one step")
    agent = document.get("agent")
    reader = _StepReader(str(agent.get("model_name") or "") if isinstance(agent, dict) else "")
    for index, step in enumerate(steps):
        reader.add(step, f"steps[{index}]")
    for name in ("subagent_trajectories", "continued_trajectory_ref"):
        if document.get(name):
            reader.losses.append(Loss(name, name, "another trajectory; import it by itself"))
    read = read_dated_messages(reader.messages, "openai-chat")
    return structs.replace(read, losses=(*reader.losses, *read.losses))


class _StepReader:
    """Collects the messages of the steps. `model` is that of steps which do not name one."""

    def __init__(self, model: str) -> None:
        self.messages: list[tuple[Message, MessageSource]] = []
        self.losses: list[Loss] = []
        self._model = model

    def add(self, step: Any, path: str) -> None:
        if not isinstance(step, dict) or step.get("source") not in _ROLES:
            raise WireError(f"{path}: not a step; expected an object whose source is system, user or agent")
        parts: list[Part] = []
        if step.get("reasoning_content"):
            parts.append(Thinking(str(step["reasoning_content"])))
        parts += self._content(step.get("message"), f"{path}.message")
        names: dict[str, str] = {}
        for index, call in enumerate(step.get("tool_calls") or ()):
            read = self._call(call, f"{path}.tool_calls[{index}]")
            names[read.tool_call_id] = read.tool_name
            parts.append(read)
        source = MessageSource(path, _time(step.get("timestamp")), str(step.get("model_name") or self._model))
        if parts:
            self.messages.append((Message(_ROLES[step["source"]], tuple(parts)), source))
        self.messages += ((message, source) for message in self._observed(step, names, path))
        self.losses += (Loss(f"{path}.{name}", name, _NOT_KEPT) for name in step if name not in _KNOWN and step[name])

    def _call(self, call: Any, path: str) -> ToolCallRequest:
        if not isinstance(call, dict) or not isinstance(call.get("arguments"), dict):
            raise WireError(f"{path}: not a call; expected an object with tool_call_id, function_name and arguments")
        arguments = call["arguments"]
        raw = arguments.get("_raw") if len(arguments) == 1 else None  # text that was not JSON
        if call.get("extra"):
            self.losses.append(Loss(f"{path}.extra", "extra", _NOT_KEPT))
        return ToolCallRequest(
            str(call.get("function_name") or ""),
            str(call.get("tool_call_id") or ""),
            raw if isinstance(raw, str) else msgspec.json.encode(arguments).decode(),
        )

    def _observed(self, step: dict[str, Any], names: dict[str, str], path: str) -> Iterator[Message]:
        """The results of the step's calls, and after them what was observed besides."""
        observation = step.get("observation")
        results: list[ToolCallResult] = []
        others: list[Part] = []
        for index, result in enumerate(observation.get("results") or () if isinstance(observation, dict) else ()):
            if not isinstance(result, dict):
                raise WireError(f"{path}.observation.results[{index}]: not a result; expected an object")
            content = self._content(result.get("content"), f"{path}.observation.results[{index}].content")
            call_id = result.get("source_call_id")
            if call_id is None:
                others += content
                continue
            extra = result.get("extra")
            status = extra.get("status") if isinstance(extra, dict) else None
            known = status if status in ("failed", "skipped") else "success"
            results.append(
                ToolCallResult(names.get(str(call_id), ""), str(call_id), ToolExecutionStatus(known), tuple(content))
            )
        if results:
            yield Message("tool", tuple(results))
        if others:
            yield Message("user", tuple(others))

    def _content(self, content: Any, path: str) -> list[Any]:
        if content is None or isinstance(content, str):
            return [Text(content)] if content else []
        if not isinstance(content, list):
            raise WireError(f"{path}: expected text or a list of parts, not {type(content).__name__}")
        found = [self._part(part, f"{path}[{index}]") for index, part in enumerate(content)]
        return [part for part in found if part is not None]

    def _part(self, part: Any, path: str) -> Part | None:
        if not isinstance(part, dict):
            raise WireError(f"{path}: expected a part with a type")
        if part.get("type") == "text":
            return Text(str(part.get("text") or ""))
        source = part.get("source")
        if part.get("type") not in ("image", "audio") or not isinstance(source, dict):
            raise WireError(f"{path}: unknown part {part.get('type')!r}; expected text, image or audio")
        media_type, place = str(source.get("media_type") or ""), str(source.get("path") or "")
        if not is_web_url(place):
            self.losses.append(Loss(path, str(part["type"]), f"{place} is a file; files are not read"))
            return None
        return Image(media_type, url=place) if part["type"] == "image" else Audio(media_type, url=place)


def _time(value: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
