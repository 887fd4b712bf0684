"""Entries for the page: the stored JSON with its position; large media by reference, as they are stored."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.context import LiveContext, render_live_context
from antiphon.conversation.turn import EntryPosition
from antiphon.extensions import EXTENSIONS, load_part
from antiphon.history import (
    AgentHistory,
    ApprovalRequestedEntry,
    CompactionEntry,
    HistoryEntry,
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.history.attachments import INLINE_LIMIT, digest, extract_media
from antiphon.history.transcript import entry_lines
from antiphon.json_text import decode_json
from antiphon.parts import Audio, Document, Image, Refusal, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.prices.table import PriceTable
from antiphon.providers.sent_requests import target_of, write_body
from antiphon.text import one_line, shorten
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import ModelRequest, ToolDefinition
from antiphon_chat.shared.in_a_line import call_words
from antiphon_chat.shared.markdown import blocks_json
from antiphon_chat.shared.spending import cost_of_entry

_EXCERPT = 200


def entry_json(
    entry: HistoryEntry,
    place: EntryPosition,
    *,
    is_effective: bool = True,
    prices: PriceTable | None = None,
    shortened: int | None = None,
) -> bytes:
    """The entry as JSON, with its cost by `prices`, and how many results it shortens, if it does that."""
    facts: dict[str, Any] = {"turn": place.turn, "round": place.round, "effective": is_effective}
    if shortened is not None:
        facts["shortened"] = shortened
    blocks = b""
    if isinstance(entry, _DRAWN):
        blocks = b',"blocks":[%s]' % b",".join(_blocks(entry))
    if isinstance(entry, ModelOutputEntry):  # None if its price is not known
        cost = cost_of_entry(entry, prices)
        facts["cost"] = None if cost is None else str(cost)
    return extract_media(entry)[0].rstrip()[:-1] + blocks + b"," + msgspec.json.encode(facts)[1:]


_DRAWN = (ModelOutputEntry, CompactionEntry)
_WRITTEN = (Text, Thinking, Refusal)


def _blocks(entry: ModelOutputEntry | CompactionEntry) -> list[bytes]:
    """The text of each part as blocks of Markdown, `null` for other parts; of a compaction, its summary."""
    if isinstance(entry, CompactionEntry):
        return [blocks_json(entry.summary)]
    return [blocks_json(part.text) if isinstance(part, _WRITTEN) else b"null" for part in entry.content]


def draw_ahead(entries: Iterable[HistoryEntry]) -> None:
    """Parse the Markdown of entries before their JSON is written; call it in a thread, because a long log has much."""
    for entry in entries:
        if isinstance(entry, _DRAWN):
            _blocks(entry)


def words_of_calls(entries: Iterable[HistoryEntry]) -> dict[str, str]:
    """Each call of a log in a few words, by its id."""
    outputs = (entry for entry in entries if isinstance(entry, ModelOutputEntry))
    calls = (part for output in outputs for part in output.content if isinstance(part, ToolCallRequest))
    return {call.tool_call_id: call_words(call) for call in calls}


def _excerpt_lines(entry: HistoryEntry, calls: Mapping[str, str]) -> Iterable[str]:
    """The text of an entry for its row; a call is named by what it does, not by its id."""
    match entry:
        case ApprovalRequestedEntry():
            named = ", ".join(calls.get(call, call) for call in entry.tool_call_ids)
        case HumanDecisionEntry():
            named = f"{entry.decision}: {calls.get(entry.tool_call_id, entry.tool_call_id)}"
        case ToolCallStartedEntry():
            return [calls.get(entry.tool_call_id, entry.tool_name)]
        case _:
            return entry_lines(entry)
    return [f"{named}: {entry.reason}" if entry.reason else named]


def entry_row(
    entry: HistoryEntry, place: EntryPosition, calls: Mapping[str, str], *, is_effective: bool, tokens: int | None
) -> dict[str, Any]:
    """The entry as a row of the timeline; `calls` are the calls of the log in words."""
    metadata = entry.metadata
    text = one_line(" ".join(_excerpt_lines(entry, calls))[: _EXCERPT * 4])
    return {
        "sequence_number": entry.sequence_number,
        "kind": entry.kind,
        "timestamp": entry.timestamp,
        "turn": place.turn,
        "round": place.round,
        "effective": is_effective,
        "seconds": metadata.duration if metadata else None,
        "tokens": tokens,
        "excerpt": shorten(text, _EXCERPT),
    }


def media_in(entries: Iterable[HistoryEntry], name: str) -> tuple[str, bytes] | None:
    """The media type and the bytes of the attachment of that name, if an entry has it."""
    for entry in entries:
        for part in _parts(entry):
            if (
                isinstance(part, Image | Audio | Document)
                and len(part.data) > INLINE_LIMIT
                and digest(part.data) == name
            ):
                return part.media_type, b64decode(part.data)
    return None


def _parts(entry: HistoryEntry) -> Iterable[Any]:
    if isinstance(entry, ModelInputEntry | ModelOutputEntry):
        return entry.content
    results: tuple[ToolCallResult, ...] = ()
    if isinstance(entry, ToolCallResultsEntry):
        results = entry.results
    elif isinstance(entry, ToolCallFinishedEntry):
        results = (entry.result,)
    return (part for result in results for part in result.content)


MAX_VALUE_CHARS = 64 * 1024
_SHOWN = 400


def provider_bodies(
    entries: Sequence[HistoryEntry], tools: tuple[ToolDefinition, ...], settings: ModelRequest
) -> dict[str, Any]:
    """The request body for each provider after these entries, by format. Run it in a thread: a long conversation is slow."""
    snapshot = AgentHistory(entries).snapshot()
    context = render_live_context(snapshot)
    return {name: _view(context, target_of(snapshot, name), tools, settings) for name in FORMATS}


def _view(
    context: LiveContext, target: Origin, tools: tuple[ToolDefinition, ...], settings: ModelRequest
) -> dict[str, Any]:
    written = write_body(context, target, tools, settings)
    violations: Sequence[object] = ()
    try:
        body = decode_json(written.data)
        violations = formats[target.format].check_request(body, advisories=True, **written.wire_options)
        body = _shortened(body)
    except RecursionError:  # nested too deeply to be looked at
        body = msgspec.Raw(written.data)
    return {
        "model": target.name,
        "body": body,
        "bytes": len(written.data),
        "losses": written.report.losses,
        "repairs": written.report.repairs,
        "violations": violations,
    }


def cache_findings(
    entries: Sequence[HistoryEntry], tools: tuple[ToolDefinition, ...], settings: ModelRequest
) -> list[dict[str, Any]]:
    """What the cache doctor finds about the request of each answer of a real model. Run it in a thread."""
    findings = []
    doctor = load_part(EXTENSIONS, "cache_doctor", "what broke the prompt cache")
    for answer, report in doctor.examine_conversation(entries, tools=tools, settings=settings):
        if answer.origin is None or answer.origin.format not in FORMATS:  # the offline model has no cache
            continue
        cost = report.lost_cost
        findings.append(
            {
                "sequence_number": answer.sequence_number,
                "verdict": report.verdict,
                "prompt_tokens": report.prompt_tokens,
                "predicted_tokens": report.predicted_tokens,
                "cached_tokens": report.cached_tokens,
                "lost_tokens": report.lost_tokens,
                "lost_usd": None if cost is None else f"{cost.normalize():f}",
                "minimum": report.rules.minimum,
                "difference": report.difference,
            }
        )
    return findings


def _shortened(value: Any) -> Any:
    """The value with only the beginning of its longest strings."""
    if isinstance(value, str):
        return value if len(value) <= MAX_VALUE_CHARS else f"{value[:_SHOWN]}… ({len(value):,} characters)"
    if isinstance(value, list):
        return [_shortened(one) for one in value]
    if isinstance(value, dict):
        return {name: _shortened(one) for name, one in value.items()}
    return value
