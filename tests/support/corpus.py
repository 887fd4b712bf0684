"""The recorded traffic: the sample in `tests/corpus`, and in longer runs the collection beside the project, where there is one.

`ANTIPHON_CORPUS` names another folder. The sample has each status, vendor, tag, block and event that was recorded
(`tools/sample_corpus.py`); the whole collection is for `make test-all`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from support.examples import is_everyday

SAMPLE = Path(__file__).parents[1] / "corpus"
_COLLECTION = Path(__file__).parents[3] / "shared" / "corpus"
_CHOSEN = SAMPLE if is_everyday() or not _COLLECTION.exists() else _COLLECTION
CORPUS = Path(os.environ.get("ANTIPHON_CORPUS") or _CHOSEN).absolute()

IS_SAMPLE = SAMPLE.absolute() == CORPUS

FILES = {
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
    "anthropic": "anthropic_messages",
    "gemini": "gemini",
}

_WIRES = {"chat": "openai-chat", "responses": "openai-responses", "anthropic": "anthropic", "gemini": "gemini"}


@cache
def recorded(name: str) -> list[dict[str, Any]]:
    """The recorded exchanges of a format (or of `openai_compatible`)."""
    if name == "gemini-interactions":
        from support.interactions_spec import carried_records

        return carried_records()
    path = CORPUS / "recorded" / f"{FILES.get(name, name)}.jsonl"
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def recorded_requests(name: str) -> Iterator[dict[str, Any]]:
    """The recorded exchanges of a format whose request is an object."""
    return (record for record in recorded(name) if isinstance(record["request"], dict))


def accepted_requests(name: str) -> Iterator[dict[str, Any]]:
    """Request bodies the real API accepted."""
    for record in recorded(name):
        if 200 <= record["status"] < 300 and isinstance(record["request"], dict):
            yield record["request"]


@cache
def client_captures(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Requests captured from real programs, each with the name of its file."""
    found = [
        (path.name, msgspec.json.decode(path.read_bytes())) for path in sorted((CORPUS / "clients").glob("*.json"))
    ]
    wires = [(file, capture, capture.get("wire", "")) for file, capture in found]
    return [(file, capture) for file, capture, wire in wires if _WIRES.get(wire, wire) == name]


def client_requests(name: str) -> Iterator[dict[str, Any]]:
    """Request bodies captured from real programs."""
    for _, capture in client_captures(name):
        if isinstance(capture.get("body"), dict):
            yield capture["body"]


def streams(name: str) -> Iterator[bytes]:
    """Recorded streams as raw bytes, where the recorder kept them raw."""
    for record in recorded(name):
        if isinstance(record["sse"], str) and 200 <= record["status"] < 300:
            yield record["sse"].encode()


def in_collection(count: int) -> int:
    """How many there are in the whole collection; of the sample no number is expected."""
    return 0 if IS_SAMPLE else count


def are_known(found: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether exactly the known cases were found; in the sample, some of them."""
    return all(found[name] <= known.get(name, set()) for name in found) if IS_SAMPLE else found == known
