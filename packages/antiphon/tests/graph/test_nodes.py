"""A graph of LLM, tool and human nodes over one conversation: awaited or not, stored or not, streamed, and led by edges."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from antiphon.conversation import RoundStarted, RunLimits, TextDelta, ToolCallFinished, Turn, rounds_of
from antiphon.errors import ConversationError, GraphError, TurnLimitReached
from antiphon.graph import (
    AskNode,
    ConversationNode,
    Conversations,
    ConversationState,
    GraphStep,
    HumanNode,
    LLMNode,
    ToolNode,
)
from antiphon.history import HumanDecisionEntry, ModelInputEntry, ToolCallResultsEntry, ToolCallStartedEntry
from antiphon.parts import ToolCallRequest
from antiphon.providers.call import ModelCallFailed
from antiphon.providers.scripted import FunctionModel, ScriptedModel, call
from antiphon.tools import Tool, tool
from antiphon.wire.delta import Started, deltas_from_part
from graph.rig import chats_in, kinds, log_of, loop_graph, thread
from support.planned_turns import refusals


@tool(effect="read")
def weather(city: str) -> str:
    "Current weather in a city."
    return f"Rain in {city}"


@tool(needs_approval=True)
def book(to: str) -> str:
    "Book a flight."
    return f"booked: {to}"


TURN = ["model_input", "model_output", "tool_call_started", "tool_call_results", "model_output"]


@pytest.mark.parametrize("is_awaited", [False, True])
def test_graph_runs_turn_with_tools(tmp_path: Path, is_awaited: bool) -> None:
    model = ScriptedModel(["Let me look.", call("weather", city="Oslo")], "It rains.")
    with chats_in(tmp_path, model, tools=[weather]) as chats:
        graph = loop_graph(chats)
        question = chats.ask("Is it raining in Oslo?")
        state = asyncio.run(graph.ainvoke(question, thread())) if is_awaited else graph.invoke(question, thread())
        assert set(state) == {"conversation", "version"}, "the state holds no text"
        history = log_of(tmp_path, state)
        assert state["version"] == history.version
        assert kinds(history.entries) == TURN
        assert refusals(history.snapshot()) == []
        assert chats.store.current_lease(state["conversation"]) is None, "given back at the end of the run"
        assert (chats.is_over(state), chats.has_calls(state), chats.needs_person(state)) == (True, False, False)


def test_second_turn_with_another_model(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel("Yes.", "Take one."), tools=[weather]) as chats:
        graph = loop_graph(chats)
        first = graph.invoke(chats.ask("Rain?"), thread())
        second = graph.invoke(chats.ask("Umbrella?", state=first), thread())
        assert second["conversation"] == first["conversation"]
        assert [str(e.content[0].text) for e in chats.conversation(second).messages] == [  # type: ignore[union-attr]
            "Rain?",
            "Yes.",
            "Umbrella?",
            "Take one.",
        ]


def test_graph_without_checkpointer(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel("Yes.", "Still yes.")) as chats:
        builder = StateGraph(ConversationState)
        builder.add_node("llm", LLMNode(chats))
        builder.add_edge(START, "llm")
        graph = chats.bind(builder.compile())
        state: Any = graph.invoke(chats.ask("Rain?"))
        state = graph.invoke(chats.ask("Now?", conversation=state["conversation"]))
        assert kinds(log_of(tmp_path, state).effective) == ["model_input", "model_output"] * 2


def test_node_called_outside_a_graph(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel(call("weather", city="Oslo"), "Rain.", "More.")) as chats:
        chats.registry.add(weather)
        llm, tools = LLMNode(chats), ToolNode(chats)
        state: Any = llm(tools(llm(chats.ask("Rain?"))))
        assert kinds(log_of(tmp_path, state).entries) == TURN
        assert asyncio.run(llm.ainvoke(state))["version"] > state["version"]


def test_node_called_by_another_node(tmp_path: Path) -> None:
    """Several steps of the conversation in one of the graph."""
    model = ScriptedModel(call("weather", city="Oslo"), "Rain.")
    with chats_in(tmp_path, model, tools=[weather]) as chats:
        llm, tools = LLMNode(chats), ToolNode(chats)

        async def work(state: ConversationState) -> Any:
            return await llm.ainvoke(await tools.ainvoke(await llm.ainvoke(state)))

        def first(state: ConversationState) -> Any:
            return tools({**chats.ask("By the way."), **state})

        builder = StateGraph(ConversationState)
        builder.add_node("first", first)
        builder.add_node("work", work)
        builder.add_edge(START, "first")
        builder.add_edge("first", "work")
        graph: Any = chats.bind(builder.compile(checkpointer=InMemorySaver()))
        state = asyncio.run(graph.ainvoke(chats.ask("Rain?"), thread()))
        assert kinds(log_of(tmp_path, state).entries) == TURN


class Remember(ConversationNode):
    """A custom node."""

    async def work(self, step: GraphStep) -> dict[str, Any]:
        if not step.earlier_entries:
            step.mark()
            step.chat.history.set_memory_notebook("Likes rain.")
        return {"plan": "remembered"}


class Asked(ConversationState, total=False):
    question: str
    plan: str


def test_custom_conversation_node(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel()) as chats:
        builder = StateGraph(Asked)
        builder.add_node("remember", Remember(chats))
        builder.add_edge(START, "remember")
        graph: Any = chats.bind(builder.compile())
        state = graph.invoke(chats.ask("I like rain."))
        assert state["plan"] == "remembered"
        assert chats.conversation(state).history.memory_notebook == "Likes rain."


def test_question_and_answer_keys_of_state(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel("1. Look."), system="Be brief.") as chats:
        builder = StateGraph(Asked)
        builder.add_node("ask", AskNode(chats))
        builder.add_node("plan", LLMNode(chats, answer="plan"))
        builder.add_edge(START, "ask")
        builder.add_edge("ask", "plan")
        graph = chats.bind(builder.compile())
        state = graph.invoke({"question": "What now?"})
        assert state["plan"] == "1. Look."
        assert kinds(log_of(tmp_path, state).entries) == ["set_system_instruction", "model_input", "model_output"]
        with pytest.raises(GraphError, match="has no question"):
            graph.invoke({"plan": ""})


def test_consecutive_llm_nodes_use_own_prompts(tmp_path: Path) -> None:
    planner, reviewer = ScriptedModel("1. Look."), ScriptedModel("Approved.")
    with chats_in(tmp_path, ScriptedModel()) as chats:
        builder = StateGraph(ConversationState)
        builder.add_node("planner", LLMNode(chats, planner, system="Plan."))
        builder.add_node("reviewer", LLMNode(chats, reviewer, system="Review.", prompt="Is the plan good?"))
        builder.add_edge(START, "planner")
        builder.add_edge("planner", "reviewer")
        state: Any = chats.bind(builder.compile()).invoke(chats.ask("Report the weather."))
        history = log_of(tmp_path, state)
        assert [entry.channel for entry in history.entries if isinstance(entry, ModelInputEntry)] == ["user", "agent"]
        assert [turn.agent for turn in rounds_of(history.snapshot()) if turn.number] == ["planner", "reviewer"]
        assert reviewer.calls[0].context[0].content[0].text == "Review."  # type: ignore[union-attr]


def test_llm_node_offers_named_tools_only(tmp_path: Path) -> None:
    model = ScriptedModel("No.", "No.")
    with chats_in(tmp_path, model, tools=[weather, book]) as chats:
        LLMNode(chats, tools=["weather"])(chats.ask("Book!"))
        assert [one.name for one in model.calls[0].options.tools] == ["weather"]
        with pytest.raises(GraphError, match="unknown tools fly"):
            LLMNode(chats, tools=["fly"])(chats.ask("Book!"))


# Streams.


def test_events_and_messages_are_streamed(tmp_path: Path) -> None:
    model = ScriptedModel(["Let me look.", call("weather", city="Oslo")], "It rains in Oslo, and it will go on.")
    with chats_in(tmp_path, model, tools=[weather]) as chats:
        graph = loop_graph(chats)

        async def collect_events() -> list[tuple[str, Any]]:
            modes = ["custom", "messages", "updates"]
            return [one async for one in graph.astream(chats.ask("Rain?"), thread(), stream_mode=modes)]

        events_seen = asyncio.run(collect_events())
    events = [event for mode, event in events_seen if mode == "custom"]
    assert (
        "".join(e.text for e in events if isinstance(e, TextDelta))
        == "Let me look.It rains in Oslo, and it will go on."
    )
    assert [type(e) for e in events if isinstance(e, RoundStarted | ToolCallFinished)] == [
        RoundStarted,
        ToolCallFinished,
        RoundStarted,
    ]
    messages = [message_and_about for mode, message_and_about in events_seen if mode == "messages"]
    assert {about["langgraph_node"] for _, about in messages} == {"llm"}
    chunks = [message for message, _ in messages]
    assert "".join(chunk.content for chunk in chunks) == "Let me look.It rains in Oslo, and it will go on."
    assert len({chunk.id for chunk in chunks}) == 2, "the pieces of an answer have one id"
    assert [list(update) for mode, update in events_seen if mode == "updates"] == [["llm"], ["tools"], ["llm"]]


# RunLimits: a graph that loops forever.


def stubborn() -> FunctionModel:
    """Calls a tool whenever it may."""
    return FunctionModel(
        lambda context, options: (
            "I give up." if options.settings.tool_choice else call("weather", city=f"Town {len(context)}")
        )
    )


def test_max_rounds_ends_turn(tmp_path: Path) -> None:
    with chats_in(tmp_path, stubborn(), tools=[weather], limits=RunLimits(max_rounds=3)) as chats:
        state = loop_graph(chats).invoke(chats.ask("Find me the sun."), thread())
        history = log_of(tmp_path, state)
        assert rounds_of(history.snapshot())[-1].ended == "max_rounds"
        assert kinds(history.entries)[-1] == "model_output"
        with pytest.raises(TurnLimitReached, match="max_rounds"):
            LLMNode(chats)(state)


@pytest.mark.parametrize("limit", [4, 200])
def test_endless_hand_overs_are_limited(tmp_path: Path, limit: int) -> None:
    """By LangGraph's limit where that is lower, else by ours; and the history says why."""
    model = FunctionModel(lambda context, options: "Hm.")
    with chats_in(tmp_path, model, max_hand_offs=6) as chats:
        builder = StateGraph(ConversationState)
        builder.add_node("llm", LLMNode(chats))
        builder.add_edge(START, "llm")
        builder.add_edge("llm", "llm")
        graph = chats.bind(builder.compile())
        question = chats.ask("Think.")
        expected: Any = GraphRecursionError if limit == 4 else TurnLimitReached
        with pytest.raises(expected, match=r"recursion|6 times"):
            graph.invoke(question, {"recursion_limit": limit})
        history = log_of(tmp_path, question)
        assert refusals(history.snapshot()) == []
        assert kinds(history.entries).count("model_output") == (4 if limit == 4 else 7)
        assert chats.conversation(question).turn.ended == ("" if limit == 4 else "max_hand_offs")
        assert chats.store.current_lease(question["conversation"]) is None


