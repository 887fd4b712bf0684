"""Recorded conversations, compacted to a third: every fact that is left out is still shown, or one `recall` away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

import antiphon as ap
from antiphon.testing import probe_compaction
from support.corpus import CORPUS, IS_SAMPLE, SAMPLE

FORMATS = {
    "openai_chat": "openai-chat",
    "openai_compatible": "openai-chat",
    "openai_responses": "openai-responses",
    "anthropic_messages": "anthropic",
    "gemini": "gemini",
}
FOLDERS = {"sample": SAMPLE} if IS_SAMPLE else {"sample": SAMPLE, "collection": CORPUS}


def conversations(folder: str, file: str) -> Iterator[tuple[str, ap.AgentHistory]]:
    for line in (FOLDERS[folder] / "conversations" / f"{file}.jsonl").read_bytes().splitlines():
        record = msgspec.json.decode(line)
        yield record["id"], ap.AgentHistory.from_messages(record["request"], FORMATS[file])


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_fact_is_shown_or_one_recall_away(folder: str) -> None:
    facts = compacted = 0
    for file in FORMATS:
        for name, history in conversations(folder, file):
            tokens = ap.Conversation("offline/plain", history=history).tokens
            report = asyncio.run(probe_compaction(history, token_limit=max(1, tokens // 3), most=1_000))
            assert report.missing == (), name
            assert report.recalled == report.facts, name
            facts += report.facts
            compacted += report.tokens_after < report.tokens_before
    assert compacted > 10
    assert facts > (10 if folder == "sample" else 1_000)
