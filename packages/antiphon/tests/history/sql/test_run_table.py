"""The table of runs: asked for, claimed, settled, cancelled and woken, each in one step that happens whole or not at all."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from antiphon.errors import LeaseHeld, LeaseLost, RunStateError, TooManyRuns, UnknownConversation, UnknownRun
from antiphon.history import HistoryStore, ModelInputEntry, Run
from antiphon.history.search_text import searchable_text
from antiphon.history.store import RunState
from antiphon.parts import Image

QUESTION = ModelInputEntry.of("Is it raining in Oslo?")
KINDS = {"chat": 0}


def submitted(store: HistoryStore, text: str = "hello", **options: object) -> Run:
    return store.runs.submit(ModelInputEntry.of(text), **{"kind": "chat", **options})  # type: ignore[arg-type]


def claim(store: HistoryStore, seconds: float = 60, holder: str = "worker", **options: object) -> Run:
    run = store.runs.claim(holder, seconds, **{"kinds": KINDS, **options})  # type: ignore[arg-type]
    assert run is not None
    assert run.lease is not None
    return run


def end(store: HistoryStore, run: Run, state: RunState = "done", reason: str = "") -> Run:
    assert run.lease is not None
    return store.runs.settle(run.id, run.lease, state, reason)


def test_a_run_is_the_question_in_a_new_conversation_and_a_row(any_store: HistoryStore) -> None:
    run = any_store.runs.submit(
        QUESTION, kind="weather", title="Rain", code=3, provider="anthropic", options={"city": "Oslo", "days": [1, 2]}
    )
    assert (run.display_state, run.kind, run.code, run.provider) == ("waiting", "weather", 3, "anthropic")
    assert run.options == {"city": "Oslo", "days": [1, 2]}
    assert any_store.info(run.conversation).title == "Rain"
    history = any_store.open(run.conversation)
    assert [searchable_text(entry) for entry in history.entries] == ["Is it raining in Oslo?"]
    assert any_store.runs.get(run.id) == run
    assert any_store.runs.get(run.id[-8:]) == run
    assert any_store.runs.get("last") == run


def test_a_question_may_bring_a_picture(any_store: HistoryStore) -> None:
    picture = ModelInputEntry((Image(media_type="image/png", data="iVBORw0K" + "A" * 200_000),))
    run = any_store.runs.submit(picture, kind="chat")
    (entry,) = any_store.open(run.conversation).entries
    assert isinstance(entry, ModelInputEntry)
    assert entry.content == picture.content


def test_a_run_may_continue_an_existing_log(any_store: HistoryStore) -> None:
    chat = any_store.create()
    chat.append(QUESTION)
    run = any_store.runs.submit(None, kind="chat", conversation=chat.id[:10])
    assert run.conversation == chat.id
    assert any_store.open(chat.id).version == 1


@pytest.mark.parametrize(
    ("conversation", "question", "error"), [(None, None, RunStateError), ("unknown-id", QUESTION, UnknownConversation)]
)
def test_a_run_without_a_question_or_conversation_is_refused(
    any_store: HistoryStore, conversation: str | None, question: ModelInputEntry | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        any_store.runs.submit(question, kind="chat", conversation=conversation)
    assert any_store.count() == 0
    assert any_store.runs.counts() == {}
    with pytest.raises(UnknownRun, match="runs list"):
        any_store.runs.get("last")


def test_a_conversation_has_one_run_that_is_not_over(any_store: HistoryStore) -> None:
    run = submitted(any_store)
    with pytest.raises(RunStateError, match=f"{run.id}, waiting"):
        submitted(any_store, "and this?", conversation=run.conversation)
    claim(any_store)
    with pytest.raises(RunStateError, match=f"{run.id}, running"):
        submitted(any_store, "and this?", conversation=run.conversation)
    assert any_store.open(run.conversation).version == 1  # the question that was refused is not in the log
    any_store.runs.cancel(run.id)
    assert any_store.runs.get(run.id).state == "waiting"  # it is being played


def test_a_leased_conversation_accepts_no_run(any_store: HistoryStore) -> None:
    chat = any_store.create()
    any_store.claim(chat.id, "a graph")
    with pytest.raises(LeaseHeld, match="a graph"):
        submitted(any_store, conversation=chat.id)
    assert any_store.runs.counts() == {}


def test_the_oldest_is_claimed_first_and_by_one(any_store: HistoryStore) -> None:
    runs = [submitted(any_store, str(number)) for number in range(3)]
    got = [claim(any_store, holder=f"worker {number}") for number in range(3)]
    assert [run.id for run in got] == [run.id for run in runs]
    assert [run.attempts for run in got] == [1, 1, 1]
    assert {run.display_state for run in got} == {"running"}
    assert any_store.runs.claim("late", 60, kinds=KINDS) is None
    assert any_store.runs.counts() == {"running": 3}
    assert [run.id for run in any_store.runs.list(state="running", limit=2)] == [runs[2].id, runs[1].id]
    assert any_store.runs.list(state="waiting") == []


def test_the_run_of_a_worker_that_died_is_claimed_by_another(any_store: HistoryStore) -> None:
    submitted(any_store)
    dead = claim(any_store, 1e-6, "dead")
    heir = claim(any_store, 60, "heir")
    assert (heir.id, heir.attempts) == (dead.id, 2)
    assert dead.lease is not None
    with pytest.raises(LeaseLost):
        end(any_store, dead)
    with pytest.raises(LeaseLost):
        any_store.open(dead.conversation, lease=dead.lease).append(QUESTION)
    assert end(any_store, heir, "done", "finished").reason == "finished"
    assert any_store.runs.claim("third", 60, kinds=KINDS) is None


def test_settling_gives_the_lease_back(any_store: HistoryStore) -> None:
    submitted(any_store)
    run = claim(any_store)
    assert end(any_store, run, "suspended").display_state == "suspended"
    assert any_store.current_lease(run.conversation) is None
    with pytest.raises(LeaseLost):
        end(any_store, run)
    any_store.open(run.conversation).append(QUESTION)  # a person may write now
    assert any_store.runs.wake(run.id).display_state == "waiting"
    assert end(any_store, claim(any_store)).is_over


def test_a_run_waits_until_it_is_due(any_store: HistoryStore) -> None:
    submitted(any_store)
    run = claim(any_store)
    assert run.lease is not None
    soon = datetime.now(UTC) + timedelta(hours=1)
    waiting = any_store.runs.settle(run.id, run.lease, "waiting", "the provider is away", due=soon)
    assert abs(waiting.due - soon) < timedelta(milliseconds=1)
    assert any_store.runs.claim("worker", 60, kinds=KINDS) is None
    # It waits by itself: it needs no wake call, and waking it does not hurry it.
    assert any_store.runs.wake(run.id).due == waiting.due


def test_a_worker_is_given_what_its_code_can_play(any_store: HistoryStore) -> None:
    submitted(any_store, kind="research", code=2)
    assert any_store.runs.claim("older", 60, kinds={"research": 1, "chat": 9}) is None
    assert any_store.runs.claim("other", 60, kinds={}) is None
    assert claim(any_store, kinds={"research": 2}).kind == "research"


def test_no_more_runs_of_a_provider_than_its_limit(any_store: HistoryStore) -> None:
    for provider in ("a", "a", "a", "b"):
        submitted(any_store, provider=provider)
    limits = {"a": 2, "b": 5, "c": 0}
    got = [claim(any_store, limits=limits) for _ in range(3)]
    assert [run.provider for run in got] == ["a", "a", "b"]
    assert any_store.runs.claim("worker", 60, kinds=KINDS, limits=limits) is None
    end(any_store, got[0])
    assert claim(any_store, limits=limits).provider == "a"


def test_concurrent_claims_share_the_runs_and_keep_the_limit(any_store: HistoryStore) -> None:
    for number in range(30):
        submitted(any_store, str(number), provider="a" if number % 2 else "b")
    got: list[str] = []
    start = threading.Barrier(6)

    def work() -> None:
        start.wait()
        while run := any_store.runs.claim("worker", 60, kinds=KINDS, limits={"a": 4}):
            got.append(run.provider + run.id)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 15 + 4
    assert sum(run.startswith("a") for run in got) == 4


def test_back_pressure(any_store: HistoryStore) -> None:
    for _ in range(2):
        submitted(any_store, max_waiting=2)
    with pytest.raises(TooManyRuns, match="2 runs are already queued"):
        submitted(any_store, max_waiting=2)
    assert any_store.count() == 2
    claim(any_store)
    submitted(any_store, max_waiting=2)


def test_cancelling(any_store: HistoryStore) -> None:
    waiting = submitted(any_store)
    cancelled = any_store.runs.cancel(waiting.id, "not needed")
    assert (cancelled.state, cancelled.reason) == ("cancelled", "not needed")
    assert any_store.runs.cancel(waiting.id, "again").reason == "not needed"
    submitted(any_store)
    run = claim(any_store)
    asked = any_store.runs.cancel(run.id, "enough")
    assert (asked.display_state, asked.is_cancelled) == ("running", True)
    assert end(any_store, run, "waiting").state == "cancelled"  # it does not wait again
    submitted(any_store)
    run = claim(any_store)
    any_store.runs.cancel(run.id)
    assert end(any_store, run, "done").state == "done"  # it was faster
    submitted(any_store)
    dead = claim(any_store, 1e-6)
    assert any_store.runs.cancel(dead.id).state == "cancelled"


def test_waking(any_store: HistoryStore) -> None:
    submitted(any_store)
    run = end(any_store, claim(any_store), "failed", "it broke")
    woken = any_store.runs.wake(run.id)
    assert (woken.display_state, woken.attempts, woken.reason) == ("waiting", 0, "")
    done = end(any_store, claim(any_store))
    assert any_store.runs.wake(done.id).state == "done"
    failed = end(any_store, _next(any_store, run.conversation), "failed")
    other = submitted(any_store, conversation=run.conversation)
    with pytest.raises(RunStateError, match=other.id):
        any_store.runs.wake(failed.id)


def _next(store: HistoryStore, conversation: str) -> Run:
    submitted(store, conversation=conversation)
    return claim(store)


def test_a_deleted_conversation_takes_its_runs_along(any_store: HistoryStore) -> None:
    run = submitted(any_store)
    any_store.delete(run.conversation)
    assert any_store.runs.list() == []
    assert any_store.runs.claim("worker", 60, kinds=KINDS) is None


def test_runs_are_listed_the_latest_first(any_store: HistoryStore) -> None:
    runs = [submitted(any_store, str(number)) for number in range(5)]
    end(any_store, claim(any_store))
    listed = any_store.runs.list
    assert [run.id for run in listed()] == [run.id for run in reversed(runs)]
    assert [run.id for run in listed(limit=2, offset=1)] == [runs[3].id, runs[2].id]
    assert [run.id for run in listed(state="done")] == [runs[0].id]
    assert [run.id for run in listed(conversation=runs[2].conversation)] == [runs[2].id]
    assert any_store.runs.counts() == {"done": 1, "waiting": 4}