def test_failed_answer_with_calls_routes_to_llm(tmp_path: Path) -> None:
    request = ToolCallRequest("weather", "call_1", '{"city": "Oslo"}')
    cut = [Started("answer_1", "m"), *deltas_from_part(0, request)]
    with chats_in(tmp_path, ScriptedModel(cut, "It rains."), tools=[weather]) as chats:
        state = chats.ask("Is it raining in Oslo?")
        with pytest.raises(ModelCallFailed):
            LLMNode(chats).invoke(state)
        state["version"] = log_of(tmp_path, state).version
        assert chats.next_node(state) == "llm", "the calls of an answer that was cut off are not run"
        answered = LLMNode(chats).invoke(state)
        assert chats.next_node(answered) == "end"
        assert refusals(log_of(tmp_path, answered).snapshot()) == []


def test_llm_node_rejects_open_calls(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel(call("weather", city="Oslo")), tools=[weather]) as chats:
        builder = StateGraph(ConversationState)
        builder.add_node("one", LLMNode(chats))
        builder.add_node("two", LLMNode(chats))
        builder.add_edge(START, "one")
        builder.add_edge("one", "two")
        with pytest.raises(GraphError, match=r"weather.*ToolNode"):
            chats.bind(builder.compile()).invoke(chats.ask("Rain?"))


