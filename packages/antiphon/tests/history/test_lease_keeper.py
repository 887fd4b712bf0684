"""`LeaseKeeper` and `hold_lease` on both stores: renewal, loss, a stuck event loop, cancellation."""

from __future__ import annotations

import asyncio
import threading

import pytest

from antiphon import Text
from antiphon.errors import LeaseHeld, LeaseLost, StoreUnreachable
from antiphon.history import AgentHistory, HistoryStore, Lease, LeaseKeeper, ModelInputEntry, hold_lease
from support.waiting import until


def expire(store: HistoryStore, lease: Lease) -> None:
    """Let another holder have the conversation."""
    store.release(lease)
    assert store.claim(lease.conversation, "another") is not None


def question(text: str = "Hello") -> ModelInputEntry:
    return ModelInputEntry((Text(text),))


def test_keeper_renews_until_release(any_store: HistoryStore) -> None:
    chat = any_store.create()
    renewed: list[Lease] = []
    keeper = LeaseKeeper(any_store, 0.6)
    lease = keeper.claim(chat.id, "me", on_lost=lambda _: None, on_renewed=renewed.append)
    until(lambda: len(renewed) >= 4, "the lease was renewed four times")
    assert renewed[-1].expires > lease.expires
    assert any_store.claim(chat.id, "another") is None
    keeper.release(lease)
    assert any_store.current_lease(chat.id) is None
    until(lambda: keeper._thread is None, "the thread ended without leases")
    keeper.release(lease)


def test_claim_names_present_holder(any_store: HistoryStore) -> None:
    chat = any_store.create()
    any_store.claim(chat.id, "another")
    with pytest.raises(LeaseHeld, match="is leased by another until"):
        LeaseKeeper(any_store).claim(chat.id, "me", on_lost=lambda _: None)


def test_loss_is_reported_once(any_store: HistoryStore) -> None:
    chat, other = any_store.create(), any_store.create()
    lost: list[LeaseLost] = []
    renewed: list[Lease] = []
    keeper = LeaseKeeper(any_store, 0.3)
    lease = keeper.claim(chat.id, "me", on_lost=lost.append)
    keeper.claim(other.id, "me", on_lost=lost.append, on_renewed=renewed.append)
    expire(any_store, lease)
    until(lambda: lost and len(renewed) >= 3, "the loss was reported and the other lease renewed")
    assert len(lost) == 1
    keeper.close()


def test_keeper_survives_unreachable_store_and_failing_callback(any_store: HistoryStore) -> None:
    class Flaky:
        def __init__(self) -> None:
            self.attempts = 0

        def renew(self, lease: Lease, seconds: float) -> Lease:
            self.attempts += 1
            if self.attempts < 3:
                raise StoreUnreachable("away") if self.attempts == 1 else ValueError("broken")
            return any_store.renew(lease, seconds)

    chat = any_store.create()
    lease = any_store.claim(chat.id, "me", 60.0)
    assert lease is not None
    renewed: list[Lease] = []

    def fail(lease: Lease) -> None:
        renewed.append(lease)
        raise RuntimeError("callback")

    keeper = LeaseKeeper(Flaky(), 0.15)  # type: ignore[arg-type]
    keeper.add(lease, on_lost=lambda _: None, on_renewed=fail)
    until(lambda: len(renewed) >= 2, "the lease was renewed after the outage")
    keeper.close()


def test_stuck_event_loop_lets_leases_expire(any_store: HistoryStore) -> None:
    chat = any_store.create()
    renewed: list[Lease] = []

    async def main() -> None:
        keeper = LeaseKeeper(any_store, 0.3, stuck_after=0.5)
        keeper.watch(asyncio.get_running_loop())
        keeper.claim(chat.id, "me", on_lost=lambda _: None, on_renewed=renewed.append)
        while len(renewed) < 3:
            await asyncio.sleep(0.01)
        until(lambda: any_store.current_lease(chat.id) is None, "the lease expired")  # blocks the loop
        keeper.close()

    asyncio.run(main())


def test_hold_lease_returns_result_and_releases(any_store: HistoryStore) -> None:
    chat = any_store.create()

    async def work(history: AgentHistory, lease: Lease) -> int:
        history.append(question())
        with pytest.raises(LeaseHeld):
            any_store.open(chat.id).append(question())
        return history.version

    assert asyncio.run(hold_lease(any_store, chat.id, work)) == 1
    assert any_store.current_lease(chat.id) is None


@pytest.mark.parametrize("ending", ["lost", "cancelled"])
def test_history_is_sealed_before_work_is_cancelled(any_store: HistoryStore, ending: str) -> None:
    chat = any_store.create()
    refused: list[LeaseLost] = []
    renewals = threading.Event()

    async def main() -> None:
        working = asyncio.Event()
        leases: list[Lease] = []

        async def work(history: AgentHistory, lease: Lease) -> None:
            history.append(question())
            leases.append(lease)
            working.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                with pytest.raises(LeaseLost) as caught:
                    history.append(question("last words"))
                refused.append(caught.value)
                raise

        async def on_renewed() -> None:
            renewals.set()

        held = asyncio.ensure_future(hold_lease(any_store, chat.id, work, seconds=0.3, on_renewed=on_renewed))
        await working.wait()
        if ending == "cancelled":
            assert await asyncio.to_thread(renewals.wait, 20)
            held.cancel()
            with pytest.raises(asyncio.CancelledError):
                await held
        else:
            expire(any_store, leases[0])
            with pytest.raises(LeaseLost):
                await held

    asyncio.run(main())
    assert len(refused) == 1
    assert any_store.open(chat.id).version == 1
    assert (any_store.current_lease(chat.id) is None) == (ending == "cancelled")


def test_on_cancel_may_let_the_work_finish(any_store: HistoryStore) -> None:
    chat = any_store.create()

    async def main() -> str:
        begun, stop = asyncio.Event(), asyncio.Event()

        async def work(history: AgentHistory, lease: Lease) -> str:
            begun.set()
            await stop.wait()
            history.append(question("the end"))
            return "interrupted"

        async def on_cancel() -> bool:
            stop.set()
            return True

        held = asyncio.ensure_future(hold_lease(any_store, chat.id, work, on_cancel=on_cancel))
        await begun.wait()
        held.cancel()
        return await held

    assert asyncio.run(main()) == "interrupted"
    assert any_store.open(chat.id).version == 1


def test_sealed_history_can_be_read_and_forked(any_store: HistoryStore) -> None:
    chat = any_store.create()
    chat.append(question())
    chat.seal("handed to another worker")
    chat.seal("ignored: the first reason counts")
    with pytest.raises(LeaseLost, match="handed to another worker"):
        chat.append(question())
    any_store.open(chat.id).append(question("from elsewhere"))
    assert len(chat.refresh()) == 1
    assert chat.fork().version == 2
