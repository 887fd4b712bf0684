"""L12 at the gateway: clients, keys, limits, faults and reloads in any order, against a model of what must come of each step.

Every world is a fresh gateway in a process of its own, with six upstreams on real sockets. The steps are drawn from a seed, so a
run can be repeated; a failure is cut down to the fewest and plainest steps that still show it, and printed to be pasted into
`FOUND`. `HYPOTHESIS_PROFILE=nightly` and `long` run many more worlds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random, SystemRandom

import pytest
from msgspec import Struct, structs

from laws.gateway_simulation.setup import gateway_process
from laws.gateway_simulation.steps import (
    BAD_NAMES,
    Ask,
    DamageState,
    Embed,
    Foreign,
    HeadOnly,
    Pause,
    Read,
    Reload,
    Revoke,
    Step,
    drawn,
)
from laws.gateway_simulation.world import TIMED, World, fresh_world
from support.examples import is_everyday, scaled

WORLDS = scaled(3)
FIRST_SEED = 0 if is_everyday() else SystemRandom().randrange(1 << 32)
"""A long run draws other worlds each time; a failure names its seed."""
STEPS = 40
"""So many in each world."""
SHRINKING_SECONDS = 60.0
TRIES = 5
"""How often a wrong time must be seen before it counts."""


class Failure(Struct, frozen=True):
    """What was wrong with the last of some steps."""

    steps: list[Step]
    problems: list[str]

    @property
    def rule(self) -> str:
        """The rule that was broken first."""
        return self.problems[0].partition(":")[0]

    @property
    def is_timed(self) -> bool:
        """Whether only measured times were wrong, as they are now and then on a machine that is busy with other things."""
        return all(problem.startswith(TIMED) for problem in self.problems)


class Law:
    """Runs steps in fresh worlds."""

    def __init__(self, folder: Path, world: Callable[[bool], object]) -> None:
        self._folder = folder
        self._world = world
        self.steps = 0
        self.unjudged = 0
        """How many of them this machine was too slow for."""

    def failure(self, steps: list[Step], *, has_keys: bool, rule: str = "") -> Failure | None:
        """The first step with a problem (of that rule), and what it took to get there. Times must be wrong in every try."""
        for _ in range(TRIES):
            found = self._first_failure(steps, has_keys=has_keys, rule=rule)
            if found is None or not found.is_timed:
                break
        return found

    def _first_failure(self, steps: list[Step], *, has_keys: bool, rule: str) -> Failure | None:
        with self._world(has_keys) as world:  # type: ignore[attr-defined]
            assert isinstance(world, World)
            for number, step in enumerate(steps, 1):
                self.steps += 1
                problems = [problem for problem in world.take(step) if problem.startswith(rule)]
                if problems:
                    return Failure(steps[:number], problems)
            self.unjudged += world.unjudged
        return None

    def shrunk(self, failure: Failure, *, has_keys: bool) -> Failure:
        """The same failure with fewer and plainer steps, as far as time allows."""
        until = time.monotonic() + SHRINKING_SECONDS
        is_better = True
        while is_better and time.monotonic() < until:
            is_better = False
            for steps in _simpler(failure.steps):
                found = self.failure(steps, has_keys=has_keys, rule=f"{failure.rule}:")
                if found is not None:
                    failure, is_better = found, True
                    break
                if time.monotonic() > until:
                    break
        return failure


def _simpler(steps: list[Step]) -> Iterator[list[Step]]:
    """Variants: without some steps, the largest pieces first; then with a field of a step at its default."""
    size = len(steps) // 2
    while size:
        for start in range(0, len(steps) - 1, size):  # the last step is the one that fails
            end = min(start + size, len(steps) - 1)
            yield steps[:start] + steps[end:]
        size //= 2
    for place, step in enumerate(steps):
        for field in structs.fields(step):
            if getattr(step, field.name) != field.default:
                plainer = structs.replace(step, **{field.name: field.default})
                yield [*steps[:place], plainer, *steps[place + 1 :]]


@pytest.fixture(scope="module", name="law")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Law]:
    folder = tmp_path_factory.mktemp("gateway")
    with gateway_process(folder) as (process, upstreams):
        yield Law(folder, lambda has_keys: fresh_world(process, upstreams, folder, has_keys=has_keys))


def test_the_gateway_follows_the_model_for_any_steps(law: Law, record_property: Callable[[str, object], None]) -> None:
    before = law.steps
    for seed in range(FIRST_SEED, FIRST_SEED + WORLDS):
        random = Random(seed)
        has_keys = random.random() < 0.75
        failure = law.failure(drawn(random, STEPS, has_keys=has_keys), has_keys=has_keys)
        if failure is not None:
            least = law.shrunk(failure, has_keys=has_keys)
            pytest.fail(_report(seed, has_keys, least), pytrace=False)
    record_property("steps", law.steps - before)
    print(f"{law.steps - before} steps in {WORLDS} worlds, {law.unjudged} not judged because the machine was too slow")


def _report(seed: int, has_keys: bool, failure: Failure) -> str:
    steps = "\n".join(f"    {step!r}," for step in failure.steps)
    problems = "\n".join(f"  {problem}" for problem in failure.problems)
    return f"seed {seed}, {'with' if has_keys else 'without'} client keys:\n{problems}\nafter\n[\n{steps}\n]"


FOUND: dict[str, tuple[bool, list[Step]]] = {
    "foreign host": (False, [Foreign(how="host")]),
    "foreign origin": (False, [Foreign(how="origin", path="/v1/models")]),
    "cross-site": (False, [Foreign(how="cross-site", path="/status")]),
    "text/plain": (False, [Foreign(how="text/plain")]),
    "dot segments": (True, [Ask(model=BAD_NAMES["dots"], key="globbed")]),
    "control characters": (True, [Ask(model=BAD_NAMES["control"]), Embed(model=BAD_NAMES["null"])]),
    "overlong name": (True, [Ask(client="anthropic", model=BAD_NAMES["overlong"])]),
    "unlisted model": (True, [Ask(client="gemini", model=BAD_NAMES["unlisted"])]),
    "other clients' requests": (True, [Ask(), Read(path="/status?format=json", key="few")]),
    "providers named to anybody": (True, [Read(path="/readyz", key="")]),
    "body read before the key": (True, [HeadOnly(client="gemini")]),
    "a key is given up after one 401": (
        True,
        [Ask(model="gpt-4-turbo", faults=(("chat", "401"), ("chat", "401"))), Ask(model="to-openai-chat")],
    ),
    "a reload does not clear a 401": (
        True,
        [Ask(model="to-gemini", faults=(("gemini", "401"),)), Reload(), Ask(model="to-gemini")],
    ),
    "a failed request keeps its body": (True, [Ask(streams=True, shape="large", faults=(("chat", "closed"),))]),
    "an abandoned stream keeps its body": (
        True,
        [Ask(client="anthropic", model="to-gemini", streams=True, shape="large", leaves="in mid-stream")],
    ),
    "an answer that is cut is charged by estimate": (
        True,
        [
            Ask(
                model="to-gemini-interactions", key="thrifty", shape="broken", faults=(("interactions", "cut in half"),)
            ),
            Ask(key="thrifty"),
        ],
    ),
    "control characters in a path": (
        True,
        [*[Ask(client="gemini", model=BAD_NAMES["control"], key="few")] * 4, *[Read(path="/v1/models", key="few")] * 4],
    ),
    "a translated stream that fails after text keeps its body": (
        False,
        [Ask(model="to-gemini", streams=True, shape="large", faults=(("gemini", "stall in half"),))],
    ),
    "an unknown previous response keeps its body": (
        True,
        [Ask(client="openai-responses", shape="large", continues=True)],
    ),
    "header values in errors": (True, [Ask(faults=(("chat", "500 echo"),)), Ask(faults=(("chat", "400 echo"),))]),
    "a stream without include_usage is not charged": (True, [Ask(key="thrifty", streams=True)] * 7),
    "an abandoned stream is not charged": (True, [Ask(key="thrifty", streams=True, leaves="in mid-stream")]),
    "no failover after an empty block": (
        True,
        [Ask(client="anthropic", model="pair", streams=True, faults=(("anthropic", "empty block"),))],
    ),
    "a stalled stream is not cut": (
        True,
        [Ask(client="openai-responses", model="pair", streams=True, faults=(("anthropic", "stall in half"),))],
    ),
    "a crash is recorded as 499": (
        True,
        [DamageState(), Ask(client="openai-responses", model="to-anthropic", streams=True, continues=True)],
    ),
    "an unparsable answer is asked for again": (
        True,
        [
            Ask(model="to-openai-responses", streams=streams, faults=(("responses", "unparsable"),))
            for streams in (True, False)
        ],
    ),
    "a lost idle connection is a failure": (True, [Ask(), Ask(faults=(("chat", "lost idle connection"),))]),
    "a new sibling revives a rejected key": (
        True,
        [Revoke(), Ask(), Ask(), Reload(change="add upstream key"), Ask(), Ask(), Ask()],
    ),
    "slow reading is overhead": (True, [Ask(streams=True, has_usage=True, reads_slowly=True, long_answer=True)]),
    "the announced wait is too short": (
        True,
        [
            Ask(model="to-gemini", faults=(("gemini", "429 for 1 s"),)),
            Pause(),
            Ask(model="to-gemini", faults=(("gemini", "429 for 1 s"),)),
        ],
    ),
    "embeddings are not recorded": (True, [Embed()]),
    "embeddings do not fail over": (True, [Embed(faults=(("chat", "500"),))]),
    "a second gzip member is lost": (
        True,
        [Ask(streams=streams, has_usage=True, faults=(("chat", "gzip in two members"),)) for streams in (True, False)],
    ),
    "the only key is not tried again": (
        True,
        [Ask(model="to-gemini", faults=(("gemini", "401"),)), *[Pause()] * 5, Ask(model="to-gemini")],
    ),
    "a reload during a rejection": (
        True,
        [
            Revoke(provider="anthropic"),
            Ask(model="pair", is_reloaded=True),
            Ask(model="to-anthropic", faults=(("anthropic", "401 echo"), ("anthropic", "reset in half"))),
        ],
    ),
    "an open circuit": (
        True,
        [
            *[Ask(model="pair", faults=(("anthropic", "500"),))] * 3,
            Ask(model="pair"),
            *[Pause()] * 2,
            Ask(model="pair"),
        ],
    ),
    "a first request whose client leaves": (
        True,
        [
            Ask(client="openai-responses", model="pair", key="few", leaves="before the head", continues=True),
            *[Ask(key="few")] * 4,
        ],
    ),
    "usage that was not asked for": (True, [Ask(model="to-anthropic", streams=True)]),
}
"""What the law has found, each with the fewest steps that showed it, and whether the gateway had client keys."""


@pytest.mark.parametrize("name", FOUND)
def test_worlds_that_once_failed_pass(law: Law, name: str) -> None:
    has_keys, steps = FOUND[name]
    failure = law.failure(steps, has_keys=has_keys)
    assert failure is None, _report(-1, has_keys, failure)
