"""The cache doctor for a stored conversation: the request of each answer, examined as its provider was sent it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import structs

from antiphon.context.tokens import count_text
from antiphon.history import HistoryEntry, ModelOutputEntry
from antiphon.json_text import decode_json
from antiphon.prices.table import PriceTable
from antiphon.providers.sent_requests import sent_requests
from antiphon.wire import formats
from antiphon.wire.request import ModelRequest, PromptCaching, ToolDefinition
from antiphon_chat.shared.spending import usage_of
from antiphon_devtools.cache_doctor.doctor import CacheDoctor
from antiphon_devtools.cache_doctor.outline import OutlineMemo, outline_prompt
from antiphon_devtools.cache_doctor.report import CacheReport
from antiphon_devtools.cache_doctor.rules import cache_rules

_NO_SETTINGS = ModelRequest()
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
(_BRACKET,) = b"["
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def examine_conversation(
    entries: Sequence[HistoryEntry],
    *,
    format_name: str = "",
    tools: tuple[ToolDefinition, ...] = (),
    settings: ModelRequest = _NO_SETTINGS,
    prices: PriceTable | None = None,
) -> Iterator[tuple[ModelOutputEntry, CacheReport]]:
    """Each answer with the report of its request. With `format_name`, all requests are written in that format.

    It takes a second for a few hundred answers, so run it in a thread. A request is read as far as it is not the one before it.
    """
    doctor, bodies, memo = CacheDoctor(is_one_conversation=True), _BodyReader(), OutlineMemo()
    requests = sent_requests(
        entries, format_name=format_name, tools=tools, settings=settings, settings_of=_with_breakpoints_as_sent
    )
    for answer, sent in requests:
        target, body = sent.target, bodies.read(sent.data)
        outline = outline_prompt(body, target.format, model=target.model, keeps_text=True, count=count_text, memo=memo)
        at = answer.timestamp
        report = doctor.examine(outline, provider=target.provider, at=None if at is None else at.timestamp())
        # what another model counted is not about this body
        yield answer, report.with_usage(usage_of(answer) if target == answer.origin else None, prices, at)


class _BodyReader:
    """Reads one body after the other. What one has at the same place as the one before it is the same object."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[msgspec.Raw, Any]] = {}

    def read(self, data: bytes) -> dict[str, Any]:
        return {name: self._field(name, value) for name, value in _decode_fields(data).items()}

    def _field(self, name: str, value: msgspec.Raw) -> Any:
        if memoryview(value)[0] == _BRACKET:
            return [self._value((name, index), item) for index, item in enumerate(_decode_items(value))]
        return self._value((name, -1), value)

    def _value(self, place: tuple[str, int], value: msgspec.Raw) -> Any:
        known = self._known.get(place)
        if known is None or known[0] != value:
            known = self._known[place] = (
                value.copy(),
                decode_json(value),
            )  # a copy, because a part keeps all of its body
        return known[1]


def _with_breakpoints_as_sent(answer: ModelOutputEntry, settings: ModelRequest) -> ModelRequest:
    """The settings with the breakpoints that the request had. The log does not have them, but a provider that finds one in a
    prompt that is long enough reads or writes something."""
    usage, origin = usage_of(answer), answer.origin
    if origin is None or not formats[origin.format].spec.marked_messages:
        return settings
    if usage.cached_tokens or usage.cache_write_tokens:
        return structs.replace(settings, cache_prompt=PromptCaching("always"))
    if usage.prompt_tokens >= cache_rules(origin.format, origin.model).minimum:
        return structs.replace(settings, cache_prompt=PromptCaching("off"))
    return settings
