"""The fixture `antiphon_tape` and the option `--tape` for pytest. Name it in the `conftest.py` at the root of your tests:

    pytest_plugins = ["antiphon_devtools.cassettes.pytest_plugin"]

It is not loaded otherwise, so an installed Antiphon costs a test run nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, Unpack

import pytest

from antiphon_devtools.cassettes.use_tape import MODES, TapedGateway, TapeOptions, use_tape

FOLDER = "tapes"
_UNSAFE = re.compile(r"[^\w.+=-]+")


class UseTape(Protocol):
    """The fixture `antiphon_tape`: `use_tape` with the name of a tape instead of its path."""

    def __call__(
        self, name: str | os.PathLike[str] = "", **options: Unpack[TapeOptions]
    ) -> AbstractContextManager[TapedGateway]: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("antiphon").addoption(
        "--tape",
        choices=MODES,
        help="what tests with antiphon_tape do: record if there is no tape (auto, the default), record a new one, replay and "
        "never ask a provider, or use no tape (none)",
    )


@pytest.fixture(scope="session")
def antiphon_tape_config() -> TapeOptions:
    """Options of `use_tape` for all tests, such as `config` or `ignore`. Define a fixture of this name to change them."""
    return {}


@pytest.fixture
def antiphon_tape(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, antiphon_tape_config: TapeOptions
) -> UseTape:
    """`with antiphon_tape("name") as tape:` records `tapes/name.db` beside the test file, and plays it from then on.

    In the block the official SDKs of OpenAI, Anthropic and Google use the gateway of the tape without a change, by their
    environment variables. Without a name the tape has that of the test. Other arguments are those of `use_tape`.
    """

    @contextmanager
    def open_tape(name: str | os.PathLike[str] = "", **options: Unpack[TapeOptions]) -> Iterator[TapedGateway]:
        named = _UNSAFE.sub("-", request.node.name).strip("-") if name == "" else os.fspath(name)
        path = Path(named if named.endswith(".db") else f"{named}.db")
        chosen: TapeOptions = {"mode": request.config.getoption("--tape"), **antiphon_tape_config, **options}
        with use_tape(request.path.parent / FOLDER / path, **chosen) as tape, monkeypatch.context() as variables:
            for variable, value in tape.environment.items():
                variables.setenv(variable, value)
            yield tape

    return open_tape
