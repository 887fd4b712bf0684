"""What the gateway must do, in a few rules and without any of its code: the reference that the gateway law compares it with.

The model does not foretell which key is taken first or how long a pause is. It follows what the upstreams saw, and says of every
attempt whether it was allowed and of every end whether it was right: which status, what is charged, what is written down. Where
time decides (limits that fill again, keys that cool down) it keeps bounds, and accepts what lies between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest
from math import inf

from msgspec import Struct, field, structs

from laws.gateway_simulation.fault_upstream import RETRY_AFTER, Attempt
from laws.gateway_simulation.steps import GOOD_NAMES, targets_of

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
OUTAGES = frozenset({"server", "overloaded", "timeout", "stream_cut"})
"""Failures that may open the circuit of a target. Others say that its host is up."""
CIRCUIT_FAILURES, CIRCUIT_SECONDS = 3, 2.0
"""After so many of them in a row a target is skipped, at first for so long."""
RETRY_REJECTED = 5.0
"""So many seconds after its rejection a key is tried again if no other key can be used."""
UNCERTAIN = 0.25
"""So many seconds a deadline may be off, between the upstream's clock and the gateway's."""
ANYTHING = 10**9


def judged(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts of a request, with a verdict on the lost ones.

    A request whose reused connection closes at once was not worked on: it is sent again with the same key. That is an attempt
    that failed, and says nothing of the key or the target. A busy gateway may notice the end too late to be sure of that: then it
    is a failure as on a new connection. What the upstreams saw next tells which it was.
    """
    return [
        attempt if attempt.outcome != "lost" or _is_same(attempt, after) else structs.replace(attempt, outcome="server")
        for attempt, after in zip_longest(attempts, attempts[1:])
    ]


def _is_same(attempt: Attempt, after: Attempt | None) -> bool:
    place = (attempt.provider, attempt.key, attempt.model)
    return after is not None and place == (after.provider, after.key, after.model)


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
    may_be_tried: set[str] = field(default_factory=set)
    """The models for which it may be tried again, or may still have to rest."""
    at: float = 0.0
    """When it was last rejected."""


class Outages(Struct):
    """The failures in a row of a target: as many as are certain, and as there may be."""

    least: int = 0
    most: int = 0
    opened_at: float = -inf
    """When its circuit certainly opened."""


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
    outages: dict[tuple[str, str], Outages] = field(default_factory=dict)

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

    def may_take_request(self, name: str, begin: float, end: float) -> None:
        """The client was let in or refused; which is not known."""
        self.admitted(name, begin, end)  # this may be its first request, before which there is no bucket
        if bounds := self.buckets.get((name, "requests")):
            bounds.take(0, 1)

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
                rejections.count, rejections.is_waived, rejections.at = 2, False, inf
                rejections.may_be_tried |= rejections.models
        for name in (*GOOD_NAMES, "vectors"):
            for target in targets_of(name):
                self.outages[target.partition("/")[::2]] = Outages(most=CIRCUIT_FAILURES)

    def reloaded(self) -> None:
        """The configuration was read again: rejections are forgotten, cooldowns are not."""
        for rejections in self.rejections.values():
            rejections.is_waived = True

    def reloaded_meanwhile(self) -> None:
        """The configuration was read again during a request: its rejections came before or after."""
        for rejections in self.rejections.values():
            rejections.may_be_tried |= rejections.models

    def may_be_skipped(self, target: tuple[str, str]) -> bool:
        """Whether the circuit of a target may be open."""
        known = self.outages.get(target)
        return known is not None and known.most >= CIRCUIT_FAILURES

    def must_be_skipped(self, target: tuple[str, str], now: float) -> bool:
        """Whether the circuit of a target is certainly open."""
        known = self.outages.get(target)
        return known is not None and now < known.opened_at + CIRCUIT_SECONDS - UNCERTAIN

    def ending(self, model: str, attempts: Sequence[Attempt], status: int, cost: int, begin: float) -> Ending:
        """Follow the attempts of one request that was let in, for a model that its client may use."""
        walk = _Walk(self, [target.partition("/")[::2] for target in targets_of(model)], status, begin)
        for attempt in attempts:
            walk.step(attempt)
        return walk.end(cost)

    def is_resting(self, attempt: Attempt) -> bool:
        """Whether a key may certainly not be used for a model."""
        rejections = self.rejections.get((attempt.provider, attempt.key))
        if rejections is not None and not rejections.is_waived:
            is_rejected = attempt.model in rejections.models - rejections.may_be_tried
            if is_rejected and not self._is_last_resort(attempt):
                return True
        record = self.keys.get((attempt.provider, attempt.key, attempt.model))
        return record is not None and attempt.at < record.rests_until - UNCERTAIN

    def free_keys(self, provider: str, model: str, now: float) -> set[str]:
        """The keys that can certainly be used for a model; one that is empty for a provider without keys."""
        keys = self.upstream_keys.get(provider)
        if keys is None:
            return {""}
        free = {key for key in keys if self._is_free(provider, key, model, now)}
        return free or {key for key in keys if self._is_tried_again(provider, key, model, now)}

    def note(self, attempt: Attempt, *, counts: bool = True) -> None:
        """Learn from an attempt what its key can be used for and, if it certainly `counts` for that, whether its target is up."""
        self._note_outage(attempt, counts=counts)
        if not attempt.key:
            return
        if self._is_last_resort(attempt):  # then every key that was rejected so long ago is tried again
            for key in self.upstream_keys[attempt.provider]:
                if (known := self.rejections.get((attempt.provider, key))) and _is_due(known, attempt.at + UNCERTAIN):
                    known.may_be_tried |= known.models
        place = (attempt.provider, attempt.key, attempt.model)
        rejections = self.rejections.setdefault(place[:2], Rejections())
        if attempt.outcome == "authentication":
            rejections.count += attempt.model not in rejections.models or rejections.is_waived
            if rejections.is_waived:  # the other models may still be tried again
                rejections.may_be_tried |= rejections.models
            rejections.models.add(attempt.model)
            rejections.may_be_tried.discard(attempt.model)
            rejections.is_waived, rejections.at = False, attempt.at
        elif attempt.outcome == "rate_limit":
            record = self.keys.setdefault(place, KeyRecord())
            is_repeated = record.rests_until > 0
            record.rests_until = attempt.at + RETRY_AFTER[attempt.fault]
            record.is_free_from = record.rests_until + (3600.0 if is_repeated else UNCERTAIN)
        elif attempt.outcome in ("answered", "broken"):
            self.keys.pop(place, None)
            rejections.models.discard(attempt.model)
            rejections.may_be_tried.discard(attempt.model)
            rejections.count = 0

    def _note_outage(self, attempt: Attempt, *, counts: bool) -> None:
        target = (attempt.provider, attempt.model)
        known = self.outages.setdefault(target, Outages())
        if attempt.outcome == "lost":
            known.most += RETRIES[attempt.provider] > 0  # it may have been a failure that was retried
        elif not counts or attempt.outcome in ("broken", "broken or stream_cut", "unparsable"):
            known.least, known.most, known.opened_at = 0, known.most + 1, -inf
        elif attempt.outcome in OUTAGES:
            known.least, known.most = known.least + 1, known.most + 1
            if known.least == CIRCUIT_FAILURES:
                known.opened_at = attempt.at
        else:
            del self.outages[target]

    def _is_last_resort(self, attempt: Attempt) -> bool:
        """Whether a rejected key is used because no other one can be, long enough after its rejection."""
        rejections = self.rejections.get((attempt.provider, attempt.key))
        if rejections is None or not (attempt.model in rejections.models or rejections.count > 1):
            return False
        others = (key for key in self.upstream_keys[attempt.provider] if key != attempt.key)
        return _is_due(rejections, attempt.at + UNCERTAIN) and not any(
            self._is_free(attempt.provider, key, attempt.model, attempt.at) for key in others
        )

    def _is_tried_again(self, provider: str, key: str, model: str, now: float) -> bool:
        """Whether a rejected key is certainly tried again if no other one can be used."""
        record = self.keys.get((provider, key, model))
        rejections = self.rejections.get((provider, key))
        is_cooling = record is not None and now < record.is_free_from
        return rejections is not None and not is_cooling and _is_due(rejections, now - UNCERTAIN)

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


