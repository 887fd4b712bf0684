"""What every test may use."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from antiphon.history import SqliteStore

settings.register_profile("everyday", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "chats.db") as store:
        yield store


@pytest.fixture(autouse=True)
def _every_line_is_heard() -> None:
    """A gateway in this process sets how much is logged; the next test begins as if it had not."""
    logging.getLogger("antiphon").setLevel(logging.NOTSET)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logged may hold half a character on purpose; between processes a report travels as UTF-8."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
