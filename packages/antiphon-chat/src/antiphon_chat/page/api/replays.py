"""API handlers for replays: answer a conversation again with another model from a step on, and compare conversations."""

from __future__ import annotations

from msgspec import Struct, field

from antiphon.conversation.replay import CallPolicy, Replay, compare
from antiphon.http.messages import Response
from antiphon.threads import STORES
from antiphon_chat.page.request import ApiError, ChatRequest
from antiphon_chat.shared.conversations.branches import make_branch


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