def _is_due(rejections: Rejections, now: float) -> bool:
    return now >= rejections.at + RETRY_REJECTED


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
        self._may_be_resends = 0
        """How many attempts at the target were sent again, or retried: the upstream sees no difference."""
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
        if last is None or (last.provider, last.model) != (attempt.provider, attempt.model):
            self._check_circuit(attempt)
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
        if last.outcome == "lost":
            self._may_be_resends += 1
            return
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
        for at in range(start, place):
            if self._can_be_asked(at, attempt.at):
                self._problems.append(f"left out {self._targets[at][0]}, which could be asked")
        self._place, self._tried, self._retries = place, set(), RETRIES[attempt.provider]
        self._may_be_resends = 0

    def _check_circuit(self, attempt: Attempt) -> None:
        """A target whose circuit is open is left out while a later one can be asked."""
        later = self._targets[self._place + 1 :]
        is_open = self._model.must_be_skipped(self._target, attempt.at)
        if is_open and not all(map(self._model.may_be_skipped, later)):
            self._problems.append(f"asked {attempt.provider} for {attempt.model} although its circuit is open")

    def _can_be_asked(self, place: int, now: float) -> bool:
        """Whether a target can certainly be asked. The last one is, whatever its circuit."""
        target = self._targets[place]
        is_last = place + 1 == len(self._targets)
        return bool(self._model.free_keys(*target, now)) and (is_last or not self._model.may_be_skipped(target))

    def _reason_to_stay(self, last: Attempt) -> str:
        free = self._model.free_keys(*self._target, last.at) - self._tried
        if last.outcome in ROTATED and last.key and free:
            return f"another key of {last.provider} was free"
        is_too_long = RETRY_AFTER.get(last.fault, 0.0) > 60
        may_have_waited = not self._had_free_keys  # until a key could be used, which is a retry too
        if self._retries > self._may_be_resends and last.outcome in RETRIED and not is_too_long and not may_have_waited:
            return f"{last.provider} could be tried again"
        return ""

    def _next_usable(self, start: int, now: float) -> str | None:
        places = range(start, len(self._targets))
        return next((self._targets[place][0] for place in places if self._can_be_asked(place, now)), None)

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
