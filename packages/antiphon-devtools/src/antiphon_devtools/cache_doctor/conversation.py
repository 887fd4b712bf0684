"""The cache doctor for a stored conversation: the request of each answer, examined as its provider was sent it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from antiphon_devtools.cache_doctor.outline import outline_prompt
from antiphon_devtools.cache_doctor.report import CacheReport
from antiphon_devtools.cache_doctor.rules import cache_rules

_NO_SETTINGS = ModelRequest()


def examine_conversation(
    entries: Sequence[HistoryEntry],
    *,
    format_name: str = "",
    tools: tuple[ToolDefinition, ...] = (),
    settings: ModelRequest = _NO_SETTINGS,
    prices: PriceTable | None = None,
) -> Iterator[tuple[ModelOutputEntry, CacheReport]]:
    """Each answer with the report of its request. With `format_name`, all requests are written in that format.

    It takes a second for a few hundred answers, so run it in a thread.
    """
    doctor = CacheDoctor(is_one_conversation=True)
    requests = sent_requests(
        entries, format_name=format_name, tools=tools, settings=settings, settings_of=_with_breakpoints_as_sent
    )
    for answer, sent in requests:
        target, body = sent.target, decode_json(sent.data)
        outline = outline_prompt(body, target.format, model=target.model, keeps_text=True, count=count_text)
        at = answer.timestamp
        report = doctor.examine(outline, provider=target.provider, at=None if at is None else at.timestamp())
        # what another model counted is not about this body
        yield answer, report.with_usage(usage_of(answer) if target == answer.origin else None, prices, at)


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
