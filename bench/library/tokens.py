"""Counting tokens: the conversation of 201 messages, entry by entry, against the tokenizer alone on the same text.

The second count is what a running conversation pays: an entry is counted once and remembered. LiteLLM counts the same messages in
a process of its own; its number and ours must agree within a tenth, because it adds a few tokens per message.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from antiphon.context import ContextGauge
from antiphon.context.tokens import CharacterEstimate, LocalTokenizer, TokenLedger
from antiphon.history import AgentHistory, HistoryEntry, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import Part, Text, ToolCallRequest, ToolCallResult
from antiphon.wire import formats
from antiphon_gateway.runtime.offline import context_from_request
from bench.library.imports import PEERS_PYTHON
from bench.library.loop import ROOT
from bench.measure.figures import Figure, Timing, compare, not_measured, run_alternately
from bench.workload.agent_request import chat_request

RUNS = 15
TOLERANCE = 0.1


class PeerReport(Struct, frozen=True):
    """The report of the peer's process."""

    version: str
    tokens: int
    seconds: list[float]


def history_of(messages: int) -> AgentHistory:
    """The conversation of the bench as a history."""
    request = formats["openai-chat"].read_request(chat_request(messages))
    history = AgentHistory()
    for entry in context_from_request(request):
        if isinstance(entry, HistoryEntry):
            history.append(entry)
    return history


def as_message(entry: HistoryEntry) -> ModelInputEntry | ModelOutputEntry | ToolCallResultsEntry:
    """An entry of that history, which has no other kinds."""
    assert isinstance(entry, ModelInputEntry | ModelOutputEntry | ToolCallResultsEntry)
    return entry


def counting(history: AgentHistory, *, again: bool = False) -> Callable[[], int]:
    """The work: all entries of a history, by a new ledger or by one that knows them."""
    known = ContextGauge(TokenLedger(LocalTokenizer()))
    if again:
        known.tokens(history.snapshot())
    return lambda: (known if again else ContextGauge(TokenLedger(LocalTokenizer()))).tokens(history.snapshot())


def figures() -> Iterator[Figure | str]:
    try:
        import splintr
    except ImportError:
        yield not_measured("counting tokens", "the extra `tokens` is not installed")
        return
    history = history_of(201)
    tokenizer = splintr.Tokenizer.from_pretrained("o200k_base")
    texts = ["\n".join(_texts(entry.content)) for entry in map(as_message, history.entries)]
    first, again = counting(history), counting(history, again=True)
    assert first() == again() == sum(len(tokenizer.encode_ordinary(text)) for text in texts)

    def floor() -> None:
        for text in texts:
            len(tokenizer.encode_ordinary(text))

    name, unit = "counting the tokens of 201 messages", "ms"
    yield compare(name, first, floor, runs=RUNS, scale=1e3, unit=unit, at_most=1.5, against="the tokenizer alone")
    yield compare(f"{name} again", again, first, runs=RUNS, scale=1e3, unit=unit, at_most=0.1, against="the first time")
    estimate = CharacterEstimate()
    yield compare(
        f"{name} by characters",
        lambda: [estimate.count(as_message(entry)) for entry in history.entries],
        floor,
        runs=RUNS,
        scale=1e3,
        unit=unit,
        against="the tokenizer alone",
    )
    yield compare_with_litellm(name, first)


def compare_with_litellm(name: str, ours: Callable[[], int]) -> Figure | str:
    if not PEERS_PYTHON.exists():
        return not_measured(f"{name}: litellm", "no .venv-peers; `make bench` creates it")
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        messages = [message for message in chat_request(201)["messages"] if message["role"] != "system"]
        (Path(folder) / "messages.json").write_bytes(msgspec.json.encode(messages))
        before = run_alternately({"ours": ours}, runs=RUNS)["ours"]
        command = [str(PEERS_PYTHON), "-m", "bench.library.tokens_peers", folder]
        try:
            run = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=150)
        except subprocess.TimeoutExpired:
            return not_measured(f"{name}: litellm", "its process took more than 150 seconds")
        second = run_alternately({"ours": ours}, runs=RUNS)["ours"]
    if run.returncode:
        return not_measured(f"{name}: litellm", run.stderr.decode(errors="replace").strip().rpartition("\n")[2][-200:])
    report = msgspec.json.decode(run.stdout.splitlines()[-1], type=PeerReport)
    if abs(report.tokens / ours() - 1) > TOLERANCE:
        return not_measured(f"{name}: litellm", f"it counts {report.tokens:,} tokens where we count {ours():,}")
    mine = min(before, second, key=lambda timing: timing.least).scaled(1e3)
    theirs = Timing.of(report.seconds).scaled(1e3)
    return Figure.of(name, mine, theirs, "ms", at_most=1.0, against=f"litellm {report.version}")


def _texts(parts: Sequence[Part]) -> list[str]:
    """The texts of an entry, as the counter joins them."""
    texts: list[str] = []
    for part in parts:
        match part:
            case ToolCallRequest():
                texts += (part.tool_name, part.arguments)
            case ToolCallResult():
                texts += _texts(part.content)
            case Text():
                texts.append(part.text)
    return texts
