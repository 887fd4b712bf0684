"""The router: names lead where they say, nothing is shown twice, and every attempt is written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import antiphon as ap
from antiphon import extensions
from antiphon.errors import RoutingError
from antiphon.history import ContextEntry, Origin
from antiphon.parts import Text, Thinking, TokenUsage
from antiphon.providers.call import ProviderCallOptions, ProviderClient
from antiphon.providers.default_model import default_model
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.keys.secret import Credential
from antiphon.providers.keys.target_health import CircuitPolicy
from antiphon.providers.retry import RETRY_RULES
from antiphon.providers.router import ProviderRouter, build_client
from antiphon.providers.routes import Route, Target
from antiphon.providers.scripted import FunctionModel, ScriptedModel, Turn, call
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.loss import Loss
from antiphon.wire.output import ErrorKind, ModelOutput, ProviderError
from providers.model_calls import Endless, assembled, left
from providers.sample_answers import QUESTION, deltas_from
from support.installed import needs_chat


def asked(router: ProviderRouter, model: str) -> tuple[list[ModelOutputDelta], ProviderCallOptions]:
    options = ProviderCallOptions(model=model, request_id="r-1")

    async def collect() -> list[ModelOutputDelta]:
        async with router:
            return await deltas_from(router, options)

    return asyncio.run(collect()), options


def router(
    *, routes: Sequence[Route] = (), roles: dict[str, str] | None = None, fallbacks: Sequence[str] = ()
) -> ProviderRouter:
    mine = {"mine": ScriptedModel("mine"), "yours": ScriptedModel("yours")}
    return ProviderRouter(mine, routes=routes, roles=roles or {}, fallbacks=fallbacks)


ROUTES = [
    Route("claude-*", ["anthropic/claude-sonnet-5", "openai/gpt-5.5"]),
    Route("fast", ["mine/small", "mine/small", "claude-haiku-4-5"]),
    Route("everything/*", ["openrouter/*"]),
]
ROLES = {"planner": "claude-opus", "executor": "mine/m", "reviewer": "executor"}

NAMES: list[tuple[str, list[str]]] = [
    ("mine/m", ["mine/m"]),
    ("mine/with/slashes", ["mine/with/slashes"]),
    ("openrouter/openai/gpt-4o", ["openrouter/openai/gpt-4o"]),
    ("mine", ["mine"]),
    ("offline/plain", ["offline/plain"]),
    ("offline", ["offline"]),
    ("claude-opus", ["anthropic/claude-sonnet-5", "openai/gpt-5.5"]),
    ("anthropic/claude-opus", ["anthropic/claude-opus"]),
    ("fast", ["mine/small", "anthropic/claude-haiku-4-5"]),
    ("everything/x", ["openrouter/everything/x"]),
    ("gpt-5.5", ["openai/gpt-5.5"]),
    ("gpt-5-codex", ["openai-responses/gpt-5-codex"]),
    ("o3-mini", ["openai/o3-mini"]),
    ("gemini-3.5-flash", ["gemini/gemini-3.5-flash"]),
    ("smollm2-135m", ["local/smollm2-135m"]),
    ("planner", ["anthropic/claude-sonnet-5", "openai/gpt-5.5"]),
    ("reviewer", ["mine/m"]),
]


@pytest.mark.parametrize(("name", "targets"), NAMES)
def test_names_resolve_to_their_targets(name: str, targets: list[str]) -> None:
    assert [str(target) for target in router(routes=ROUTES, roles=ROLES).resolve(name)] == targets


def test_fallbacks_come_last_and_no_target_is_tried_twice() -> None:
    with_fallbacks = router(routes=ROUTES, fallbacks=["openai/gpt-5.5", "offline/plain"])
    assert [str(target) for target in with_fallbacks.resolve("claude-x")] == [
        "anthropic/claude-sonnet-5",
        "openai/gpt-5.5",
        "offline/plain",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("antropic/claude-sonnet-5", r"unknown provider 'antropic'.*mean anthropic.*providers: mine, yours"),
        ("plannr", r"'plannr'.*mean planner.*roles: executor, planner"),
        ("nonesuch", r"no provider has it.*routes: claude-\*"),
        ("", "no model named"),
    ],
)
def test_an_unknown_name_error_lists_what_exists(name: str, words: str) -> None:
    with pytest.raises(RoutingError, match=words):
        router(routes=ROUTES, roles=ROLES).resolve(name)


def test_roles_in_a_circle_are_refused() -> None:
    with pytest.raises(RoutingError, match="planner -> reviewer -> planner"):
        router(roles={"planner": "reviewer", "reviewer": "planner"}).resolve("planner")


@pytest.mark.parametrize("targets", ["openai/gpt-5", []])
def test_a_route_needs_a_list_of_targets(targets: Sequence[str]) -> None:
    with pytest.raises(RoutingError, match="expected a pattern and a list"):
        Route("claude-*", targets)


@given(st.text(max_size=20))
def test_any_name_resolves_or_is_refused_politely(name: str) -> None:
    with suppress(RoutingError):
        assert router(routes=ROUTES, roles=ROLES).resolve(name)


NEXT = Route("m", ["mine/a", "yours/b"])


def failing(turn: Turn) -> ProviderRouter:
    return ProviderRouter(
        {"mine": ScriptedModel(turn, name="mine"), "yours": ScriptedModel("Yes.", name="yours")}, routes=[NEXT]
    )


NOTHING_SHOWN: list[tuple[str, Turn]] = [
    ("an error", ProviderError("down", "server")),
    ("an error after the start", [Started("x"), Failed(ProviderError("down", "overloaded"))]),
    ("a cut stream", [Started("x"), PartStarted(0, Text("")), UsageReported(TokenUsage(1, 1))]),
    ("a piece of no words", [PartStarted(0, Text("")), PartDelta(0, ""), Failed(ProviderError("down", "timeout"))]),
    ("an empty answer", ModelOutput(stop_reason="end")),
    ("an answer of no words", ""),
    ("an empty thought", [Thinking("")]),
]


@pytest.mark.parametrize(("case", "turn"), NOTHING_SHOWN)
def test_the_next_target_is_tried_before_visible_output(case: str, turn: Turn) -> None:
    deltas, options = asked(failing(turn), "m")
    whole = assembled(deltas)
    assert whole.output.parts == (Text("Yes."),)
    assert whole.is_finished
    assert sum(isinstance(delta, Started) for delta in deltas) == 1
    assert options.report.origin == Origin("yours", "", "b")
    first, second = options.report.attempts
    assert (first.provider, first.model, second.provider, second.error) == ("mine", "a", "yours", None)
    assert first.error is not None


SHOWN: list[tuple[str, list[ModelOutputDelta]]] = [
    ("text", [Started(), PartStarted(0, Text("")), PartDelta(0, "It")]),
    ("whole text", [PartStarted(0, Text("It"))]),
    ("thinking", [PartStarted(0, Thinking("")), PartDelta(0, "Hm")]),
    ("a call's start", [PartStarted(0, call("weather"))]),
]


@pytest.mark.parametrize(("case", "deltas"), SHOWN)
def test_a_failure_after_visible_output_is_passed_on(case: str, deltas: list[ModelOutputDelta]) -> None:
    error = ProviderError("reset", "stream_cut")
    received_deltas, options = asked(failing([*deltas, Failed(error)]), "m")
    assert received_deltas == [*deltas, Failed(error)]
    assert options.report.origin == Origin("mine", "", "a")
    assert [attempt.error for attempt in options.report.attempts] == [error]


@pytest.mark.parametrize("kind", RETRY_RULES)
def test_which_errors_fall_back(kind: ErrorKind) -> None:
    deltas, _ = asked(failing(ProviderError("no", kind)), "m")
    assert assembled(deltas).is_finished == (kind != "invalid_request")


def test_a_context_too_long_is_tried_with_another_model_only() -> None:
    too_long = ProviderError("too many tokens", "context_length")
    mine = ScriptedModel(too_long)
    yours = ScriptedModel("Fits.")
    same = ProviderRouter({"mine": mine, "yours": yours}, routes=[Route("m", ["mine/a", "yours/a", "yours/b"])])
    deltas, _ = asked(same, "m")
    assert assembled(deltas).output.parts == (Text("Fits."),)
    assert [made.options.model for made in yours.calls] == ["b"]


def test_if_every_target_fails_the_last_failure_is_returned() -> None:
    last = ProviderError("second", "server")
    both = ProviderRouter(
        {"mine": ScriptedModel(ProviderError("first", "server")), "yours": ScriptedModel(last)}, routes=[NEXT]
    )
    deltas, options = asked(both, "m")
    assert deltas == [Failed(last)]
    assert [attempt.error.message for attempt in options.report.attempts if attempt.error] == ["first", "second"]


def test_an_empty_answer_of_the_last_is_an_answer() -> None:
    deltas, _ = asked(ProviderRouter({"mine": ScriptedModel(ModelOutput(stop_reason="end"))}), "mine/a")
    assert assembled(deltas).is_finished


@pytest.mark.parametrize("stop_reason", ["content_filter", "refusal", "length"])
def test_an_empty_answer_with_a_reason_does_not_fall_back(stop_reason: str) -> None:
    deltas, options = asked(failing([Started(), Finished(stop_reason)]), "m")  # type: ignore[arg-type]
    assert assembled(deltas).output.stop_reason == stop_reason
    assert options.report.origin.provider == "mine"


class Silent(ProviderClient):
    """A third-party client, which writes nothing into reports and forgets to end its streams."""

    name = "silent"

    def __init__(self) -> None:
        self.is_closed = False

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        options.report.losses.append(Loss("messages[0]", "a thing", "of an answer that was not shown"))
        yield Started()

    async def aclose(self) -> None:
        self.is_closed = True


def test_a_client_without_reports_is_recorded_too() -> None:
    silent = Silent()
    both = ProviderRouter({"mine": silent, "yours": ScriptedModel("Yes.", name="yours")}, routes=[NEXT])
    deltas, options = asked(both, "m")
    assert assembled(deltas).output.parts == (Text("Yes."),)
    assert [attempt.provider for attempt in options.report.attempts] == ["mine", "yours"]
    assert options.report.attempts[0].error is not None
    assert options.report.attempts[0].error.kind == "stream_cut"
    assert options.report.losses == []
    assert silent.is_closed


def test_a_cut_after_visible_output_is_reported() -> None:
    async def half(context: Sequence[ContextEntry], options: ProviderCallOptions) -> AsyncIterator[ModelOutputDelta]:
        yield PartStarted(0, Text("It"))

    class Half(Silent):
        def call_model(
            self, context: Sequence[ContextEntry], options: ProviderCallOptions
        ) -> AsyncIterator[ModelOutputDelta]:
            return half(context, options)

    deltas, _ = asked(ProviderRouter({"mine": Half()}), "mine/a")
    assert isinstance(deltas[-1], Failed)
    assert sum(isinstance(delta, Failed | Finished) for delta in deltas) == 1


def test_the_same_context_object_reaches_the_provider() -> None:
    seen = []

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> str:
        seen.append(context)
        return "Yes."

    asked(ProviderRouter({"mine": FunctionModel(answer)}), "mine/a")
    assert seen[0] is QUESTION


def test_leaving_closes_the_provider_that_answers() -> None:
    endless = Endless()
    assert left(ProviderRouter({"mine": endless.model}), ProviderCallOptions(model="mine/a"), endless)


@pytest.mark.parametrize("failing", ["first", "second"])
def test_every_client_is_closed_also_if_one_cannot_be(failing: str) -> None:
    class Client(ScriptedModel):
        is_closed = False

        async def aclose(self) -> None:
            self.is_closed = True
            if self is clients[failing]:
                raise OSError("the disk is full")

    clients = {"first": Client(), "second": Client()}
    with pytest.raises(OSError, match="disk is full"):
        asyncio.run(ProviderRouter(clients).aclose())
    assert all(client.is_closed for client in clients.values())


def test_one_conversation_plans_here_and_executes_there() -> None:
    planner, executor = ScriptedModel("A plan."), ScriptedModel("Done.")
    both = ProviderRouter({"p": planner, "e": executor}, roles={"planner": "p/big", "executor": "e/small"})
    assert assembled(asked(both, "planner")[0]).output.parts == (Text("A plan."),)
    assert assembled(asked(both, "executor")[0]).output.parts == (Text("Done."),)
    assert planner.calls[0].options.model == "big"


def test_a_provider_that_cannot_be_set_up_is_a_failed_attempt() -> None:
    route = Route("m", ["anthropic/claude-sonnet-5", "mine/a"])
    deltas, options = asked(ProviderRouter({"mine": ScriptedModel("Yes.")}, routes=[route], environ={}), "m")
    assert assembled(deltas).output.parts == (Text("Yes."),)
    error = options.report.attempts[0].error
    assert error is not None
    assert error.kind == "authentication"
    assert "ANTHROPIC_API_KEY" in error.message


CHOICES = [
    ({}, "offline/plain", "not a language model"),
    ({"ANTHROPIC_API_KEY": "canary"}, "anthropic/claude-sonnet-5", "ANTHROPIC_API_KEY is set"),
    ({"OPENAI_API_KEY": "canary", "GEMINI_API_KEY": "canary"}, "openai/gpt-5.5", "also available: gemini/"),
    ({"OPENAI_API_KEY": " "}, "offline/plain", "OPENAI_API_KEY"),
    ({"OLLAMA_HOST": "127.0.0.1:11434"}, "ollama/llama3.2", "OLLAMA_HOST is set"),
    ({"OLLAMA_HOST": "x", "MISTRAL_API_KEY": "canary"}, "mistral/mistral-large-latest", "MISTRAL_API_KEY"),
    ({"ANTIPHON_MODEL": "mine/x", "OPENAI_API_KEY": "canary"}, "mine/x", "named by ANTIPHON_MODEL"),
]


@pytest.mark.parametrize(("environ", "model", "words"), CHOICES)
def test_the_environment_chooses_the_model_and_logs_it(environ: dict[str, str], model: str, words: str) -> None:
    choice = default_model(environ)
    assert choice.model == model
    assert words in str(choice)
    assert "canary" not in str(choice)
    assert "\n" not in str(choice)
    assert ProviderRouter({"mine": ScriptedModel()}).resolve(choice.model) == [Target(*model.split("/", 1))]


@needs_chat
def test_a_router_of_the_environment_needs_no_name() -> None:
    deltas, options = asked(ProviderRouter.from_environment({}), "")
    assert assembled(deltas).is_finished
    assert options.report.origin == Origin("offline", "", "plain")


def test_providers_are_built_from_the_environment_that_was_given() -> None:
    given = ProviderRouter.from_environment({"MISTRAL_API_KEY": "canary", "MISTRAL_BASE_URL": "http://127.0.0.1:9"})
    assert "127.0.0.1:9" in repr(given.client("mistral"))
    assert given.client("mistral") is given.client("mistral")
    asyncio.run(given.aclose())


class NeverShows(ProviderClient):
    """A client whose stream begins and then never shows anything."""

    name = "silent"

    def __init__(self) -> None:
        self.is_left = False

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        try:
            yield Started(model="silent")
            await asyncio.sleep(3600)
        finally:
            self.is_left = True


def test_a_silent_target_is_left_for_the_next_one() -> None:
    silent = NeverShows()
    clients = {"mine": silent, "yours": ScriptedModel("Yes.", name="yours")}
    deltas, options = asked(ProviderRouter(clients, routes=[NEXT], first_token_seconds=0.05), "m")
    assert assembled(deltas).parts == (Text("Yes."),)
    assert silent.is_left
    failed, answered = options.report.attempts
    assert failed.error is not None
    assert (failed.provider, failed.error.kind, failed.error.code) == ("mine", "timeout", "first_token_timeout")
    assert (answered.provider, answered.error) == ("yours", None)
    assert [fallback.summary for fallback in options.report.fallbacks] == ["mine/a first_token_timeout"]


class BreaksOff(ProviderClient):
    """A client whose stream breaks after some text."""

    name = "breaks"

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        yield Started(model="breaks")
        yield PartStarted(0, Text(""))
        yield PartDelta(0, "It rains in ")
        yield UsageReported(TokenUsage(prompt_tokens=4, completion_tokens=3, total_tokens=7))
        yield Failed(ProviderError("cut", "stream_cut"))


@pytest.mark.parametrize(
    ("answer", "continues", "expected"),
    [
        ("It rains in Oslo.", True, "It rains in Oslo."),
        ("It rains in Oslo.", False, "It rains in "),
        ("The sun shines there.", True, "It rains in "),
    ],
    ids=["same text", "not wanted", "another text"],
)
def test_the_next_target_finishes_a_broken_text(answer: str, continues: bool, expected: str) -> None:
    clients = {"mine": BreaksOff(), "yours": ScriptedModel(answer, name="yours")}
    deltas, options = asked(ProviderRouter(clients, routes=[NEXT], continue_streams=continues), "m")
    whole = assembled(deltas)
    assert whole.parts == (Text(expected),)
    assert whole.is_finished is (expected != "It rains in ")
    assert isinstance(deltas[-1], Finished if whole.is_finished else Failed)
    assert sum(isinstance(delta, Started) for delta in deltas) == 1
    if not whole.is_finished:
        assert deltas[-1] == Failed(ProviderError("cut", "stream_cut"))
    assert [attempt.provider for attempt in options.report.attempts] == (["mine", "yours"] if continues else ["mine"])
    assert [fallback.summary for fallback in options.report.fallbacks] == (["mine/a stream_cut"] if continues else [])
    if whole.is_finished:
        assert whole.usage is not None
        assert whole.usage.prompt_tokens >= 4  # that of both answers


def test_a_dead_target_is_skipped_until_it_is_probed() -> None:
    dead = ScriptedModel(*[ProviderError("down", "server")] * 9, name="mine")
    both = ProviderRouter(
        {"mine": dead, "yours": ScriptedModel(*["Yes."] * 9, name="yours")},
        routes=[NEXT],
        circuit=CircuitPolicy(failures=2, seconds=3600.0),
    )

    async def call() -> list[list[str]]:
        tried = []
        for _ in range(5):
            options = ProviderCallOptions(model="m", request_id="r-1")
            await deltas_from(both, options)
            tried.append([attempt.provider for attempt in options.report.attempts])
        return tried

    assert asyncio.run(call()) == [["mine", "yours"]] * 2 + [["yours"]] * 3
    assert [str(circuit.target) for circuit in both.target_health.status()] == ["mine/a"]


def test_a_skipped_target_is_asked_if_the_others_have_no_usable_key() -> None:
    """An open circuit does not turn a call into a failure without any attempt."""
    mine = ScriptedModel(*[ProviderError("down", "server")] * 2, *["Back again."] * 3, name="mine")
    pool = KeyRing([Credential(secret="sk-disabled", name="only")])
    pool.disable("only")
    yours = HttpProviderClient("openai", name="yours", base_url="http://127.0.0.1:9/v1", keys=pool)
    both = ProviderRouter(
        {"mine": mine, "yours": yours}, routes=[NEXT], circuit=CircuitPolicy(failures=2, seconds=3600.0)
    )

    async def call() -> list[tuple[list[str], str]]:
        seen = []
        for _ in range(3):
            options = ProviderCallOptions(model="m", request_id="r-1")
            deltas = await deltas_from(both, options)
            ending = deltas[-1]
            tried = [attempt.provider for attempt in options.report.attempts]
            seen.append((tried, ending.error.code or ending.error.kind if isinstance(ending, Failed) else "answered"))
        return seen

    first, second, third = asyncio.run(call())
    assert first[0] == second[0] == ["mine"]
    assert third == (["mine"], "answered"), (
        "the circuit is open, and yet it was asked, because no other target could be"
    )
    assert both.target_health.status() == [], "the answer closed the circuit"


def test_a_skipped_target_is_not_asked_after_another_one_failed() -> None:
    dead = ScriptedModel(*[ProviderError("down", "server")] * 9, name="mine")
    failing = ScriptedModel("Yes.", "Yes.", *[ProviderError("bad", "invalid_request")] * 3, name="yours")
    both = ProviderRouter(
        {"mine": dead, "yours": failing}, routes=[NEXT], circuit=CircuitPolicy(failures=2, seconds=3600.0)
    )

    async def call() -> list[list[str]]:
        tried = []
        for _ in range(3):
            options = ProviderCallOptions(model="m", request_id="r-1")
            await deltas_from(both, options)
            tried.append([attempt.provider for attempt in options.report.attempts])
        return tried

    assert asyncio.run(call())[2] == ["yours"]


def test_offline_model_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is part of the chat, which need not be installed with the library."""
    monkeypatch.setitem(
        extensions.OURS[extensions.EXTENSIONS], "guided_tour", extensions.Part("not_there", "antiphon-chat")
    )
    with pytest.raises(ap.AntiphonError, match=r"the offline model is in antiphon-chat: pip install antiphon-chat"):
        build_client("offline", {})
    with pytest.raises(ap.AntiphonError, match="pip install antiphon-chat"):
        ap.ToolLoop(ap.Conversation("offline/plain")).run_sync("Hello")