def test_time_limit_counts_earlier_steps(tmp_path: Path) -> None:
    @tool(effect="read")
    async def slow() -> str:
        "Slow."
        await asyncio.sleep(0.02)
        return "done"

    model = FunctionModel(
        lambda context, options: "Enough." if options.settings.tool_choice else [call("slow"), call("slow")]
    )
    limits = RunLimits(max_seconds=0.03, max_repeats=0, max_rounds=50)
    with chats_in(tmp_path, model, tools=[slow], limits=limits) as chats:
        state = loop_graph(chats).invoke(chats.ask("Go."), thread())
        assert chats.conversation(state).turn.ended == "time_budget"


# People.


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize(
    ("resumed_with", "decided", "result"),
    [
        ("approve", "approve", "booked: Oslo"),
        ("deny", "deny", "a person denied it"),
        ({"decision": "deny", "reason": "too dear"}, "deny", "too dear"),
        ({"decision": "edit", "arguments": {"to": "Bergen"}}, "edit", "booked: Bergen"),
        ({"ID": {"decision": "approve", "reason": "go"}}, "approve", "booked: Oslo"),
    ],
)
def test_human_node_applies_decision(
    tmp_path: Path, resumed_with: Any, decided: str, result: str, is_awaited: bool
) -> None:
    model = ScriptedModel([call("book", to="Oslo"), call("weather", city="Oslo")], "So be it.")
    with chats_in(tmp_path, model, tools=[weather, book]) as chats:
        graph = loop_graph(chats)
        waiting = graph.invoke(chats.ask("Fly me."), thread())
        (stopped,) = waiting["__interrupt__"]
        assert stopped.value["kind"] == "approval"
        (asked,) = stopped.value["calls"]
        assert (asked["tool"], asked["arguments"]) == ("book", '{"to":"Oslo"}')
        assert chats.needs_person(waiting)
        assert chats.store.current_lease(waiting["conversation"]) is None, "no lease is held while a person thinks"
        if isinstance(resumed_with, dict) and "ID" in resumed_with:
            resumed_with = {asked["id"]: resumed_with["ID"]}
        command: Any = Command(resume=resumed_with)
        state = asyncio.run(graph.ainvoke(command, thread())) if is_awaited else graph.invoke(command, thread())
        entries = log_of(tmp_path, state).entries
        assert [entry.decision for entry in entries if isinstance(entry, HumanDecisionEntry)] == [decided]
        (results,) = [entry for entry in entries if isinstance(entry, ToolCallResultsEntry)]
        assert result in results.results[0].result_markdown
        assert chats.is_over(state)


