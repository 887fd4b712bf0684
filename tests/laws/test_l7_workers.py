"""L7 across workers: after any kill, pause or stop, every run ends, nothing that finished is done again, and
a process that lost its lease cannot write. The workers are real processes."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from antiphon.conversation import Turn
from antiphon.history import DebugLogEntry, HistoryStore, Run
from antiphon.runs import Runs
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from runs.workers import EVERYDAY, PLACES, Place, WorkerProcess, check_log, over, place_asked_for, workers
from support.planned_turns import results_in
from support.waiting import until


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_asked_for(request, tmp_path)


@pytest.fixture(params=EVERYDAY)
def everyday_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The same where the other store is left to the long run: what is looked at is the worker."""
    return place_asked_for(request, tmp_path)


def ask(store: HistoryStore, *plan: list[str], kind: str = "work") -> Run:
    return Runs(store).submit("Go.", kind=kind, options={"plan": plan}, code=2)


@pytest.mark.parametrize("number", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_one_of_three_workers_is_killed_for_good(place: Place, number: int) -> None:
    chance = random.Random(number)
    with place.open() as store, workers(place, 3, "--slots", "4", lease=2) as three:
        until(lambda: all(" started: kinds" in worker.log for worker in three), "all of them are at work")
        runs: list[Run] = []

        def submit(count: int) -> None:
            for _ in range(count):
                plan = ([chance.choice(["look", "put", "send"]) for _ in range(chance.randint(1, 3))] for _ in range(3))
                runs.append(ask(store, *plan))

        victim = three[chance.randrange(3)]

        def is_victim_busy() -> bool:
            done = store.runs.counts().get("done", 0)
            if done == len(runs):  # all done before this process looked: it needs more
                submit(number)
            return done >= number // 5 and played_by(store, victim) > 1

        until(is_victim_busy)
        victim.signal(signal.SIGKILL)
        ended = over(store, *runs)
        assert {(run.state, run.reason) for run in ended} == {("done", "answered")}
        assert any(run.attempts > 1 for run in ended), "it was killed while it played"
        for run in ended:
            check_log(place, store, run)
        assert all(worker.is_alive for worker in three if worker is not victim)


def played_by(store: HistoryStore, worker: WorkerProcess) -> int:
    """How many runs a worker holds now."""
    running = store.runs.list(state="running", limit=100)
    return sum(run.lease is not None and f":{worker.pid}:" in run.lease.holder for run in running)


def test_a_worker_dies_in_the_middle_of_tools(everyday_place: Place) -> None:
    place = everyday_place
    with place.open() as store:
        again = ask(store, ["look"], ["put", "hold_put"], ["look"])
        once = ask(store, ["look"], ["send", "hold_send"], ["look"])
        with WorkerProcess(place) as doomed:
            until(lambda: place.began("hold_put") and place.began("hold_send"))
            logs = [store.open(run.conversation) for run in (again, once)]
            # One of the two calls is done, and that is written down.
            until(
                lambda: all(log.refresh() is not None and log.entries[-1].kind == "tool_call_finished" for log in logs)
            )
            doomed.signal(signal.SIGKILL)
            doomed.wait()
        place.go()
        with WorkerProcess(place) as heir:
            assert [run.state for run in over(store, again, once)] == ["done", "done"]
        first, second = place.began("hold_put")
        assert first.key == second.key
        assert (first.process, second.process) == (doomed.pid, heir.pid)
        assert [len(place.began(name)) for name in ("put", "send", "hold_send")] == [1, 1, 1]
        assert (check_log(place, store, again), check_log(place, store, once)) == (0, 1)
        assert UNKNOWN_OUTCOME in results_in(store.open(once.conversation).entries).values()


def test_a_zombie_writes_nothing_and_keeps_running(place: Place) -> None:
    with place.open() as store, WorkerProcess(place) as zombie:
        run = ask(store, ["look"], ["hold_put"], ["look"])
        until(lambda: place.began("hold_put"))
        beat = store.current_lease(run.conversation)
        until(
            lambda: store.current_lease(run.conversation) != beat
        )  # just after a beat, so that it holds no lock of the store
        zombie.signal(signal.SIGSTOP)
        place.go()
        with WorkerProcess(place) as heir:
            over(store, run)
            version = store.open(run.conversation).version
        zombie.signal(signal.SIGCONT)
        until(lambda: "lease" in zombie.log, "it learns that the lease is lost")
        later = ask(store, ["look"], ["put"])
        assert over(store, later)[0].state == "done"
        history = store.open(run.conversation)
        assert history.version == version, "nothing of the zombie is written"
        assert check_log(place, store, run) == 0
        assert {each.process for each in place.traced() if later.conversation in each.key} == {zombie.pid}
        assert heir.pid in {each.process for each in place.began("hold_put")}
        assert "Traceback" not in zombie.log


def test_a_stopped_worker_hands_its_runs_over_immediately(place: Place) -> None:
    with place.open() as store, WorkerProcess(place, "--grace", "0.2", lease=600) as stopped:
        run = ask(store, ["look"], ["hold_put"], ["look"])
        until(lambda: place.began("hold_put"))
        stopped.signal(signal.SIGTERM)
        assert stopped.wait() == 0
        waiting = store.runs.get(run.id)
        assert (waiting.display_state, waiting.reason) == ("waiting", "handed back by a worker that stopped")
        turn = Turn.of(store.open(run.conversation).snapshot())
        assert (turn.ended, len(turn.open_calls)) == ("", 1), "the turn is not over and was not interrupted"
        place.go()
        with WorkerProcess(place, lease=600):
            assert over(store, run)[0].reason == "answered"
        assert check_log(place, store, run) == 0
        notes = [entry.category for entry in store.open(run.conversation).entries if isinstance(entry, DebugLogEntry)]
        assert notes == ["run", "run claimed"]
        assert "Traceback" not in stopped.log


def test_within_the_grace_a_run_comes_to_its_end(everyday_place: Place) -> None:
    place = everyday_place
    with place.open() as store, WorkerProcess(place, "--grace", "60", lease=600) as stopped:
        run = ask(store, ["hold_put"], ["look"])
        until(lambda: place.began("hold_put"))
        stopped.signal(signal.SIGINT)
        later = ask(store, ["look"])
        time.sleep(0.1)
        place.go()
        assert stopped.wait() == 0
        assert store.runs.get(run.id).reason == "answered"
        assert store.runs.get(later.id).state == "waiting", "it takes no more"


def test_a_second_stop_signal_does_not_wait(everyday_place: Place) -> None:
    place = everyday_place
    with place.open() as store, WorkerProcess(place, "--grace", "600", lease=600) as stopped:
        run = ask(store, ["hold_put"])
        until(lambda: place.began("hold_put"))
        stopped.signal(signal.SIGTERM)
        time.sleep(0.2)
        assert stopped.is_alive
        stopped.signal(signal.SIGTERM)
        assert stopped.wait() == 0
        assert store.runs.get(run.id).display_state == "waiting"


def test_a_run_that_kills_its_workers_is_given_up(everyday_place: Place) -> None:
    place = everyday_place
    with place.open() as store:
        run = Runs(store).submit("Die.", kind="poison")
        deaths = 0
        while not store.runs.get(run.id).is_over:
            with WorkerProcess(place, "--once", lease=0.2) as worker:
                deaths += worker.wait() == -signal.SIGKILL
            until(lambda: store.current_lease(run.conversation) is None)
        given_up = store.runs.get(run.id)
        assert given_up.state == "failed"
        assert "5 workers in a row" in given_up.reason
        assert deaths == 5
