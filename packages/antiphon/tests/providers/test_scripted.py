"""Scripted and function models: every shape of a turn gives a legal stream that assembles to what was meant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.errors import ScriptError, ScriptExhausted
from antiphon.history import ContextEntry, ModelInputEntry, ModelOutputEntry, Origin, ToolCallResultsEntry
from antiphon.parts import OutputPart, Text, Thinking, TokenUsage, ToolCallRequest, ToolCallResult
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ModelFunction, ScriptedModel, Turn, call
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartStarted,
    Started,
    deltas_from_output,
)
from antiphon.wire.output import ModelOutput, ProviderError
from providers.model_calls import Endless, assembled, deltas_of, left
from providers.sample_answers import QUESTION
from support.history_strategies import output_parts

OVERLOADED = ProviderError("come back later", "overloaded")


WEATHER = ToolCallRequest("weather", "call_1_1_1", '{"city":"Oslo"}')

TURNS: list[tuple[Turn, tuple[OutputPart, ...], str]] = [
    ("It is.", (Text("It is."),), "end"),
    ("", (Text(""),), "end"),
    ([], (), "end"),
    (call("weather", city="Oslo"), (WEATHER,), "tool_calls"),
    (["Let me look.", call("weather", city="Oslo")], (Text("Let me look."), WEATHER), "tool_calls"),
    ([Thinking("Hm."), Text("Yes.")], (Thinking("Hm."), Text("Yes.")), "end"),
    (ToolCallRequest("weather", "mine", "{not json"), (ToolCallRequest("weather", "mine", "{not json"),), "tool_calls"),
    (ModelOutput(parts=(Text("cut off he"),), stop_reason="length"), (Text("cut off he"),), "length"),
    (lambda context, options: f"You sent {len(context)} thing.", (Text("You sent 1 thing."),), "end"),
    (lambda context, options: [call("weather", city="Oslo")], (WEATHER,), "tool_calls"),
    (
        [Started("x"), PartStarted(0, Text("")), PartDelta(0, "Own."), PartEnded(0), Finished("end")],
        (Text("Own."),),
        "end",
    ),
]


@pytest.mark.parametrize("chunk_size", [None, 1, 3, 100])
@pytest.mark.parametrize(("turn", "parts", "stop_reason"), TURNS)
def test_a_turn_of_any_shape_is_streamed(
    turn: Turn, parts: tuple[OutputPart, ...], stop_reason: str, chunk_size: int | None
) -> None:
    whole = assembled(deltas_of(ScriptedModel(turn, chunk_size=chunk_size)))
    assert whole.is_finished
    assert whole.output.parts == parts
    assert whole.output.stop_reason == stop_reason


FUNCTION_TURNS = [case for case in TURNS if not callable(case[0])]


@pytest.mark.parametrize(("turn", "parts", "stop_reason"), FUNCTION_TURNS)
def test_a_function_may_answer_in_any_shape(turn: Turn, parts: tuple[OutputPart, ...], stop_reason: str) -> None:
    async def later(context: Sequence[ContextEntry], options: ProviderCallOptions) -> object:
        return turn

    functions: list[ModelFunction] = [lambda context, options: turn, later]  # type: ignore[list-item, return-value]
    for function in functions:
        whole = assembled(deltas_of(FunctionModel(function)))
        assert (whole.is_finished, whole.output.parts, whole.output.stop_reason) == (True, parts, stop_reason)


@pytest.mark.parametrize("turn", [OVERLOADED, Failed(OVERLOADED), [Started(), Failed(OVERLOADED)]])
def test_an_error_is_a_stream_that_failed(turn: Turn) -> None:
    options = ProviderCallOptions()
    deltas = deltas_of(ScriptedModel(turn), options=options)
    assert deltas[-1] == Failed(OVERLOADED)
    assert [attempt.error for attempt in options.report.attempts] == [OVERLOADED]


def test_deltas_without_an_end_are_a_cut_stream() -> None:
    last = deltas_of(ScriptedModel([Started(), PartStarted(0, Text(""))]))[-1]
    assert isinstance(last, Failed)
    assert last.error.kind == "stream_cut"


def test_turns_come_in_order_and_calls_are_recorded() -> None:
    model = ScriptedModel("one", "two", name="mine")
    growing: list[ContextEntry] = list(QUESTION)
    options = ProviderCallOptions(model="m", request_id="r1")
    deltas_of(model, growing, options)
    growing.append(ModelOutputEntry.of("one"))
    assert model.turns_left == 1
    deltas_of(model, growing)
    assert [len(asked.context) for asked in model.calls] == [1, 2]
    assert model.calls[0].options is options
    assert options.report.origin == Origin("mine", "", "m")


def test_one_call_too_many_raises_with_the_request() -> None:
    model = ScriptedModel("one")
    deltas_of(model)
    with pytest.raises(ScriptExhausted, match=r"has 1 turn, all played.*'Is it raining\?'"):
        deltas_of(model)
    results = ToolCallResultsEntry((ToolCallResult.of(WEATHER, "Rain."),))
    with pytest.raises(ScriptExhausted, match=r"after 1 result of tools \(weather\)"):
        deltas_of(model, [*QUESTION, results])
    with pytest.raises(ScriptExhausted, match="an empty context"):
        deltas_of(model, [])


@pytest.mark.parametrize("turn", [7, object(), {"text": "no"}])
def test_invalid_turns_are_refused(turn: Turn) -> None:
    with pytest.raises(ScriptError, match="use text, parts"):
        deltas_of(ScriptedModel(turn))


def test_chunk_size_must_be_a_size() -> None:
    with pytest.raises(ScriptError, match="at least 1"):
        ScriptedModel("x", chunk_size=0)


def test_chunks_have_the_size_that_was_asked_for() -> None:
    def pieces(chunk_size: int | None) -> list[str]:
        deltas = deltas_of(ScriptedModel("It is raining.", chunk_size=chunk_size))
        return [delta.text for delta in deltas if isinstance(delta, PartDelta)]

    assert pieces(None) == ["It is raining."]
    assert pieces(5) == ["It is", " rain", "ing."]


def test_ids_differ_between_turns_and_are_the_same_every_time() -> None:
    def ids() -> list[str]:
        model = ScriptedModel([call("a"), call("b")], call("a"))
        outputs = [assembled(deltas_of(model)).output for _ in range(2)]
        return [part.tool_call_id for output in outputs for part in output.parts if isinstance(part, ToolCallRequest)]

    assert len(set(ids())) == 3
    assert ids() == ids()


def test_usage_counts_what_is_new_in_a_context() -> None:
    model = ScriptedModel("x" * 25, "y" * 5, "z", "z")
    context: list[ContextEntry] = list(QUESTION)
    first = assembled(deltas_of(model, context)).output.usage
    assert first == TokenUsage(6, 10)
    context.append(ModelOutputEntry.of("x" * 25))
    second = assembled(deltas_of(model, context)).output.usage
    assert second == TokenUsage(16, 2)
    shorter: list[ContextEntry] = [ModelInputEntry.of("Hello")]
    third = assembled(deltas_of(model, shorter)).output.usage
    assert third == TokenUsage(2, 1)
    other: list[ContextEntry] = [ModelInputEntry.of("Hi"), ModelInputEntry.of("Hi")]
    fourth = assembled(deltas_of(model, other)).output.usage
    assert fourth == TokenUsage(2, 1)


def test_usage_counts_a_context_that_changed_in_its_middle_or_at_its_beginning() -> None:
    """A compaction shortens results and leaves the last entry as it was; a note of the notebook changes the first."""
    model = ScriptedModel("a", "b", "c")
    question, answer, shorter = ModelInputEntry.of("Hello"), ModelOutputEntry.of("x" * 50), ModelOutputEntry.of("y" * 5)
    contexts: list[list[ContextEntry]] = [
        [question, answer, question],
        [question, shorter, question],
        [answer, answer, question],
    ]
    counted = [assembled(deltas_of(model, context)).output.usage for context in contexts]
    assert counted == [TokenUsage(24, 1), TokenUsage(6, 1), TokenUsage(42, 1)]


async def words(context: Sequence[ContextEntry], options: ProviderCallOptions) -> AsyncIterator[str]:
    for word in ("It ", "", "rains."):
        yield word


async def words_and_parts(
    context: Sequence[ContextEntry], options: ProviderCallOptions
) -> AsyncIterator[str | OutputPart]:
    yield Thinking("Hm.")
    yield "Let me "
    yield "look."
    yield call("weather", city="Oslo")
    yield "There."


async def own_deltas(context: Sequence[ContextEntry], options: ProviderCallOptions) -> AsyncIterator[ModelOutputDelta]:
    yield Started("x")
    yield Finished("end")


async def nothing(context: Sequence[ContextEntry], options: ProviderCallOptions) -> AsyncIterator[str]:
    for word in list[str]():
        yield word


STREAMS: list[tuple[ModelFunction, tuple[OutputPart, ...], str]] = [
    (words, (Text("It rains."),), "end"),
    (words_and_parts, (Thinking("Hm."), Text("Let me look."), WEATHER, Text("There.")), "tool_calls"),
    (own_deltas, (), "end"),
    (nothing, (), "end"),
]


@pytest.mark.parametrize(("function", "parts", "stop_reason"), STREAMS)
def test_a_generator_is_streamed_as_it_comes(
    function: ModelFunction, parts: tuple[OutputPart, ...], stop_reason: str
) -> None:
    options = ProviderCallOptions()
    whole = assembled(deltas_of(FunctionModel(function), options=options))
    assert (whole.is_finished, whole.output.parts, whole.output.stop_reason) == (True, parts, stop_reason)
    assert len(options.report.attempts) == 1


def test_a_generator_that_stops_between_deltas_was_cut() -> None:
    async def cut(context: Sequence[ContextEntry], options: ProviderCallOptions) -> AsyncIterator[ModelOutputDelta]:
        yield Started()

    last = deltas_of(FunctionModel(cut))[-1]
    assert isinstance(last, Failed)
    assert last.error.kind == "stream_cut"


def test_closing_a_call_closes_its_generator() -> None:
    endless = Endless()
    assert left(endless.model, ProviderCallOptions(), endless)


outputs = st.builds(
    ModelOutput,
    parts=st.lists(output_parts, max_size=4).map(tuple),
    stop_reason=st.sampled_from(["end", "length", "tool_calls"]),
    id=st.just("r"),
    model=st.just("m"),
    usage=st.none() | st.just(TokenUsage(1, 2)),
    native=st.none() | st.just({"gemini": {"modelVersion": "m-1"}}),
)


@given(outputs, st.lists(outputs, max_size=2), st.none() | st.integers(1, 5))
def test_deltas_of_a_scripted_answer_assemble_to_the_answer(
    output: ModelOutput, others: list[ModelOutput], chunk_size: int | None
) -> None:
    # Usage belongs to the call, and a call without arguments means an empty object.
    others = [replace(other, usage=None) for other in others]
    meant = _with_arguments(replace(output, others=tuple(others)))
    assert assembled(list(deltas_from_output(meant, chunk_size))).output == meant


def _with_arguments(output: ModelOutput) -> ModelOutput:
    parts = tuple(
        replace(part, arguments=part.arguments or "{}") if isinstance(part, ToolCallRequest) else part
        for part in output.parts
    )
    return replace(output, parts=parts, others=tuple(map(_with_arguments, output.others)))
