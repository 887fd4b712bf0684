"""What a model still knows after a compaction: facts that are shown, one `recall` away, or answered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from antiphon.history import AgentHistory, ContextEntry, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import ToolCallRequest, ToolCallResult
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, call
from antiphon.testing import probe_compaction


def long_history() -> AgentHistory:
    history = AgentHistory()
    history.append(ModelInputEntry.of("Visit all depots."))
    for number in range(40):
        depot = "q" + "abcdefghij"[number % 10] + "klmn"[number // 10] + "z"
        request = ToolCallRequest("look", depot, "{}")
        history.append(ModelOutputEntry.of("I look.", request))
        text = "nothing here " * 60 + f"the code of depot {depot} is X{number}-4711 " + "and so on " * 60
        history.append(ToolCallResultsEntry((ToolCallResult.of(request, text),)))
    return history


def test_every_fact_is_one_recall_away() -> None:
    history = long_history()
    version = history.version
    report = asyncio.run(probe_compaction(history, token_limit=4_000, most=30))
    assert 10 < report.facts <= 30
    assert report.recalled == report.facts
    assert report.missing == ()
    assert report.shown < report.facts
    assert report.tokens_after < 4_000 < report.tokens_before
    assert (report.asked, history.version) == (False, version)


def test_a_model_is_asked_before_after_and_with_recall() -> None:
    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        asked = str(context[-1].content)
        if "has grown long" in asked:
            return "They looked at depots."
        asked_for = [entry for entry in context if entry.role == "model_input"]
        question = str(asked_for[-1].content)
        before = re.findall(r"“(.*?)”", question, re.DOTALL)[-1]
        seen = "\n".join(str(entry.content) for entry in context if entry is not asked_for[-1])
        found = re.search(re.escape(before) + r"([\w/.-]+)", seen)
        if found:
            return found[1]
        is_new = not any(one.tool_name == "recall" for entry in context for one in entry.tool_calls)
        words = " ".join(before.split()[-3:])
        return call("recall", search=words) if options.tools and is_new else "I do not know."

    report = asyncio.run(probe_compaction(long_history(), token_limit=4_000, model=FunctionModel(answer), most=5))
    assert report.asked
    assert report.right_before == report.facts
    assert report.right_after == 0
    assert report.right_with_recall > 0
