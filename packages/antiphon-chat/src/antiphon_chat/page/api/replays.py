"""API handlers for replays: answer a conversation again with another model from a step on, and compare conversations."""

from __future__ import annotations

from msgspec import Struct, field

from antiphon.conversation.replay import CallPolicy, Replay, compare
from antiphon.http.messages import Response
from antiphon.threads import STORES
from antiphon_chat.page.api.turns import TurnApi
from antiphon_chat.page.open_conversations import OpenConversations
from antiphon_chat.page.request import ApiError, ChatRequest
from antiphon_chat.shared.conversations.branches import make_branch


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """From which step with which model; `calls` is what happens to calls that the log does not have."""

    model: str
    step: str = field(default="1", name="from")
    calls: CallPolicy = "log"
    turns: int | None = None


class ReplayApi:
    """Handles requests about replays."""

    def __init__(self, conversations: OpenConversations, turns: TurnApi) -> None:
        self._conversations = conversations
        self._turns = turns

    async def start(self, request: ChatRequest) -> Response:
        """Start a replay in a branch; its turns run one after the other."""
        wanted = request.read(ReplayRequest)
        live = await self._conversations.open(request.id, request.owner)
        replay = Replay(live.chat.history, wanted.step, calls=wanted.calls, max_turns=wanted.turns)
        await self._turns.admit(live, wanted.model, request.key)
        made = await STORES.run(make_branch, self._conversations.store, request.id, replay.plan.at)
        branch = await self._conversations.open(made.id, request.owner)
        async with branch.writing:
            await branch.set_model(wanted.model)
            await branch.chat.registry.open()
            number = await branch.start_replay(
                replay, wanted.model, lambda: self._turns.admit(branch, wanted.model, request.key)
            )
        return Response.json({"id": made.id, "turn": number}, 201)

    async def compare(self, request: ChatRequest) -> Response:
        """This conversation and the one that `with` names, step by step."""
        other = request.request.query.get("with", "")
        if not other:
            raise ApiError("give the other conversation: ?with=ID")
        histories = [(await self._conversations.open(name, request.owner)).chat.history for name in (request.id, other)]
        return Response.json(await STORES.run(compare, *histories))
