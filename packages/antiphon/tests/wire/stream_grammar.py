"""The grammar of deltas, for the tests of every format: what obeys it, generated deltas, and an answer with everything.

stream := Started? ( part events | UsageReported )* ( Finished+ | Failed )
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from antiphon.parts import Audio, Image, Native, Refusal, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.wire import ModelOutputDelta, ProviderError
from antiphon.wire.delta import (
    Failed,
    Finished,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)


def check_grammar(deltas: list[ModelOutputDelta]) -> None:
    """Parts start once, in order, before they are spoken of; one terminal event, or one for each candidate, and it is last."""
    begun: set[int] = set()
    ended: set[int] = set()
    for place, delta in enumerate(deltas):
        if isinstance(delta, Started):
            assert place == 0
        elif isinstance(delta, PartStarted):
            assert delta.index not in begun
            begun.add(delta.index)
        elif isinstance(delta, PartDelta | PartExtended | PartEnded):
            assert delta.index in begun
            assert delta.index not in ended
            if isinstance(delta, PartEnded):
                ended.add(delta.index)
    terminal = [delta for delta in deltas if isinstance(delta, Finished | Failed)]
    assert terminal == deltas[-len(terminal) :] != []
    if isinstance(terminal[-1], Failed):
        assert len(terminal) == 1
    else:
        assert ended == begun == set(range(len(begun)))
        numbers = [delta.candidate for delta in terminal if isinstance(delta, Finished)]
        assert numbers == sorted(set(numbers))


letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
words = letters | st.sampled_from(["", "é ", "\n", "\u2028"])
TOY = st.none() | st.just({"toy": {"x": 1}})
parts = st.one_of(
    st.builds(Text, words, native=TOY | st.just({"anthropic": {"citations": [{"n": 1}]}})),
    st.builds(Thinking, words, native=TOY | st.just({"anthropic": {"signature": "c2ln"}})),
    st.builds(Refusal, words),
    st.builds(ToolCallRequest, st.sampled_from(["look", "run"]), st.just(""), st.just(""), st.booleans(), native=TOY),
    st.just(Image("image/png", "aGk=")),
    st.just(Native("toy", {"type": "search"})),
)
ARGUMENTS = ["{}", '{"a":\n "b"\r}', '{"a":{"b":[1,null]}}', "[1]", '{"cut', "nonsense", ""]


@st.composite
def any_deltas(draw: st.DrawFn, candidates: int) -> list[ModelOutputDelta]:
    """Deltas as any provider may send them: parts of several answers, open at once, their pieces in any order."""
    waiting: list[tuple[int, Any, list[str]]] = []
    for index, part in enumerate(draw(st.lists(parts, max_size=6))):
        if isinstance(part, ToolCallRequest):
            text = draw(words if part.freeform else st.sampled_from(ARGUMENTS))
            cut = draw(st.integers(0, len(text)))
            waiting.append((index, structs.replace(part, tool_call_id=f"call_{index}"), [text[:cut], text[cut:]]))
        else:
            is_text = isinstance(part, Text | Thinking | Refusal)
            waiting.append((index, part, draw(st.lists(words, max_size=3)) if is_text else []))
    deltas: list[ModelOutputDelta] = [Started("x", "m", 5, "toy")] if draw(st.booleans()) else []
    opened: list[tuple[int, list[str]]] = []
    while waiting or opened:
        if waiting and (not opened or draw(st.booleans())):
            index, part, pieces = waiting.pop(0)
            deltas.append(PartStarted(index, part, draw(st.integers(0, candidates - 1))))
            opened.append((index, pieces))
        else:
            index, pieces = chosen = draw(st.sampled_from(opened))
            if pieces:
                deltas.append(PartDelta(index, pieces.pop(0)))
            else:
                deltas.append(PartEnded(index))
                opened.remove(chosen)
    if draw(st.booleans()):
        deltas.append(UsageReported(TokenUsage(3, 4)))
    if draw(st.integers(0, 3)) == 0:
        return [*deltas, Failed(ProviderError("oh", "overloaded"))]
    return [*deltas, *(Finished(draw(st.sampled_from(["length", "end"])), candidate=n) for n in range(candidates))]


FOREIGN: list[ModelOutputDelta] = [
    Started("1", "other", 1_700_000_000, "toy", {"toy": {"fingerprint": "f"}}),
    UsageReported(TokenUsage(10, 1)),
    PartStarted(0, Thinking("")),
    PartDelta(0, "Hm."),
    PartStarted(1, Text("")),
    PartDelta(1, "Let me "),
    PartStarted(2, ToolCallRequest("weather", "call:1", "")),
    PartDelta(2, '{"city":'),
    PartStarted(3, ToolCallRequest("weather", "call_2", "")),
    PartDelta(3, " "),
    PartDelta(3, '{"city":"Bergen"}'),
    PartDelta(2, '"Oslo"}'),
    PartDelta(1, "look."),
    PartExtended(0, {"toy": {"mood": "calm"}}),
    PartEnded(0),
    PartStarted(4, Refusal("")),
    PartDelta(4, "No."),
    PartEnded(4),
    PartEnded(3),
    PartEnded(1),
    PartStarted(5, ToolCallRequest("patch", "call_3", "", freeform=True)),
    PartDelta(5, '*** "Begin"\n'),
    PartDelta(5, "é"),
    PartStarted(6, Text("")),
    PartEnded(6),
    PartStarted(7, Audio("audio/wav", "AA")),
    PartEnded(7),
    PartStarted(8, ToolCallRequest("weather", "call_4", "")),
    PartDelta(8, "["),
    PartDelta(8, "1]"),
    PartStarted(9, Native("toy", {"type": "search"})),
    PartEnded(9),
    PartStarted(10, Text("Second candidate"), 1),
    PartDelta(10, "!"),
    PartEnded(10),
    PartStarted(11, ToolCallRequest("weather", "call_5", "")),
    PartExtended(2, {"toy": {"mood": "curious"}}),
    PartEnded(2),
    PartEnded(5),
    PartEnded(8),
    PartEnded(11),
    UsageReported(TokenUsage(10, 5, 3, 2, 1)),
    Finished("tool_calls", native={"toy": {"details": 1}}),
    Finished("end", candidate=1),
]  # fmt: skip
"""Parts of all kinds that are open at once, of a format that is none of ours."""
