"""The request bodies of a stored conversation: what a provider was sent for each answer, or would be sent now.

A log has no bodies, only what they are made from. They are written again, as a call writes them, for the model that answered or
for the default model of a format. The tools of a conversation are not in its log: who has them passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from antiphon.context import LiveContext, LiveContextRenderer
from antiphon.errors import ConversationError, WireError
from antiphon.history import AgentHistory, AgentHistorySnapshot, HistoryEntry, ModelOutputEntry, Origin
from antiphon.providers.call import CallReport, ProviderCallOptions
from antiphon.providers.default_model import PREFERRED
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.presets import PRESETS
from antiphon.wire import formats
from antiphon.wire.request import ModelRequest, ToolDefinition

_FAKE_URL = "http://nowhere.invalid"
_NO_SETTINGS = ModelRequest()
_MODELS = dict(PREFERRED)
_TARGETS = {
    "openai-chat": Origin("openai", "openai-chat", _MODELS["openai"]),
    "openai-responses": Origin("openai-responses", "openai-responses", _MODELS["openai"]),
    "anthropic": Origin("anthropic", "anthropic", _MODELS["anthropic"]),
    "gemini": Origin("gemini", "gemini", _MODELS["gemini"]),
    "gemini-interactions": Origin("gemini-interactions", "gemini-interactions", _MODELS["gemini"]),
}
"""The model used for each format."""


class WrittenRequest(Struct, frozen=True):
    """A body for a target, with the losses and repairs of writing it, and the options it was written with."""

    target: Origin
    data: bytes
    report: CallReport
    wire_options: Mapping[str, Any]


def target_of(snapshot: AgentHistorySnapshot, format_name: str) -> Origin:
    """The model that answered last in that format, or the default for it."""
    for entry in reversed(snapshot.effective):
        if isinstance(entry, ModelOutputEntry) and entry.origin and entry.origin.format == format_name:
            return entry.origin
    return _TARGETS[format_name]


def write_body(
    context: LiveContext, target: Origin, tools: tuple[ToolDefinition, ...] = (), settings: ModelRequest = _NO_SETTINGS
) -> WrittenRequest:
    """What `target` is sent with that context. Raises `ConversationError` if it cannot be written."""
    preset = PRESETS.get(target.provider)
    if preset is None or preset.format != target.format:  # a host of one's own
        preset = PRESETS["compatible" if target.format == "openai-chat" else _TARGETS[target.format].provider]
    client = HttpProviderClient(preset, name=target.provider, base_url=preset.base_url or _FAKE_URL, keys=["shown"])
    options = ProviderCallOptions(model=target.model, tools=tools, settings=settings)
    try:
        request = client.prepare_call(context, options)
    except WireError as error:
        raise ConversationError(f"the request cannot be written: {error}") from error
    assert request is not None, "only a subclass has a call of its own"
    return WrittenRequest(target, b"".join(request.body), options.report, client.wire_options)


def sent_requests(
    entries: Sequence[HistoryEntry],
    *,
    format_name: str = "",
    tools: tuple[ToolDefinition, ...] = (),
    settings: ModelRequest = _NO_SETTINGS,
    settings_of: Callable[[ModelOutputEntry, ModelRequest], ModelRequest],
) -> Iterator[tuple[ModelOutputEntry, WrittenRequest]]:
    """Each output with its request, in order; also those that were rolled back. With `format_name`, all in that format.

    The request of a model without a format of its own (the offline one) is written as Chat Completions. `settings_of` gives the
    settings of one request, where the output shows that they were others.
    """
    renderer = LiveContextRenderer()  # one for all, as in a call: what was written for the one before is kept
    for snapshot, entry in AgentHistory.replay(entries):
        if not isinstance(entry, ModelOutputEntry):
            continue
        target = entry.origin
        if format_name or target is None or not target.model:
            target = target_of(snapshot, format_name or "openai-chat")
        elif target.format not in formats:
            target = structs.replace(target, format="openai-chat")
        given = settings_of(entry, settings) if target == entry.origin else settings
        yield entry, write_body(renderer.render(snapshot), target, tools, given)
