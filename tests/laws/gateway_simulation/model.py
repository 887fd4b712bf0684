"""What the gateway must do, in a few rules and without any of its code: the reference that the gateway law compares it with.

The model does not foretell which key is taken first or how long a pause is. It follows what the upstreams saw, and says of every
attempt whether it was allowed and of every end whether it was right: which status, what is charged, what is written down. Where
time decides (limits that fill again, keys that cool down) it keeps bounds, and accepts what lies between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct, field

from laws.gateway_simulation.fault_upstream import RETRY_AFTER, Attempt
from laws.gateway_simulation.steps import targets_of

RETRIES: Mapping[str, int] = {"chat": 0, "responses": 1, "anthropic": 0, "gemini": 0, "interactions": 0, "spare": 0}
"""How often each provider is asked again because of a bad moment."""
STATUSES = {
    "authentication": 502,
    "rate_limit": 429,
    "server": 502,
    "overloaded": 503,
    "invalid_request": 400,
    "stream_cut": 502,
    "unparsable": 502,
    "timeout": 504,
}
"""What a client gets for a failure that could not be retried."""
NO_KEY_LEFT = frozenset({429, 502, 503})
RETRIED = frozenset({"rate_limit", "server", "overloaded", "stream_cut", "timeout"})
ROTATED = frozenset({"authentication", "rate_limit"})
UNCERTAIN = 0.25
"""So many seconds a deadline may be off, between the upstream's clock and the gateway's."""
ANYTHING = 10**9


class Client(Struct, frozen=True, kw_only=True):
    """A client's key and what it may do."""

    name: str
    models: tuple[str, ...] = ("*",)
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def may_use(self, model: str) -> bool:
        return any(fnmatchcase(model, glob) for glob in self.models)


class Bounds(Struct):
    """How full a bucket is at least and at most, at some instant between two."""

    least: float
    most: float
    since: tuple[float, float]

    def at(self, size: float, begin: float, end: float) -> None:
        """Fill it until an instant between `begin` and `end`."""
        self.least = min(size, self.least + max(0.0, begin - self.since[1]) * size / 60)
        self.most = min(size, self.most + max(0.0, end - self.since[0]) * size / 60)
        self.since = (begin, end)

    def take(self, least: float, most: float) -> None:
        self.least -= most
        self.most -= least


class KeyRecord(Struct):
    """A provider's answer to one of the gateway's keys, for one model."""

    rests_until: float = 0.0
    """It may not be used before."""
    is_free_from: float = 0.0
    """It can certainly be used after."""


class Rejections(Struct):
    """The models for which a provider did not accept a key (401)."""

    models: set[str] = field(default_factory=set)
    count: int = 0
    """How many models since the key last brought an answer. One says nothing of the others; two may."""
    is_waived: bool = False
    """Whether the configuration was reloaded since: then the next call tries the key again."""


class Ending(Struct, frozen=True, kw_only=True):
    """How a request must have ended. `problems` are rules that were already broken on the way."""

    statuses: frozenset[int]
    charge: tuple[int, int] = (0, 0)
    is_answer: bool = False
    is_broken: bool = False
    last: Attempt | None = None
    failed: int = 0
    """How many attempts failed."""
    problems: tuple[str, ...] = ()


