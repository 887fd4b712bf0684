"""Tests in several processes: collected once, then run in forks of the process that collected them (`pytest --workers 6`).

Importing the tests and what they import takes seven seconds of a core. Processes that each collect for themselves (pytest-xdist)
pay that once each, and once more to compare what they found; a fork has it already, and shares the memory.

A worker runs the tests of one module after the other, because they share fixtures. What the tests of a session share (a database,
a browser) is costly to start, so a module goes to a worker that has it, if there is one. At the end of the run a worker without
work takes single tests of the module that has most left. A worker that dies fails the test it ran, and another takes its place.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

import pytest
from _pytest._io import TerminalWriter
from msgspec import Struct

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

COSTLY_FIXTURES = frozenset({"_chromium", "_postgres_server"})
SECONDS_TO_END = 30.0
"""For a worker to close what its tests share, after an interruption."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run the tests in so many processes; 0: in this one")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run everything in workers, if there is enough for more than one."""
    option = session.config.option
    workers = min(option.workers, len(session.items))
    if workers < 2 or option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
        return None
    _Run(session).play(workers)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


class UntakenTests:
    """The numbers of the tests that were not taken, by their modules; `shared` names the costly fixtures of each test."""

    def __init__(self, modules: Sequence[str], shared: Sequence[frozenset[str]]) -> None:
        self._left: dict[str, deque[int]] = {}
        self._shared: dict[str, frozenset[str]] = {}
        for number, (module, fixtures) in enumerate(zip(modules, shared, strict=True)):
            self._left.setdefault(module, deque()).append(number)
            self._shared[module] = self._shared.get(module, frozenset()) | fixtures
        self._untouched = list(self._left)
        self._started: frozenset[str] = frozenset()

    def take(self, place: Place) -> int | None:
        """The next test for a worker: of its module, of a module that no worker has, or of that of another."""
        module = place.module if self._left.get(place.module) else self._next_module(place.shared)
        if module is not None:
            place.module = module
            place.shared |= self._shared[module]
            return self._left[module].popleft()
        others = [name for name, left in self._left.items() if left]
        if not others:
            return None
        fitting = [name for name in others if self._shared[name] <= place.shared]
        return self._left[max(fitting or others, key=lambda name: len(self._left[name]))].pop()

    def give_back(self, number: int, module: str) -> None:
        """Let others run a test that was taken."""
        self._left[module].appendleft(number)

    def _next_module(self, has: frozenset[str]) -> str | None:
        """One that needs what the worker started, or what no worker did, or nothing; else any."""
        wishes: tuple[Callable[[frozenset[str]], bool], ...] = (
            lambda needs: bool(needs) and needs <= has,
            lambda needs: not needs <= self._started,
            lambda needs: not needs,
            lambda needs: True,
        )
        for is_wished in wishes:
            for module in self._untouched:
                if is_wished(self._shared[module]):
                    self._untouched.remove(module)
                    self._started |= self._shared[module]
                    return module
        return None


class Place(Struct, eq=False):
    """Where a worker is: the module whose tests it runs, and the costly fixtures it has started."""

    module: str = ""
    shared: frozenset[str] = frozenset()


class _Worker(Struct, eq=False):
    process: ForkProcess
    channel: Connection
    place: Place
    taken: deque[int]
    """The test it runs, and the one after it: a test is torn down with the next one in view."""


class _Run:
    """One run of all tests, seen from the process that collected them."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._hook = session, session.config.hook
        self._modules = [item.nodeid.partition("::")[0] for item in session.items]
        costly = [COSTLY_FIXTURES.intersection(getattr(item, "fixturenames", ())) for item in session.items]
        self._queue = UntakenTests(self._modules, costly)
        self._workers: dict[Connection, _Worker] = {}
        self._count = 0

    def play(self, workers: int) -> None:
        capture = self._session.config.pluginmanager.getplugin("capturemanager")
        capture.suspend_global_capture(in_=True)
        try:
            for _ in range(workers):
                self._start()
            while self._workers:
                for channel in wait(list(self._workers)):
                    assert isinstance(channel, Connection)
                    self._listen(self._workers[channel])
        finally:
            for worker in self._workers.values():
                worker.process.join(SECONDS_TO_END)  # an interruption reached it as well
                worker.process.kill()
            capture.resume_global_capture()

    def _start(self) -> None:
        context = get_context("fork")
        ours, theirs = context.Pipe()
        others = (ours, *self._workers)  # their ends of this process: a worker must notice that it is gone
        process = context.Process(target=_work, args=(self._session, theirs, others, self._count), daemon=False)
        process.start()
        theirs.close()
        self._count += 1
        worker = self._workers[ours] = _Worker(process, ours, Place(), deque())
        self._send_next(worker)

    def _send_next(self, worker: _Worker) -> None:
        is_over = self._session.shouldfail or self._session.shouldstop
        number = None if is_over else self._queue.take(worker.place)
        if number is not None:
            worker.taken.append(number)
        worker.channel.send(number)

    def _listen(self, worker: _Worker) -> None:
        try:
            message = worker.channel.recv()
        except (EOFError, ConnectionResetError):
            self._end(worker)
            return
        config = self._session.config
        if isinstance(message, warnings.WarningMessage):
            self._hook.pytest_warning_recorded.call_historic(
                kwargs={"warning_message": message, "when": "runtest", "nodeid": "", "location": None}
            )
        elif message is None:
            self._send_next(worker)
        else:
            report = self._hook.pytest_report_from_serializable(config=config, data=message)
            if report.when == "setup":
                self._hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
            self._hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                worker.taken.popleft()
                self._hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def _end(self, worker: _Worker) -> None:
        """A worker is gone: it had nothing more to do, or it died in a test."""
        del self._workers[worker.channel]
        worker.channel.close()
        worker.process.join()
        if not worker.taken:
            return
        item, *following = (worker.taken.popleft(), *worker.taken)
        for number in following:
            self._queue.give_back(number, self._modules[number])
        self._hook.pytest_runtest_logreport(report=_report_of_death(self._session.items[item], worker.process.exitcode))
        self._start()


def _report_of_death(item: pytest.Item, code: int | None) -> pytest.TestReport:
    text = f"the process that ran {item.nodeid} died, exit code {code}"
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), "failed", text, "call")


def _work(session: pytest.Session, channel: Connection, others: Sequence[Connection], number: int) -> None:
    """Run what comes through the channel, until there is nothing more."""
    for other in others:
        other.close()
    random.seed()
    _become_worker(session.config, channel, number)
    try:
        current = channel.recv()
        while current is not None:
            channel.send(None)
            following = channel.recv()
            item, after = session.items[current], None if following is None else session.items[following]
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            current = following
    except (KeyboardInterrupt, EOFError):  # of the run; the worker only closes what its tests share
        session._setupstate.teardown_exact(None)


def _become_worker(config: pytest.Config, channel: Connection, number: int) -> None:
    """Send what is found instead of printing it, and have files and a folder of its own."""
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(_Reporter(config, channel), "terminalreporter")
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # into files that all workers would share
    capture.start_global_capturing()
    folders = config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.getbasetemp() / f"worker{number}"
    folders._basetemp.mkdir()


class _Reporter:
    """The terminal reporter of a worker: it sends reports. The stacks of a test that takes too long are written to `_tw`."""

    def __init__(self, config: pytest.Config, channel: Connection) -> None:
        self._hook, self._config, self._send = config.hook, config, channel.send

    @property
    def _tw(self) -> TerminalWriter:
        return TerminalWriter(sys.stderr)  # as it is captured now

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._send(self._hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        self._send(warning_message)