def test_pending_call_stays_pending_without_approval_tools(tmp_path: Path) -> None:
    booked: list[str] = []

    def tools(approval: bool) -> list[Tool]:
        @tool(needs_approval=approval)
        def book(to: str) -> str:
            "Book a flight."
            booked.append(to)
            return f"booked: {to}"

        return [book]

    saver = InMemorySaver()
    model = ScriptedModel(call("book", to="Oslo"), "Booked.")
    with chats_in(tmp_path, model, tools=tools(True)) as chats:
        loop_graph(chats, saver).invoke(chats.ask("Fly me."), thread())
    with chats_in(tmp_path, model, tools=tools(False)) as chats:
        graph = loop_graph(chats, saver)
        state = graph.invoke(None, thread())
        assert chats.needs_person(state)
        assert not chats.has_calls(state)
        ToolNode(chats).invoke(state)
        chats.release()
        assert booked == []
        assert chats.is_over(graph.invoke(Command(resume="approve"), thread()))
        assert booked == ["Oslo"]


def test_call_with_unknown_outcome_routes_to_tools(tmp_path: Path) -> None:
    model = ScriptedModel([call("send"), call("book", to="Oslo")], "Booked.")
    with chats_in(tmp_path, model, tools=[book, tool(name="send", description="Sends.")(lambda: "sent")]) as chats:
        state = LLMNode(chats).invoke(chats.ask("Fly me."))
        chats.release()
        history = chats.store.open(state["conversation"])
        send = next(one.call for one in Turn.of(history.snapshot()).open_calls.values() if one.call.tool_name == "send")
        history.append(ToolCallStartedEntry("send", send.tool_call_id))  # and the process died
        assert chats.needs_person({"conversation": history.id}), "a person can decide before anything runs"