class GatewayModel(Struct):
    """The state of the world as far as answers depend on it."""

    clients: dict[str, Client]
    upstream_keys: dict[str, list[str]]
    has_keys: bool = True
    buckets: dict[tuple[str, str], Bounds] = field(default_factory=dict)
    keys: dict[tuple[str, str, str], KeyRecord] = field(default_factory=dict)
    rejections: dict[tuple[str, str], Rejections] = field(default_factory=dict)

    @property
    def has_rejections(self) -> bool:
        """Whether a key is known to be rejected, so that a reload changes what it is used for."""
        return any(known.models and not known.is_waived for known in self.rejections.values())

    def admitted(self, name: str, begin: float, end: float) -> bool | None:
        """Whether a client of that name is let in; None where time decides. Nothing is taken yet."""
        client = self.clients.get(name)
        if not self.has_keys or client is None:
            return not self.has_keys
        buckets = list(self._buckets(client, begin, end))
        if all(bucket.least >= 1 for bucket in buckets):
            return True
        return False if any(bucket.most < 1 for bucket in buckets) else None

    def take_request(self, name: str) -> None:
        """The client was let in."""
        if bounds := self.buckets.get((name, "requests")):
            bounds.least, bounds.most = max(bounds.least, 1.0), max(bounds.most, 1.0)
            bounds.take(1, 1)

    def charge(self, name: str, least: int, most: int) -> None:
        """An answer cost so many tokens."""
        if bounds := self.buckets.get((name, "tokens")):
            bounds.take(least, most)

    def forget(self, name: str) -> None:
        """The outcome of a request is unknown: what it cost its client, what its keys went through."""
        if bounds := self.buckets.get((name, "tokens")):
            bounds.take(0, ANYTHING)
        for provider, keys in self.upstream_keys.items():
            for key in keys:
                rejections = self.rejections.setdefault((provider, key), Rejections())
                rejections.count, rejections.is_waived = 2, False

    def reloaded(self) -> None:
        """The configuration was read again: rejections are forgotten, cooldowns are not."""
        for rejections in self.rejections.values():
            rejections.is_waived = True

    def ending(self, model: str, attempts: Sequence[Attempt], status: int, cost: int, begin: float) -> Ending:
        """Follow the attempts of one request that was let in, for a model that its client may use."""
        walk = _Walk(self, [target.partition("/")[::2] for target in targets_of(model)], status, begin)
        for attempt in attempts:
            walk.step(attempt)
        return walk.end(cost)

    def is_resting(self, attempt: Attempt) -> bool:
        """Whether a key may certainly not be used for a model."""
        rejections = self.rejections.get((attempt.provider, attempt.key))
        if rejections is not None and attempt.model in rejections.models and not rejections.is_waived:
            return True
        record = self.keys.get((attempt.provider, attempt.key, attempt.model))
        return record is not None and attempt.at < record.rests_until - UNCERTAIN

    def free_keys(self, provider: str, model: str, now: float) -> set[str]:
        """The keys that can certainly be used for a model; one that is empty for a provider without keys."""
        keys = self.upstream_keys.get(provider)
        if keys is None:
            return {""}
        return {key for key in keys if self._is_free(provider, key, model, now)}

    def note(self, attempt: Attempt) -> None:
        """Learn from an attempt what its key can be used for."""
        if not attempt.key:
            return
        place = (attempt.provider, attempt.key, attempt.model)
        rejections = self.rejections.setdefault(place[:2], Rejections())
        if attempt.outcome == "authentication":
            rejections.count += attempt.model not in rejections.models or rejections.is_waived
            rejections.models.add(attempt.model)
            rejections.is_waived = False
        elif attempt.outcome == "rate_limit":
            record = self.keys.setdefault(place, KeyRecord())
            is_repeated = record.rests_until > 0
            record.rests_until = attempt.at + RETRY_AFTER[attempt.fault]
            record.is_free_from = record.rests_until + (3600.0 if is_repeated else UNCERTAIN)
        elif attempt.outcome in ("answered", "broken"):
            self.keys.pop(place, None)
            rejections.models.discard(attempt.model)
            rejections.count = 0

    def _is_free(self, provider: str, key: str, model: str, now: float) -> bool:
        record = self.keys.get((provider, key, model))
        if record is not None and now < record.is_free_from:
            return False
        rejections = self.rejections.get((provider, key))
        if rejections is None or rejections.is_waived:
            return True
        return model not in rejections.models and rejections.count <= 1

    def _buckets(self, client: Client, begin: float, end: float) -> Iterator[Bounds]:
        for kind, size in (("requests", client.requests_per_minute), ("tokens", client.tokens_per_minute)):
            if size is None:
                self.buckets.pop((client.name, kind), None)
                continue
            full = Bounds(size, size, (begin, end))
            bounds = self.buckets.setdefault((client.name, kind), full)
            bounds.at(size, begin, end)
            yield bounds


