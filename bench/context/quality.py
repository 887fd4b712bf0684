"""`python -m bench context quality [MODEL …]`: what a model still answers after a compaction.

A clerk has visited depots, each with a code in half a page of text; half of the conversation fits the limit. The codes of what
was left out are asked for four times: in the whole conversation; after the compaction; after it, with the tool `recall`; and with
what `recall` returns for that entry put before the question, for models that call no tools. An answer is right if it contains the
code. Without a model named: the small one that runs in this process. `RUNS` conversations, `ASKED` codes of each.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from antiphon.context import Compaction
from antiphon.conversation import Conversation, ModelSettings, ToolLoop
from antiphon.conversation.compaction import AutoCompaction
from antiphon.conversation.compaction.recall import recall
from antiphon.history import AgentHistory, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.providers.call import ProviderClient
from antiphon.providers.local import LocalModel
from antiphon.tools.context import ToolContext
from bench.measure.tables import PageTable, write_tables

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "context_quality.json"
PAGES = {
    ROOT / "docs" / "library" / "context.md": (
        "model",
        "codes asked",
        "tokens",
        "shown after",
        "answered before",
        "after",
        "after, with the tool `recall`",
        "after, with what `recall` returns",
    ),
    ROOT / "docs" / "zh" / "context.md": (
        "模型",
        "问到的编号",
        "token 数",
        "压缩后可见",
        "压缩前答对",
        "压缩后",
        "压缩后可调用 `recall`",
        "压缩后附上 `recall` 的结果",
    ),
}
LOCAL = "local/smollm2-135m"
RUNS, DEPOTS, ASKED = 20, 12, 3
LIMIT = 1_300
SETTINGS = ModelSettings(temperature=0)
"""The same answers in every run, where a model lets one choose."""
BRIEF = ModelSettings(temperature=0, max_output_tokens=48)
"""For the model in this process, which keeps talking after its answer; its summaries are not cut."""
_TOWNS = ["Oslo", "Bergen", "Turku", "Riga", "Gdansk", "Kiel", "Bremen", "Ghent", "Calais", "Brest", "Bilbao", "Porto"]
_TALK = [
    "The yard was wet and the gate stood open.",
    "Two cranes were at work beside the long shed.",
    "A clerk counted crates and wrote them into a book.",
    "The floor had not been swept for a while.",
    "The tide was low, so no ship could leave before noon.",
    "Someone had left a ladder against the office wall.",
]


Model = str | ProviderClient


class Answers(Struct, frozen=True):
    """How many codes a model answered at each stage, and the tokens of the conversation before and after."""

    model: str
    runs: int
    facts: int
    before: int
    after: int
    with_recall: int
    recalled_for_it: int
    shown: int
    tokens_before: int
    tokens_after: int


def visit(seed: int) -> tuple[AgentHistory, dict[int, tuple[str, str]]]:
    """A conversation of `DEPOTS` rounds, and the town and code of each result by the number of its entry."""
    chance = random.Random(seed)
    history, codes = AgentHistory(), {}
    history.append(ModelInputEntry.of("Visit all depots and note what you see."))
    for town in chance.sample(_TOWNS, DEPOTS):
        code = f"{chance.choice('ABCDEFGH')}{chance.randrange(1_000, 10_000)}"
        talk = [chance.choice(_TALK) for _ in range(12)]
        talk.insert(chance.randrange(3, 10), f"The code of the depot in {town} is {code}.")
        request = ToolCallRequest("look", f"call_{town}", msgspec.json.encode({"town": town}).decode())
        history.append(ModelOutputEntry.of(f"I look at {town}.", request))
        entry = history.append(ToolCallResultsEntry((ToolCallResult.of(request, " ".join(talk)),)))
        codes[entry.sequence_number] = (town, code)
    history.append(ModelOutputEntry.of("I have seen all depots."))
    return history, codes


async def ask(name: str, runs: int = RUNS, client: ProviderClient | None = None) -> Answers:
    """Ask a model for the codes of `runs` conversations."""
    model: Model = client or (LocalModel() if name == LOCAL else name)  # one server for all conversations
    right, facts, shown, sizes = [0, 0, 0, 0], 0, 0, [0, 0]
    settings = BRIEF if name == LOCAL else SETTINGS
    for seed in range(runs):
        history, codes = visit(seed)
        full = Conversation(model, settings=SETTINGS, history=AgentHistory(history.entries), tools=[recall])
        chat = Conversation(model, settings=SETTINGS, history=AgentHistory(history.entries), tools=[recall])
        await AutoCompaction(chat, LIMIT, Compaction()).run()
        text = str(chat.context())
        gone = [number for number, (_, code) in codes.items() if f"is {code}." not in text]
        asked = [codes[number] + (number,) for number in random.Random(seed).sample(gone, min(ASKED, len(gone)))]
        for stage, answers in enumerate(  # stage by stage, so that a model reads each context once
            [
                [await _aside(full, settings, _question(town)) for town, _, _ in asked],
                [await _aside(chat, settings, _question(town)) for town, _, _ in asked],
                [await _turn(model, chat, settings, _question(town)) for town, _, _ in asked],
                [
                    await _aside(chat, settings, f"{_recalled(chat, number)}\n\n{_question(town)}")
                    for town, _, number in asked
                ],
            ]
        ):
            right[stage] += sum(code in answer for (_, code, _), answer in zip(asked, answers, strict=True))
        facts += len(asked)
        shown += sum(code in text for _, code, _ in asked)
        sizes = [
            sizes[0] + full.gauge.count(full.view().shown),
            sizes[1] + chat.gauge.count(chat.view().shown),
        ]
        print(f"{name}: {seed + 1} of {runs}, {facts} asked, right {right}", file=sys.stderr, flush=True)
    if isinstance(model, ProviderClient):
        await model.aclose()
    before, after, with_recall, recalled_for_it = right
    return Answers(
        model=name,
        runs=runs,
        facts=facts,
        before=before,
        after=after,
        with_recall=with_recall,
        recalled_for_it=recalled_for_it,
        shown=shown,
        tokens_before=sizes[0] // runs,
        tokens_after=sizes[1] // runs,
    )


def _question(town: str) -> str:
    return f"What is the code of the depot in {town}? Answer with the code."


async def _aside(chat: Conversation, settings: ModelSettings, question: str) -> str:
    answer = await chat.call_aside(question, purpose="probe", context=chat.context(), tools=(), settings=settings)
    return answer.text


async def _turn(model: Model, chat: Conversation, settings: ModelSettings, question: str) -> str:
    again = Conversation(model, settings=settings, history=AgentHistory(chat.history.entries), tools=[recall])
    return (await ToolLoop(again).run(question)).text


def _recalled(chat: Conversation, number: int) -> str:
    return str(recall.function(ToolContext(log=chat.history), entry=number))


def row(one: Answers) -> str:
    """The answers of a model as cells of a table."""
    shares = (one.shown, one.before, one.after, one.with_recall, one.recalled_for_it)
    cells = " | ".join(f"{100 * count // one.facts} %" for count in shares)
    return f"| {one.model} | {one.facts} | {one.tokens_before:,} → {one.tokens_after:,} | {cells} |"


def stored() -> list[Answers]:
    """What was measured before."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=list[Answers]) if RESULTS.exists() else []


def page_tables() -> list[PageTable]:
    """The tables of what is stored."""
    rows = "\n".join(map(row, stored()))
    return [
        PageTable(page, "bench context quality", f"| {' | '.join(head)} |\n|{' --- |' * len(head)}\n{rows}")
        for page, head in PAGES.items()
    ]


def main(arguments: Sequence[str]) -> int:
    """Ask the models, print the table, and store it with those of earlier runs by the name of the model."""
    kept = {one.model: one for one in stored()}
    for model in arguments or [LOCAL]:
        kept[model] = asyncio.run(ask(model))
        print(row(kept[model]))
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode([*kept.values()]), indent=1) + b"\n")
    write_tables(page_tables())
    return 0
