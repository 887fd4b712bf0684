"""`Conversation`: the methods of seed 004, model switches, stores, and what it refuses (its token check: test_token_check)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.context import LiveContextOptions
from antiphon.conversation import Conversation, ToolLoop
from antiphon.errors import AntiphonError, ConversationError, UnknownConversation
from antiphon.history import (
    AgentHistory,
    ContextEntry,
    ContextEntryRole,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SqliteStore,
    ToolCallResultsEntry,
)
from antiphon.parts import Image, ToolCallRequest, ToolCallResult, text_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, ScriptedAnswer, ScriptedModel, call
from antiphon.tools import Hook, ToolExecutor, ToolRegistry, tool
from antiphon.wire.request import ModelRequest
from support.history_strategies import append_any, conversations
from support.planned_turns import World, refusals

CALL = ToolCallRequest("look", "call_1")


def words_of(entries: Sequence[ContextEntry]) -> list[str]:
    return [text_of(entry.content) for entry in entries]


def talked() -> Conversation:
    """A conversation with something of everything in it."""
    chat = Conversation(ScriptedModel(), system="Be brief.")
    chat.add("What is the weather?")
    chat.add("I look.", CALL, role="assistant")
    chat.add(ToolCallResult.of(CALL, "rain"), role="tool")
    chat.add("It rains.", role="assistant")
    return chat


# Adding, getting, clearing.


def test_each_role_is_added_as_its_entry() -> None:
    chat = Conversation(ScriptedModel())
    assert chat.add("Be brief.", role="system") == 1
    assert chat.add("Look at ", Image("image/png", "aaaa"), "this") == 2
    assert chat.add("I look.", CALL, role="assistant") == 3
    assert chat.add(ToolCallResult.of(CALL, "a cat"), role="tool") == 4
    assert chat.add(ModelInputEntry.of("By entry.", channel="system"), ModelInputEntry.of("And another.")) == 6
    assert [entry.kind for entry in chat.history.entries] == [
        "set_system_instruction",
        "model_input",
        "model_output",
        "tool_call_results",
        "model_input",
        "model_input",
    ]
    assert chat.history.system_instruction == "Be brief."
    assert refusals(chat.history.snapshot()) == []


REFUSED: list[tuple[str, tuple[Any, ...], str]] = [
    ("user", (), "empty (user|assistant) message"),
    ("assistant", (), "empty (user|assistant) message"),
    ("tool", (), "made of ToolCallResult"),
    ("tool", ("words",), "made of ToolCallResult"),
    ("user", (CALL,), "a ToolCallRequest cannot be part of a message of the user"),
    ("user", (ToolCallResult.of(CALL, "x"),), "a ToolCallResult cannot be part of a message of the user"),
    ("assistant", (ToolCallResult.of(CALL, "x"),), "a ToolCallResult cannot be part of a message of the assistant"),
    ("user", (5,), "expected a string or part, got int"),
    ("user", ({"role": "user"},), "empty user message"),
    ("user", ({"text": "Hi."},), 'expected an object such as {"role": "user"'),
    ("user", ({"role": "judge", "content": "guilty"},), "unknown role 'judge'"),
    ("user", ({"role": "user", "content": "Hi."}, "there"), "not both in one call"),
    ("user", (ModelInputEntry.of("a"), "b"), "expected a string or part, got ModelInputEntry"),
    ("system", (Image("image/png", "aaaa"),), "an? .*instruction is text, not Image"),
    ("system", (5,), "is text, not int"),
    ("judge", ("guilty",), "unknown role 'judge'"),
]


@pytest.mark.parametrize(("role", "content", "why"), REFUSED)
def test_an_invalid_message_is_refused_and_not_written(role: Any, content: tuple[Any, ...], why: str) -> None:
    chat = Conversation(ScriptedModel())
    with pytest.raises(ConversationError, match=why):
        chat.add(*content, role=role)
    assert chat.history.version == 0


def test_messages_are_copies() -> None:
    chat = talked()
    before = chat.messages
    chat.add("And tomorrow?")
    assert len(before) == 5
    assert len(chat.messages) == 6
    assert isinstance(before, tuple)
    context = chat.context()
    context.clear()
    assert len(chat.context()) == 6, "what was taken away was a copy"


def test_clearing_keeps_the_instruction_and_the_log_keeps_everything() -> None:
    chat = talked()
    version = chat.history.version
    chat.clear()
    assert words_of(chat.messages) == ["Be brief."]
    assert chat.history.system_instruction == "Be brief."
    assert [entry.sequence_number for entry in chat.history.entries][:version] == list(range(1, version + 1))
    assert not chat.turn.open_calls
    assert chat.add("Hello.") == 2
    chat.history.rollback(version)
    assert words_of(chat.messages) == ["Be brief.", "What is the weather?", "I look.", "", "It rains."]


def test_clearing_without_an_instruction_sets_none() -> None:
    chat = Conversation(ScriptedModel())
    chat.add("Hello.")
    chat.clear()
    assert [entry.kind for entry in chat.history.entries] == ["model_input", "rollback"]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, 0), (1, 1), (3, 3), (5, 5), (6, 5), (1000, 5)], ids=lambda value: str(value)
)
def test_the_last_messages(count: int, expected: int) -> None:
    chat = talked()
    assert chat.recent(count) == chat.messages[len(chat.messages) - expected :]


def test_a_negative_number_of_messages_is_refused() -> None:
    with pytest.raises(ConversationError, match="count=-1: must not be negative"):
        talked().recent(-1)


ROLES: list[tuple[Any, list[str]]] = [
    ("user", ["What is the weather?"]),
    ("assistant", ["I look.", "It rains."]),
    ("tool", [""]),
    ("system", ["Be brief."]),
    (ContextEntryRole.MODEL_INPUT, ["What is the weather?"]),
    (ContextEntryRole.MODEL_OUTPUT, ["I look.", "It rains."]),
    ("tool_result", [""]),
]


@pytest.mark.parametrize(("role", "expected"), ROLES)
def test_messages_by_role(role: Any, expected: list[str]) -> None:
    chat = talked()
    assert words_of(chat.by_role(role)) == expected
    chat.live_screen = "It is noon."
    assert words_of(chat.by_role(role)) == expected
    assert all(entry.live_screen is None for entry in chat.by_role(role)), "messages are those of the log"


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(ConversationError, match="expected user, assistant, tool, system"):
        talked().by_role("judge")  # type: ignore[arg-type]


def test_a_summary_is_shown_to_the_model_but_not_a_message() -> None:
    chat = talked()
    chat.history.compact("They spoke of rain.", chat.history.version)
    assert chat.by_role("user") == ()
    assert "They spoke of rain." in words_of(chat.context())[1]


def test_adding_a_message_counts_without_reading_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Conversation(ScriptedModel())
    assert [chat.add(f"message {number}") for number in range(3)] == [1, 2, 3]
    chat.history.rollback(1)
    assert [chat.add("another"), len(list(chat.messages))] == [2, 2]
    chat.history.compact("so far", chat.history.version)
    assert [chat.add("and one"), len(list(chat.messages))] == [1, 1]

    def unread(_: Conversation) -> tuple[ContextEntry, ...]:
        raise AssertionError("all messages were read")

    with monkeypatch.context() as patched:
        patched.setattr(Conversation, "messages", property(unread))
        assert [chat.add(f"message {number}") for number in range(3)] == [2, 3, 4]
    assert len(list(chat.messages)) == 4


@given(conversations, st.data())
def test_add_always_returns_the_number_of_messages(entries: list[HistoryEntry], data: st.DataObject) -> None:
    chat = Conversation(ScriptedModel())
    for entry in entries:
        append_any(chat.history, entry)
        if data.draw(st.integers(0, 5)) == 0:
            act = data.draw(st.sampled_from(["add", "rollback", "compact"]))
            version = data.draw(st.integers(0, chat.history.version))
            if act == "rollback":
                chat.history.rollback(version)
            elif act == "compact":
                chat.history.compact("so far", version)
            assert chat.add("And?") == len(chat.messages)


# The model.


def echo(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
    """Says how much it was shown."""
    return f"I see {len(context)} entries."


def test_the_model_is_switched_between_turns_by_name_and_by_client() -> None:
    def named(context: Sequence[ContextEntry], options: ProviderCallOptions) -> ScriptedAnswer:
        return f"I am {options.model}."

    provider = FunctionModel(named, "house")
    chat = Conversation("alpha", provider=provider)
    answers = []
    for model in (None, "beta", ScriptedModel("I am a script.", name="script"), "gamma"):
        if model is not None:
            chat.model = model
        answers.append(ToolLoop(chat).run_sync("Who are you?").text)
    assert answers == ["I am alpha.", "I am beta.", "I am a script.", "I am gamma."]
    assert chat.model == "gamma"
    assert chat.client is provider
    origins = [entry.origin for entry in chat.history.entries if isinstance(entry, ModelOutputEntry)]
    assert [(origin.provider, origin.model) for origin in origins if origin] == [
        ("house", "alpha"),
        ("house", "beta"),
        ("script", "script"),
        ("house", "gamma"),
    ]


def test_a_model_of_a_wrong_type_changes_nothing() -> None:
    chat = Conversation("alpha", provider=FunctionModel(echo))
    with pytest.raises(ConversationError, match="a model is a name or a ProviderClient, not int"):
        chat.model = 5  # type: ignore[assignment]
    assert chat.model == "alpha"


def test_clients_that_were_given_are_left_open() -> None:
    class Closing(ScriptedModel):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    model, provider = Closing(), Closing()
    with Conversation(model, provider=provider):
        pass
    with Conversation("any", provider=provider):
        pass
    assert model.closed == provider.closed == 0, "its creator closes it"


def test_settings_and_screen_reach_the_model() -> None:
    model = ScriptedModel("ok", "ok", "ok")
    chat = Conversation(
        model,
        settings=ModelRequest(temperature=0.5),
        context_options=LiveContextOptions(live_screen="From the options."),
    )
    chat.add("Go.")
    asyncio.run(chat.call_model(notice="Mind the gap."))
    screens = iter(["It is noon.", None])
    chat.live_screen = lambda: next(screens)
    asyncio.run(chat.call_model())
    asyncio.run(chat.call_model(settings=ModelRequest(temperature=1.0)))
    assert [asked.options.settings.temperature for asked in model.calls] == [0.5, 0.5, 1.0]
    shown = [next(entry.live_screen for entry in asked.context if entry.live_screen) for asked in model.calls]
    assert shown == ["From the options.\n\nMind the gap.", "It is noon.", "From the options."]


# Sync faces.


def test_the_sync_faces_outside_and_inside_of_a_loop() -> None:
    def use() -> str:
        chat = Conversation(ScriptedModel(call("look"), "Done.", "Again."), tools=World().tools())
        with chat:
            chat.add("Go.")
            chat.call_model_sync()
            assert len(chat.execute_tool_calls_sync()) == 1
            assert chat.call_model_sync().response_markdown == "Done."
            return ToolLoop(chat).run_sync("Once more.").text

    async def inside() -> str:
        return use()

    assert use() == "Again."
    assert asyncio.run(inside()) == "Again."


# Stores.


def test_a_file_is_reopened_by_id_by_prefix_and_as_the_last(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with Conversation(ScriptedModel("Hello."), store=path, system="Be kind.", title="first") as chat:
        ToolLoop(chat).run_sync("Hi.")
        name, messages = chat.id, chat.messages
    with SqliteStore(path) as store:
        assert store.info(name).title == "first"
    for resume in (name, name[:20], "last"):
        with Conversation(ScriptedModel(), store=str(path), resume=resume, system="Be kind.") as again:
            assert again.id == name
            assert again.messages == messages
            assert again.history.version == len(again.history.entries) == 3, "the same instruction is not set again"
    with Conversation(ScriptedModel(), store=path, resume="last", system="Be brief.") as again:
        assert again.history.system_instruction == "Be brief."


def test_a_store_that_was_given_stays_open(store: SqliteStore) -> None:
    with Conversation(ScriptedModel(), store=store) as chat:
        chat.add("Hi.")
    assert store.open(chat.id).version == 1


def test_ids_of_a_reopened_history_stay_unique_even_after_a_rollback() -> None:
    history = AgentHistory()
    chat = Conversation(ScriptedModel(), history=history)
    chat.add("Go.")
    history.rollback(1)
    chat.add(ToolCallRequest("look", "a"), role="assistant")
    chat.add(ToolCallResult.of(ToolCallRequest("look", "a"), "rain"), role="tool")
    fresh = Conversation(ScriptedModel(ToolCallRequest("look", "a")), history=history)
    output = asyncio.run(fresh.call_model())
    assert [request.tool_call_id for request in output.tool_calls] == ["a_2"]


# Bad arguments.

WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Conversation(history=AgentHistory(), store="chats.db"), "not both"),
    (lambda: Conversation(history=AgentHistory(), resume="last"), "not both"),
    (lambda: Conversation(resume="last"), "needs a store"),
    (lambda: Conversation(token_limit=0), "token_limit=.*: must be above 0"),
    (lambda: Conversation(token_limit=-5), "token_limit=.*: must be above 0"),
    (lambda: Conversation(5), "a model is a name or a ProviderClient, not int"),  # type: ignore[arg-type]
    (lambda: Conversation(token_limit="80"), "token_limit='80': must be a whole number, or 'auto'"),  # type: ignore[arg-type]
    (lambda: Conversation(system=["Be brief."]), r"system=\['Be brief\.'\]: expected text"),  # type: ignore[arg-type]
    (lambda: Conversation(live_screen=5).context(), "live_screen is 5: expected text, or a function"),  # type: ignore[arg-type]
    (
        lambda: Conversation(executor=ToolExecutor(ToolRegistry()), state=1),
        "give approval=, hooks= and state= to the Tool",
    ),
    (lambda: Conversation(executor=ToolExecutor(ToolRegistry()), tools=[_look]), "tools= are not those of executor="),
]


def _look() -> str:
    "Look."
    return "rain"


def test_the_tools_of_an_executor_are_offered() -> None:
    model = ScriptedModel(call("_look"), "Rain.")
    registry = ToolRegistry([_look])
    for chat in (
        Conversation(model, executor=ToolExecutor(registry, state="sunny")),
        Conversation(ScriptedModel(), executor=ToolExecutor(registry), tools=registry),
    ):
        assert chat.registry is registry
    chat = Conversation(model, executor=ToolExecutor(registry, state="sunny"))
    assert (ToolLoop(chat).run_sync("Is it raining?").text, chat.state) == ("Rain.", "sunny")
    assert [offered.name for offered in model.calls[0].options.tools] == ["_look"]


@pytest.mark.parametrize(("make", "why"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_arguments_are_refused(make: Callable[[], object], why: str) -> None:
    with pytest.raises(ConversationError, match=why):
        make()


def test_a_failed_open_leaves_no_store_open(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with pytest.raises(UnknownConversation):
        Conversation(ScriptedModel(), store=path, resume="last")
    wrong: Any = 5
    for mistake in (
        {"tools": [wrong]},
        {"tools": wrong},
        {"system": wrong},
        {"settings": {"max_tokens": 5}},
        {"token_limit": 0},
        {"embedded_calls": wrong},
        {"approval": wrong},
        {"hooks": [wrong]},
        {"hooks": Hook()},
    ):
        with pytest.raises(AntiphonError):
            Conversation(ScriptedModel(), store=path, **mistake)
    with SqliteStore(path) as store:
        assert store.count() == 0
    with pytest.raises(AntiphonError):
        Conversation(ScriptedModel(), store=tmp_path)


def test_a_tool_may_be_a_plain_function() -> None:
    def weather(city: str) -> str:
        "Current weather in a city."
        return f"rain in {city}"

    chat = Conversation(ScriptedModel(call("weather", city="Oslo"), "Rain."), tools=[weather])
    ToolLoop(chat).run_sync("Is it raining?")
    (results,) = chat.by_role("tool")
    assert isinstance(results, ToolCallResultsEntry)
    assert results.results[0].result_markdown == "rain in Oslo"


def test_state_reaches_the_tools() -> None:
    from antiphon.tools import ToolContext

    @tool
    def who(context: ToolContext) -> str:
        return str(context.state)

    chat = Conversation(ScriptedModel(call("who"), "Ada."), tools=[who], state="ada")
    ToolLoop(chat).run_sync("Who am I?")
    assert chat.by_role("tool")[0].content[0].result_markdown == "ada"  # type: ignore[union-attr]