class _Walk:
    """One request on its way along its targets."""

    def __init__(self, model: GatewayModel, targets: list[tuple[str, str]], status: int, begin: float) -> None:
        self._model = model
        self._targets = targets
        self._status = status
        self._begin = begin
        self._place = 0
        self._tried: set[str] = set()
        self._retries = RETRIES[targets[0][0]]
        self._last: Attempt | None = None
        self._had_free_keys = True
        self._failed = 0
        self._problems: list[str] = []

    def step(self, attempt: Attempt) -> None:
        """One more attempt: was it allowed?"""
        last = self._last
        if last is not None and _outcome(last, is_last=False) in ("answered", "broken"):
            self._problems.append(f"asked {attempt.provider} again after {last.provider} had answered")
        if attempt.refusal:
            self._problems.append(f"{attempt.provider} got a body that its API refuses: {attempt.refusal}")
        if self._place >= len(self._targets) or self._target != (attempt.provider, attempt.model):
            self._move_on(attempt)
        elif last is not None:
            self._repeat(attempt, last)
        if not self._tried:
            self._had_free_keys = bool(self._model.free_keys(*self._target, self._begin))
        if self._model.is_resting(attempt):
            self._problems.append(f"used a key of {attempt.provider} for {attempt.model} that must rest")
        self._model.note(attempt)
        self._tried.add(attempt.key)
        self._failed += _outcome(attempt, is_last=False) not in ("answered", "broken")
        self._last = attempt

    def end(self, cost: int) -> Ending:
        """The last attempt was made: was it right to stop, and what must follow?"""
        last = self._last
        if last is None:
            return self._ending(NO_KEY_LEFT if self._next_usable(0, self._begin) is None else frozenset())
        outcome = _outcome(last, is_last=self._status == 200)
        if outcome in ("answered", "broken"):
            self._failed -= last.outcome == "broken or stream_cut"
            is_answer = outcome == "answered"
            charge = (cost, cost) if is_answer else (0, ANYTHING)
            return self._ending(frozenset({200}), charge=charge, is_answer=is_answer, is_broken=not is_answer)
        if reason := self._reason_to_stay(last):
            self._problems.append(f"gave up although {reason}")
        following = None if outcome == "invalid_request" else self._next_usable(self._place + 1, last.at)
        if following is not None:
            self._problems.append(f"gave up after {last.fault or outcome} although {following} could be asked")
        statuses = {STATUSES[outcome]} | ({529} if outcome == "overloaded" else set())
        if self._place + 1 < len(self._targets):  # the targets after it could not be asked, which is the last failure
            statuses |= NO_KEY_LEFT
        return self._ending(frozenset(statuses))

    @property
    def _target(self) -> tuple[str, str]:
        return self._targets[self._place]

    def _repeat(self, attempt: Attempt, last: Attempt) -> None:
        if attempt.key != last.key and last.outcome in ROTATED:
            if attempt.key in self._tried:
                self._problems.append(f"went back to a key of {attempt.provider} that had been refused")
            return
        if self._retries == 0 or last.outcome not in RETRIED | {"broken or stream_cut"}:
            self._problems.append(f"asked {attempt.provider} again after {last.fault or last.outcome}")
        self._retries -= 1

    def _move_on(self, attempt: Attempt) -> None:
        last = self._last
        start = self._place + (last is not None)
        place = next(
            (at for at in range(start, len(self._targets)) if self._targets[at] == (attempt.provider, attempt.model)),
            None,
        )
        if place is None:
            self._problems.append(f"asked {attempt.provider}/{attempt.model}, which is not the next target")
            return
        if last is not None and last.outcome == "invalid_request":
            self._problems.append("asked the next target after an invalid request")
        if last is not None and (reason := self._reason_to_stay(last)):
            self._problems.append(f"asked the next target although {reason}")
        for skipped in self._targets[start:place]:
            if self._model.free_keys(*skipped, attempt.at):
                self._problems.append(f"left out {skipped[0]}, which could be asked")
        self._place, self._tried, self._retries = place, set(), RETRIES[attempt.provider]

    def _reason_to_stay(self, last: Attempt) -> str:
        free = self._model.free_keys(*self._target, last.at) - self._tried
        if last.outcome in ROTATED and last.key and free:
            return f"another key of {last.provider} was free"
        is_too_long = RETRY_AFTER.get(last.fault, 0.0) > 60
        may_have_waited = not self._had_free_keys  # until a key could be used, which is a retry too
        if self._retries > 0 and last.outcome in RETRIED and not is_too_long and not may_have_waited:
            return f"{last.provider} could be tried again"
        return ""

    def _next_usable(self, start: int, now: float) -> str | None:
        usable = (target[0] for target in self._targets[start:] if self._model.free_keys(*target, now))
        return next(usable, None)

    def _ending(
        self,
        statuses: frozenset[int],
        *,
        charge: tuple[int, int] = (0, 0),
        is_answer: bool = False,
        is_broken: bool = False,
    ) -> Ending:
        if not statuses:
            self._problems.append("refused without asking anybody although a provider could be asked")
            statuses = NO_KEY_LEFT
        return Ending(
            statuses=statuses,
            charge=charge,
            is_answer=is_answer,
            is_broken=is_broken,
            last=self._last,
            failed=self._failed,
            problems=tuple(self._problems),
        )


def _outcome(attempt: Attempt, *, is_last: bool) -> str:
    """A reset may discard what was sent before it: then nothing was shown."""
    if attempt.outcome == "broken or stream_cut":
        return "broken" if is_last else "stream_cut"
    return attempt.outcome
