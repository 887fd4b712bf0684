"""Caches keyed by what clients choose (ids, names) are bounded in bytes, not only in entries."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from antiphon.wire import FORMATS, formats
from antiphon.wire.capabilities import CapabilityOverride, CapabilityTable, capabilities_for, find_family
from antiphon.wire.tools.call_ids import IdMapper
from antiphon.wire.tools.names import NameMapper, safe_name

SIZE, COUNT = 200_000, 60
TABLE = CapabilityTable([CapabilityOverride(model="mine-*", like="gpt-5")])
ids, names = IdMapper(r"[a-zA-Z0-9_-]{1,64}"), NameMapper(r"[a-zA-Z0-9_-]{1,64}")

CACHED: dict[str, Callable[[str], object]] = {
    "id of a call": ids.to_wire,
    "name of a tool": names.to_wire,
    "stand-in for a name": lambda text: safe_name(text, 64),
    "model": lambda text: capabilities_for(text, "gemini"),
    "model family": find_family,
    "model in a table of one's own": lambda text: TABLE.capabilities_for(text, "anthropic"),
}


def long_texts() -> Iterator[str]:
    """Different texts of `SIZE` characters."""
    for number in range(COUNT):
        yield f"{number}-" + "x" * SIZE


def kept(work: Callable[[str], object]) -> int:
    """Bytes that are still there after `work` has seen many long texts."""
    work("short")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for text in long_texts():
            work(text)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("name", CACHED)
def test_long_keys_are_not_kept(name: str) -> None:
    assert kept(CACHED[name]) < 2 * SIZE


@pytest.mark.parametrize("target", FORMATS)
def test_a_conversion_keeps_no_long_ids(target: str) -> None:
    source = formats["openai-chat"]

    def convert(text: str) -> None:
        call = {"id": text, "type": "function", "function": {"name": text, "arguments": "{}"}}
        body = {
            "model": "m",
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": text, "content": "done"},
            ],
        }
        formats[target].write_request(source.read_request(body))

    assert kept(convert) < 5 * SIZE


def test_short_keys_are_mapped_the_same_each_time() -> None:
    texts = [f"id {number}" for number in range(10_000)]
    assert [ids.to_wire(text) for text in texts] == [ids.to_wire(text) for text in texts]
    assert len({ids.to_wire(text) for text in texts}) == len(texts)
