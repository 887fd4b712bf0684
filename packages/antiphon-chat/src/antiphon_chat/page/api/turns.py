"""API handlers for turns: start, resume, interrupt, decide on calls, stream events; replay with another model, and compare."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from antiphon.conversation import Decision
from antiphon.conversation.replay import CallPolicy, Replay, compare
from antiphon.http.messages import Response
from antiphon.parts import InputPart
from antiphon.threads import STORES
from antiphon_chat.page.live_conversation import LiveConversation
from antiphon_chat.page.request import ApiError, ChatRequest, parse_int
from antiphon_chat.shared.conversations.branches import branch_points, make_branch, question_before
from antiphon_chat.shared.permissions import allow_always
from antiphon_chat.shared.uploads import ExistingPart, Upload, message_parts

_RUNNING = "a turn is running; wait until it ends, stop it, or send interrupt: true to replace it"


class TurnRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A message, as the page sends it."""

    content: list[Upload]
    model: str = ""
    interrupt: bool = False


class BranchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What to try again: after entry `at`, with another message, or the same one if `at` is its own number."""

    at: int
    content: list[Upload] = []
    model: str = ""


class DecisionRequest(Decision, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person decided on a call, as the page sends it. `always` approves all later calls of the tool too."""

    always: bool = False


async def say(request: ChatRequest) -> Response:
    """Start a turn."""
    turn = request.read(TurnRequest)
    live = await request.chat.conversations.open_to_write(request.id, request.owner)
    if live.is_running and not turn.interrupt:
        raise ApiError(_RUNNING, 409, "running")
    parts = message_parts(turn.content, await _resolve_parts(turn.content, request))
    await request.chat.admit_turn(live, turn.model or live.chat.model, request.key)
    async with live.writing:
        await live.interrupt()
        if turn.model:
            await live.set_model(turn.model)
        return Response.json({"turn": await live.start_turn(*parts)}, 202)


async def resume(request: ChatRequest) -> Response:
    """Resume a turn that stopped."""
    live = await request.open()
    await request.chat.admit_turn(live, live.chat.model, request.key)
    async with live.writing:
        if live.is_running:
            raise ApiError(_RUNNING, 409, "running")
        return Response.json({"turn": await live.start_turn()}, 202)


async def start_branch(request: ChatRequest) -> Response:
    """Start a turn in a new branch: an answer again, perhaps by another model, or an edited message."""
    wanted = request.read(BranchRequest)
    live = await request.open()
    if not wanted.content:
        question_before(live.chat.history, wanted.at + 1)
    parts = message_parts(wanted.content, await _resolve_parts(wanted.content, request)) if wanted.content else ()
    model = wanted.model or live.chat.model or request.chat.default_model
    await request.chat.admit_turn(live, model, request.key)
    store = request.store
    made = await STORES.run(make_branch, store, request.id, wanted.at)
    branch = await request.chat.conversations.open(made.id, request.owner)
    async with branch.writing:
        await branch.set_model(model)
        return Response.json({"id": made.id, "turn": await branch.start_turn(*parts)}, 201)


async def list_branches(request: ChatRequest) -> Response:
    """Where a conversation has alternatives."""
    await request.info()
    points = await STORES.run(branch_points, request.store, request.id)
    return Response.json({"points": points})


async def interrupt(request: ChatRequest) -> Response:
    """Stop the turn."""
    live = await request.open()
    return Response.json({"interrupted": await live.interrupt()})


async def decide(request: ChatRequest) -> Response:
    """Allow a call, deny it, or change its arguments. Once all are decided, the turn continues."""
    live, decision = await request.open(), request.read(DecisionRequest)
    async with live.writing:
        if live.is_running:
            raise ApiError("no call waits for a decision: a turn is running", 409, "running")
        if [call.tool_call_id for call in live.pending] == [decision.tool_call_id]:  # the turn continues after it
            await request.chat.admit(live.chat.model, request.key)
        await live.run_store_call(lambda: _record(live, decision))
        live.publish_entries()
        pending = live.pending
        if not pending:
            await request.chat.prepare_turn()
            await live.start_turn()
    return Response.json({"pending": pending, "running": live.is_running})


async def watch_events(request: ChatRequest) -> Response:
    """The events of a conversation, as they happen."""
    live = await request.open()
    after: int | None = request.number("after")
    if (last := request.request.headers.get("last-event-id", "").strip()) and after is None:
        after = parse_int(last, "Last-Event-ID")
    headers = {
        "content-type": "text/event-stream; charset=utf-8",
        "x-accel-buffering": "no",  # a proxy must not buffer them
    }
    return Response(headers=headers, body=live.watch(after, request.chat.stream_seconds()))


async def _resolve_parts(content: Sequence[Upload], request: ChatRequest) -> dict[ExistingPart, InputPart]:
    """The parts that were sent before, from this client's own conversations."""
    known: dict[ExistingPart, InputPart] = {}
    for given in content:
        if isinstance(given, ExistingPart):
            live = await request.chat.conversations.open(given.conversation, request.owner)
            known[given] = given.find(live.chat.history.entries)
    return known


def _record(live: LiveConversation, decision: DecisionRequest) -> None:
    names = {call.tool_call_id: call.tool_name for call in live.pending}
    live.loop.decide(decision)
    if decision.always and decision.decision == "approve" and decision.tool_call_id in names:
        allow_always(live.chat.history, names[decision.tool_call_id])


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """From which step with which model; `calls` is what happens to calls that the log does not have."""

    model: str
    step: str = field(default="1", name="from")
    calls: CallPolicy = "log"
    turns: int | None = None


async def start_replay(request: ChatRequest) -> Response:
    """Start a replay in a branch; its turns run one after the other."""
    wanted = request.read(ReplayRequest)
    live = await request.open()
    replay = Replay(live.chat.history, wanted.step, calls=wanted.calls, max_turns=wanted.turns)
    await request.chat.admit_turn(live, wanted.model, request.key)
    made = await STORES.run(make_branch, request.store, request.id, replay.plan.at)
    branch = await request.chat.conversations.open(made.id, request.owner)
    async with branch.writing:
        await branch.set_model(wanted.model)
        await branch.chat.registry.open()
        number = await branch.start_replay(
            replay, wanted.model, lambda: request.chat.admit_turn(branch, wanted.model, request.key)
        )
    return Response.json({"id": made.id, "turn": number}, 201)


async def compare_conversations(request: ChatRequest) -> Response:
    """This conversation and the one that `with` names, step by step."""
    other = request.query.get("with", "")
    if not other:
        raise ApiError("give the other conversation: ?with=ID")
    histories = [
        (await request.chat.conversations.open(name, request.owner)).chat.history for name in (request.id, other)
    ]
    return Response.json(await STORES.run(compare, *histories))
