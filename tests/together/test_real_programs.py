"""A session of each real program is continued in each other one: nothing of the conversation is missing there.

The programs come from npm, once, into `.clients` (or `$ANTIPHON_CLIENTS`), and talk to an upstream on this machine that refuses
what the provider's API refuses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from antiphon.parts import Image, Part, Text, Thinking, ToolCallRequest, ToolCallResult, text_of
from antiphon.wire.request import ModelRequest
from clients.run import MARKER, SECRET
from gateway.strict_upstream import StrictUpstream
from sessions.session_lines import PIXEL
from together.real_programs import NEXT_PROMPT, PROMPT, REAL_PROGRAMS, REASONING, Stage, install_programs

pytestmark = pytest.mark.slow

NAMES = tuple(REAL_PROGRAMS)


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if why := install_programs():
        pytest.skip(why)


class Stages:
    """A stage of each program, made when it is needed first."""

    def __init__(self, folder: Path, stack: ExitStack, *, is_interrupted: bool = False) -> None:
        self._folder = folder
        self._stack = stack
        self._is_interrupted = is_interrupted
        self._sources: dict[str, Stage] = {}
        self._count = 0

    def source(self, name: str) -> Stage:
        """A program with a session that it made."""
        if name not in self._sources:
            stage = self.target(name)
            if self._is_interrupted:
                stage.make_interrupted_session()
            else:
                stage.make_session()
            self._sources[name] = stage
        return self._sources[name]

    def target(self, name: str) -> Stage:
        """A program without sessions."""
        self._count += 1
        program = REAL_PROGRAMS[name]
        upstream = self._stack.enter_context(StrictUpstream(program.client.wire))
        return Stage(program, self._folder / f"{self._count}-{name}", upstream)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    with ExitStack() as stack:
        yield Stages(tmp_path_factory.mktemp("stages"), stack)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    with ExitStack() as stack:
        yield Stages(tmp_path_factory.mktemp("interrupted"), stack, is_interrupted=True)


def antiphon(home: Path, store: Path, *arguments: str) -> tuple[str, str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "ANTIPHON_STORE": str(store)}
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def move(source: Stage, target: Stage, store: Path) -> str:
    """Import the last session of `source` and export it for `target`; returns its id there."""
    _, err = antiphon(source.place.home, store, "import", source.program.name)
    assert [line for line in err.splitlines() if not line.startswith("left out: ")] == []
    folder = str(target.place.work)
    out, _ = antiphon(
        target.place.home, store, "export", "last", "--as", target.program.name, "--folder", folder, "--json"
    )
    return str(json.loads(out)["id"])


def parts_of(request: ModelRequest) -> list[Part]:
    return [part for message in request.messages for part in message.parts]


def pictures(parts: list[Part]) -> list[str]:
    return [part.data for part in parts if isinstance(part, Image)]


@pytest.mark.parametrize("target_name", NAMES)
@pytest.mark.parametrize("source_name", NAMES)
def test_a_session_is_continued_in_another_program(
    stages: Stages, tmp_path: Path, source_name: str, target_name: str
) -> None:
    source, target = stages.source(source_name), stages.target(target_name)
    made = source.upstream.wire.read_request(source.upstream.bodies[-1])
    request = target.resume(move(source, target, tmp_path / "store.db"))
    parts = parts_of(request)
    calls = [part for part in parts if isinstance(part, ToolCallRequest)]
    results = [part for part in parts if isinstance(part, ToolCallResult)]
    made_calls = [part for part in parts_of(made) if isinstance(part, ToolCallRequest)]
    assert [(call.tool_name, call.parse_arguments()) for call in calls] == [
        (call.tool_name, call.parse_arguments()) for call in made_calls
    ]
    assert len(calls) == 2
    assert [result.tool_call_id for result in results] == [call.tool_call_id for call in calls]
    assert all(SECRET in text_of(result.content) for result in results)
    texts = [part.text for part in parts if isinstance(part, Text)]
    assert any(PROMPT in text for text in texts)
    assert any(MARKER in text for text in texts)
    assert any(NEXT_PROMPT in text for text in texts)
    assert pictures(parts) == [PIXEL]
    if source_name == target_name != "gemini-cli":  # it does not keep thoughts
        reasoning = [part for part in parts if isinstance(part, Thinking)]
        assert [part.text for part in reasoning] == [REASONING, REASONING]
        assert all(part.native for part in reasoning)


@pytest.mark.parametrize(("source_name", "target_name"), list(zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True)))
def test_an_interrupted_turn_is_continued_in_another_program(
    interrupted: Stages, tmp_path: Path, source_name: str, target_name: str
) -> None:
    source, target = interrupted.source(source_name), interrupted.target(target_name)
    parts = parts_of(target.resume(move(source, target, tmp_path / "store.db")))
    results = [part for part in parts if isinstance(part, ToolCallResult)]
    assert len(results) == 2
    assert all(SECRET in text_of(result.content) for result in results)
    assert not any(MARKER in part.text for part in parts if isinstance(part, Text))