def test_invalid_answer_interrupts_again(tmp_path: Path) -> None:
    model = ScriptedModel(call("book", to="Oslo"), "Booked.")
    with chats_in(tmp_path, model, tools=[book]) as chats:
        graph = loop_graph(chats)
        graph.invoke(chats.ask("Fly me."), thread())
        wrong: list[Any] = [
            "perhaps",
            {"call_9": "approve"},
            7,
            {"decision": "edit"},
            {"decision": "edit", "arguments": "x"},
        ]
        for answer in wrong:
            (stopped,) = graph.invoke(Command(resume=answer), thread())["__interrupt__"]
            assert stopped.value["problem"], answer
        state = graph.invoke(Command(resume="approve"), thread())
        assert chats.is_over(state)
        assert kinds(log_of(tmp_path, state).entries).count("human_decision") == 1


def test_message_instead_of_decision_closes_calls(tmp_path: Path) -> None:
    model = ScriptedModel(call("book", to="Oslo"), "Bergen is fine.")
    with chats_in(tmp_path, model, tools=[book]) as chats:
        graph = loop_graph(chats)
        graph.invoke(chats.ask("Fly me."), thread())
        state = graph.invoke(Command(resume={"say": "Never mind. And Bergen?"}), thread())
        history = log_of(tmp_path, state)
        assert "went on without it" in str(history.entries)
        assert refusals(history.snapshot()) == []
        assert chats.is_over(state)


def test_human_node_adds_message(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel("Hello.", "Goodbye.")) as chats:
        builder = StateGraph(ConversationState)
        builder.add_node("person", HumanNode(chats, ask="Say something."))
        builder.add_node("llm", LLMNode(chats))
        builder.add_edge(START, "person")
        builder.add_edge("person", "llm")
        builder.add_edge("llm", "person")
        graph = chats.bind(builder.compile(checkpointer=InMemorySaver()))
        (stopped,) = graph.invoke({"version": 0}, thread())["__interrupt__"]
        assert (stopped.value["kind"], stopped.value["ask"]) == ("input", "Say something.")
        (stopped,) = graph.invoke(Command(resume="Hi."), thread())["__interrupt__"]
        assert stopped.value["said"] == "Hello."
        last: Any = graph.invoke(Command(resume=["Bye", "."]), thread())
        assert kinds(log_of(tmp_path, last).entries) == ["model_input", "model_output"] * 2


# Mistakes.


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"seconds": 0}, "seconds"),
        ({"wait": -1}, "wait"),
        ({"idle": -1}, "idle"),
        ({"max_hand_offs": -1}, "max_hand_offs"),
        ({"temperature": 0}, "unknown options temperature; a conversation has settings, token_limit"),
    ],
)
def test_invalid_conversations_options_raise(tmp_path: Path, options: Any, error_text: str) -> None:
    with pytest.raises((GraphError, ConversationError), match=error_text):
        Conversations(tmp_path / "chats.db", **options)


def test_invalid_states_raise(tmp_path: Path) -> None:
    with chats_in(tmp_path, ScriptedModel()) as chats:
        with pytest.raises(GraphError, match="no conversation yet"):
            chats.next_node({})
        with pytest.raises(GraphError, match="no message yet"):
            LLMNode(chats)({})
        with pytest.raises(GraphError, match="has only 1"):
            LLMNode(chats)({**chats.ask("Rain?"), "version": 99})


def test_compaction_reaches_subscribers_and_the_custom_stream(tmp_path: Path) -> None:
    from antiphon.conversation.compaction import compact_when_needed

    model = ScriptedModel("First.", "They greeted each other.", "Second.")
    with Conversations(tmp_path / "chats.db", model, token_limit=60) as chats:
        asked: list[int] = []
        chats.on_compaction(lambda *_: 1 / 0)  # type: ignore[arg-type]
        chats.on_compaction(lambda _, event: asked.append(event.limit))
        chats.on_compaction(compact_when_needed)
        builder = StateGraph(ConversationState)
        builder.add_node("model", LLMNode(chats))
        builder.add_edge(START, "model")
        graph = builder.compile()
        state = graph.invoke(chats.ask("Hello. " * 60))
        events = list(graph.stream(chats.ask("And?", state=state), stream_mode="custom"))
        assert "CompactionNeeded" in [type(event).__name__ for event in events]
        assert asked[-1] == 60
        history = chats.store.open(state["conversation"])
        assert history.snapshot().compaction is not None
