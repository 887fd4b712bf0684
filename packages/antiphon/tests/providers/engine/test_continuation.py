"""An answer that two targets wrote reads as one: wherever the first one broke, however the second one is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.parts import Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.providers.engine.continuation import Continuation
from antiphon.wire.delta import Assembler, Failed, ModelOutputDelta, UsageReported, deltas_from_output
from antiphon.wire.output import ModelOutput, ProviderError

ANSWER = "Rain until noon, 然后放晴. Take a coat! \n\n Then sun."
CUT = ProviderError("cut", "stream_cut")
CALL = ToolCallRequest("c1", "weather", '{"city":"Oslo"}')
USAGE = TokenUsage(prompt_tokens=10, completion_tokens=5, total_tokens=15)


def deltas_of(
    *parts: Text | Thinking | ToolCallRequest, chunk: int = 5, model: str = "second"
) -> list[ModelOutputDelta]:
    output = ModelOutput(parts=parts, stop_reason="end", id=f"id-{model}", model=model, usage=USAGE)
    return deltas_from_output(output, chunk)


def assembled(deltas: list[ModelOutputDelta]) -> Assembler:
    assembler = Assembler()
    for delta in deltas:
        assembler.add(delta)
    return assembler


def shown_before_the_cut(continuation: Continuation, *parts: Text | Thinking, size: int) -> list[ModelOutputDelta]:
    """The first deltas of an answer, up to `size` of them."""
    return continuation.feed(deltas_of(*parts, model="first")[:size])


@given(st.integers(1, 13), st.integers(1, 60), st.booleans())
def test_two_streams_of_one_text_are_one_answer(size: int, chunk: int, thinks: bool) -> None:
    continuation = Continuation()
    passed = shown_before_the_cut(continuation, Text(ANSWER), size=size)
    assert continuation.accepts(CUT)
    continuation.begin(is_prefilled=False)
    second = (Thinking("again"), Text(ANSWER)) if thinks else (Text(ANSWER),)
    for delta in deltas_of(*second, chunk=chunk):
        passed += continuation.feed([delta])
    whole = assembled(passed)
    assert whole.is_finished
    assert whole.parts == (Text(ANSWER),)
    assert whole.output.id == "id-first"
    assert whole.usage == USAGE


@given(st.integers(1, len(ANSWER) - 1), st.integers(1, 9))
def test_a_prefix_is_continued_without_repeating_its_white_space(size: int, chunk: int) -> None:
    continuation = Continuation()
    passed = continuation.feed(deltas_of(Text(ANSWER), chunk=1, model="first")[: 2 + size])
    prefix = continuation.text.rstrip()
    continuation.begin(is_prefilled=True)
    passed += continuation.feed(deltas_of(Text(ANSWER[len(prefix) :]), chunk=chunk))
    assert assembled(passed).parts == (Text(ANSWER),)


@pytest.mark.parametrize(
    "second",
    [
        (Text("Sun all day, no coat needed today at all."),),
        (Text(ANSWER[:4]),),
        (CALL,),
        (Text("Rain"), CALL),
    ],
    ids=["other words", "shorter", "a call", "a call too early"],
)
def test_a_different_answer_is_a_failure(second: tuple[Text | ToolCallRequest, ...]) -> None:
    continuation = Continuation()
    shown = shown_before_the_cut(continuation, Text(ANSWER), size=6)
    text = continuation.text
    continuation.begin(is_prefilled=False)
    passed = continuation.feed(deltas_of(*second))
    assert isinstance(passed[-1], Failed)
    assert passed[-1].error.code == "different_answer"
    assert assembled([*shown, *passed[:-1]]).parts == (Text(text),)


def test_a_call_after_the_shown_text_is_passed_on() -> None:
    continuation = Continuation()
    passed = shown_before_the_cut(continuation, Thinking("hm"), Text(ANSWER), size=8)
    continuation.begin(is_prefilled=False)
    passed += continuation.feed(deltas_of(Text(ANSWER), CALL))
    assert assembled(passed).parts == (Thinking("hm"), Text(ANSWER), CALL)
    assert not continuation.accepts(CUT)  # a call was shown


def test_answers_with_calls_are_not_continued() -> None:
    continuation = Continuation()
    continuation.feed(deltas_of(Text("Rain"), CALL)[:-4])
    assert not continuation.accepts(CUT)


@pytest.mark.parametrize("kind", ["invalid_request", "authentication", "rate_limit", "context_length"])
def test_only_broken_streams_are_continued(kind: str) -> None:
    continuation = Continuation()
    shown_before_the_cut(continuation, Text(ANSWER), size=5)
    assert not continuation.accepts(ProviderError("no", kind))  # type: ignore[arg-type]
    assert continuation.accepts(ProviderError("slow", "timeout"))


def test_usage_of_both_answers_counts() -> None:
    continuation = Continuation()
    begun = deltas_of(Text(ANSWER), model="first")
    passed = continuation.feed([*begun[:5], UsageReported(TokenUsage(prompt_tokens=7, completion_tokens=1))])
    continuation.begin(is_prefilled=False)
    passed += continuation.feed(deltas_of(Text(ANSWER)))
    usage = assembled(passed).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total) == (17, 6, 23)
