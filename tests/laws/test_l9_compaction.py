"""L9 with compactions: an append changes no byte rendered before the first entry that it names, in every format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.context import LiveContext, LiveContextRenderer, render_live_context
from antiphon.context.view import SegmentText
from antiphon.history import (
    AgentHistory,
    CompactionEntry,
    ContextEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    ShortenedResultsEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.rendering import render_call
from antiphon.text import common_prefix
from antiphon.wire import FORMATS, formats
from antiphon.wire.request import ToolDefinition
from support.examples import scaled

MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
    "gemini-interactions": "gemini-2.5-flash",
}

OPTIONS = ProviderCallOptions(tools=(ToolDefinition("look", "Look."),))

Append = Callable[[AgentHistory], None]


def message(text: str) -> Append:
    return lambda history: void(history.append(ModelInputEntry.of(text)))


def played(sizes: list[int], after: int) -> Append:
    """A round: an answer with calls, and their results, with a message between them if `after` says so."""

    def append(history: AgentHistory) -> None:
        calls = [ToolCallRequest("look", f"call_{history.version}_{index}") for index in range(len(sizes))]
        history.append(ModelOutputEntry.of("I look.", *calls))
        if not after:
            history.set_memory_notebook("")
        results = [ToolCallResult.of(call, "fact " * size) for call, size in zip(calls, sizes, strict=True)]
        history.append(ToolCallResultsEntry(tuple(results)))

    return append


def compacted(summary: str, first: float, length: float, kept: float) -> Append:
    def append(history: AgentHistory) -> None:
        since, up_to = span(history, first, length)
        history.append(CompactionEntry(summary, up_to, since, (since + int((up_to - since) * kept),)))

    return append


def shortened(first: float, length: float, max_chars: int) -> Append:
    def append(history: AgentHistory) -> None:
        since, up_to = span(history, first, length)
        history.append(ShortenedResultsEntry(since, up_to, max_chars))

    return append


def span(history: AgentHistory, first: float, length: float) -> tuple[int, int]:
    since = int(history.version * first)
    return since, since + int((history.version - since) * length)


def void(_: object) -> None:
    return None


shares = st.floats(0, 1)
steps: st.SearchStrategy[list[Append]] = st.lists(
    st.one_of(
        st.builds(message, st.sampled_from(["Go on.", "And then?"])),
        st.builds(played, st.lists(st.sampled_from([1, 40, 400]), min_size=1, max_size=3), st.integers(0, 3)),
        st.builds(played, st.lists(st.sampled_from([1, 40, 400]), min_size=1, max_size=3), st.integers(0, 3)),
        st.builds(compacted, st.sampled_from(["They looked.", ""]), shares, shares, shares),
        st.builds(shortened, shares, shares, st.sampled_from([0, 0, 50, 500])),
    ),
    max_size=20,
)


def before(context: list[ContextEntry], number: int) -> list[ContextEntry]:
    """What is shown before the first entry with at least this number."""
    found: list[ContextEntry] = []
    for entry in context:
        shown: Any = entry.segment.since if isinstance(entry, SegmentText) else getattr(entry, "sequence_number", 0)
        if shown >= number:
            break
        found.append(entry)
    while found and found[-1].tool_calls:  # the range begins inside of a round
        found.pop()
    return found


@given(steps)
@settings(max_examples=scaled(40), deadline=None)
def test_an_append_changes_nothing_before_the_first_entry_it_names(appends: list[Append]) -> None:
    history, renderer = AgentHistory(), LiveContextRenderer()
    history.set_system_instruction("Be thorough.")
    earlier: list[ContextEntry] = list(renderer.render(history.snapshot()))
    for append in [message("Visit all depots."), *appends]:
        version = history.version
        append(history)
        named = min(
            [
                entry.since if isinstance(entry, CompactionEntry | ShortenedResultsEntry) else entry.sequence_number
                for entry in history.snapshot().since(version)
            ]
        )
        now = renderer.render(history.snapshot())
        whole = render_live_context(history.snapshot())
        assert list(now) == list(whole), "step by step, or at once: the same"
        assert now.left_out == whole.left_out
        stays = before(earlier, named)
        assert [*now[: len(stays)]] == stays
        calls = [call.tool_call_id for entry in now for call in entry.tool_calls]
        results = [part.tool_call_id for entry in now for part in entry.content if isinstance(part, ToolCallResult)]
        assert calls == results, "no call is separated from its result"
        earlier = list(now)


@pytest.mark.parametrize("wire_format", FORMATS)
@given(appends=steps)
@example(appends=[*[played([1], 0)] * 4, shortened(0.25, 0.125, 0)])  # nothing is long enough to be shortened
@settings(max_examples=scaled(15), deadline=None)
def test_the_same_bytes_are_sent(wire_format: str, appends: list[Append]) -> None:
    history, renderer = AgentHistory(), LiveContextRenderer()
    target = Origin("provider", wire_format, MODELS[wire_format])
    history.append(ModelInputEntry.of("Visit all depots."))
    body, context = b"", list[ContextEntry]()
    for append in appends:
        version = history.version
        append(history)
        news = history.snapshot().since(version)
        named = min(getattr(entry, "since", entry.sequence_number) for entry in news)
        now = renderer.render(history.snapshot())
        rendered = render_call(now, OPTIONS, target)
        assert not rendered.repairs
        sent = listed_messages(wire_format, rendered.request)
        whole = render_call(LiveContext(now, ends=now.ends), OPTIONS, target)
        joined, written = (msgspec.json.decode(b"".join(one.chunks)) for one in (rendered, whole))
        assert joined == written, "a body of kept bytes is the body written whole"
        if context and (stays := before(context, named)):
            alone = listed_messages(wire_format, render_call(stays, OPTIONS, target).request)
            settled = msgspec.json.encode(alone[:-1])[:-1]  # the last message may grow by what follows it
            encoded = msgspec.json.encode(sent)
            assert common_prefix(encoded, body) >= len(settled)
            assert encoded.startswith(settled)
        body, context = msgspec.json.encode(sent), list(now)


def listed_messages(wire_format: str, request: Any) -> list[Any]:
    """The list of messages of a body."""
    written = formats[wire_format].write_request(msgspec.structs.replace(request, cache_prompt=None)).body
    return next(written[key] for key in ("messages", "input", "contents") if key in written)
