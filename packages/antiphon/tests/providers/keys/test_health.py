"""A credential's states as one table: from a state, an event, the state that follows and until when.

Each row plays events on a pool with one key and a clock that only the events move, and then looks at the state of the whole key
and of the model `m`. The rows are those of the design; `docs/library/providers.md` has them in words.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.errors import NoUsableCredential
from antiphon.providers.keys.health import MAX_COOLDOWNS
from antiphon.providers.keys.ring import KeyLease, KeyRing
from antiphon.providers.keys.secret import Credential
from antiphon.providers.keys.sharing import SharedHealth
from antiphon.wire.output import ProviderError

SECRET, OTHER = "sk-first-key-000000aaaa", "sk-second-key-00000bbbb"
KINDS = {"401": "authentication", "429": "rate_limit", "403": "permission", "402": "billing", "500": "server"}


class Story:
    """One process: a pool with one key, and another process that it shares state with."""

    def __init__(self, place: Path) -> None:
        self.now = 1000.0
        self.place = place
        place.write_text(SECRET)
        self.pool = KeyRing([Credential(secret=f"file:{place}", name="k")], clock=lambda: self.now)
        self.other = KeyRing([Credential(secret=SECRET, name="k")], clock=lambda: self.now)
        self.probe: KeyLease | None = None

    def play(self, event: str) -> None:
        what, _, detail = event.partition(" ")
        if what in KINDS:  # a call fails: "429 m 20" is for the model m, with a Retry-After of 20
            model, _, wait = (detail or "m").partition(" ")
            error = ProviderError("no", KINDS[what], retry_after=float(wait) if wait else None)  # type: ignore[arg-type]
            self.lease(model).failed(error)
        elif what == "ok":
            self.lease(detail or "m").succeeded()
        elif what == "probe":  # a call begins and is not over
            self.probe = self.pool.acquire(detail or "m")
            assert self.probe.is_probe
        elif what == "cancel":
            assert self.probe is not None
            self.probe.release()
        elif what == "wait":
            self.now += float(detail)
        elif what == "reload":
            self.pool = KeyRing([Credential(secret=f"file:{self.place}", name="k")], previous=self.pool)
        elif what == "replace":
            self.place.write_text(OTHER)
        elif what == "disable":
            self.pool.disable("k")
        elif what == "enable":
            self.pool.enable("k")
        elif what == "there":  # something happens in the other process
            here, self.pool = self.pool, self.other
            self.play(detail)
            self.other, self.pool = self.pool, here
        elif what == "share":  # each receives the other's state, as through the shared store
            for source, target in ((self.other, self.pool), (self.pool, self.other)) * 2:
                exported = {secret: rounded(health.export()) for secret, health in source.shared}
                for secret, health in target.shared:
                    if secret in exported:
                        health.merge(exported[secret])
        else:
            raise AssertionError(event)

    def lease(self, model: str) -> KeyLease:
        return self.pool.acquire(model)

    def state(self) -> tuple[str, str, float]:
        """Of the key, of the model m, and for how many seconds the longer of them lasts."""
        status = self.pool.status()[0]
        model = status.models.get("m")
        seconds = max(status.seconds, model.seconds if model is not None else 0.0)
        return status.state, model.state if model is not None else "healthy", round(seconds, 2)


def rounded(export: SharedHealth) -> SharedHealth:
    """As the shared store gives it back: to the millisecond."""
    return export.shift_clock(12.3456).shift_clock(-12.3456)


HOUR = 3600.0
REJECTED_KEY = ["401 m", "401 n"]

TRANSITIONS: dict[str, tuple[list[str], tuple[str, str, float]]] = {
    # healthy
    "429 cools the model": (["429 m"], ("healthy", "cooling", 1.0)),
    "429 with Retry-After": (["429 m 20"], ("healthy", "cooling", 20.0)),
    "429 for another model": (["429 n 20"], ("healthy", "healthy", 0.0)),
    "403 cools the model for 5 min": (["403 m"], ("healthy", "cooling", 300.0)),
    "402 exhausts the key": (["402 n"], ("exhausted", "healthy", 600.0)),
    "402 with Retry-After": (["402 n 30"], ("exhausted", "healthy", 30.0)),
    "500 is not the key's fault": (["500 m"], ("healthy", "healthy", 0.0)),
    "401 rejects the model": (["401 m"], ("healthy", "invalid", 120.0)),
    "401 for another model": (["401 n"], ("healthy", "healthy", 0.0)),
    # rejected (model)
    "401 for a second model rejects the key": (REJECTED_KEY, ("invalid", "invalid", 120.0)),
    "a success in between does not": (["401 m", "ok n", "401 n"], ("healthy", "invalid", 120.0)),
    "other models are used": (["401 m", "ok n"], ("healthy", "invalid", 120.0)),
    # deadlines pass
    "cooling becomes half-open": (["429 m 20", "wait 20"], ("healthy", "half_open", 0.0)),
    "exhausted becomes half-open": (["402 m 20", "wait 20"], ("half_open", "healthy", 0.0)),
    "rejected model becomes half-open": (["401 m", "wait 120"], ("healthy", "half_open", 0.0)),
    "rejected key becomes half-open": ([*REJECTED_KEY, "wait 120"], ("half_open", "half_open", 0.0)),
    # half-open
    "the probe succeeds (cooling)": (["429 m 20", "wait 20", "ok m"], ("healthy", "healthy", 0.0)),
    "the probe succeeds (exhausted)": (["402 m 20", "wait 20", "ok m"], ("healthy", "healthy", 0.0)),
    "the probe succeeds (rejected model)": (["401 m", "wait 120", "ok m"], ("healthy", "healthy", 0.0)),
    "the probe of any model clears a rejected key": (
        [*REJECTED_KEY, "wait 120", "ok other"],
        ("healthy", "half_open", 0.0),
    ),
    "the probe fails the same way (cooling)": (["429 m 20", "wait 20", "429 m"], ("healthy", "cooling", 40.0)),
    "the probe fails the same way (exhausted)": (["402 m", "wait 600", "402 m"], ("exhausted", "healthy", 1200.0)),
    "the probe fails the same way (rejected model)": (["401 m", "wait 120", "401 m"], ("healthy", "invalid", 240.0)),
    "the probe fails the same way (rejected key)": (
        [*REJECTED_KEY, "wait 120", "401 other"],
        ("invalid", "half_open", 240.0),
    ),
    "rejected for an hour at most": (
        [*REJECTED_KEY, *(step for wait in (120, 240, 480, 960, 1920) for step in (f"wait {wait}", "401 m"))],
        ("invalid", "half_open", HOUR),
    ),
    "cooling for 15 minutes at most": (["429 m 800", "wait 800", "429 m"], ("healthy", "cooling", 900.0)),
    "the probe fails otherwise": (["401 m", "wait 120", "500 m"], ("healthy", "half_open", 0.0)),
    "the probe is cancelled": (["401 m", "wait 120", "probe m", "cancel"], ("healthy", "half_open", 0.0)),
    "after a cancelled probe the next call probes": (
        ["401 m", "wait 120", "probe m", "cancel", "ok m"],
        ("healthy", "healthy", 0.0),
    ),
    "a probe that reports nothing is given up": (
        ["401 m", "wait 120", "probe m", "wait 600", "ok m"],
        ("healthy", "healthy", 0.0),
    ),
    # the secret changed
    "a replaced secret is healthy (model)": (["401 m", "replace", "ok m"], ("healthy", "healthy", 0.0)),
    "a replaced secret is healthy (key)": ([*REJECTED_KEY, "replace", "ok m"], ("healthy", "healthy", 0.0)),
    # the configuration was reloaded
    "a reload makes a rejected model half-open": (["401 m", "reload"], ("healthy", "half_open", 0.0)),
    "a reload makes a rejected key half-open": ([*REJECTED_KEY, "reload"], ("half_open", "half_open", 0.0)),
    "a reload keeps the verdict": ([*REJECTED_KEY, "reload", "401 m"], ("invalid", "half_open", 240.0)),
    "a reload and a success": ([*REJECTED_KEY, "reload", "ok m"], ("healthy", "healthy", 0.0)),
    "a reload keeps cooling": (["429 m 20", "reload"], ("healthy", "cooling", 20.0)),
    "a reload keeps exhausted": (["402 m", "reload"], ("exhausted", "healthy", 600.0)),
    "a reload keeps disabled": (["disable", "reload"], ("disabled", "healthy", 0.0)),
    "a reload with a new secret": ([*REJECTED_KEY, "replace", "reload"], ("healthy", "healthy", 0.0)),
    # the operator
    "disabled": (["disable"], ("disabled", "healthy", 0.0)),
    "enabled clears everything": ([*REJECTED_KEY, "disable", "enable"], ("healthy", "healthy", 0.0)),
    # other processes
    "rejected there, known here": (["there 401 m", "share"], ("healthy", "invalid", 120.0)),
    "the key rejected there, known here": (
        ["there 401 m", "there 401 n", "share"],
        ("invalid", "invalid", 120.0),
    ),
    "one model there, another here": (["there 401 n", "share", "401 m"], ("invalid", "healthy", 120.0)),
    "the later deadline wins": (["there 429 m 50", "429 m 20", "share"], ("healthy", "cooling", 50.0)),
    "a success there after the deadline wins": (
        ["there 401 m", "share", "wait 120", "there ok m", "share"],
        ("healthy", "healthy", 0.0),
    ),
    "a reload here is not undone by what is shared": (
        [*REJECTED_KEY, "share", "reload", "share"],
        ("half_open", "half_open", 0.0),
    ),
    "a success after a reload clears it there too": (
        ["there 401 m", "share", "there reload", "there ok m", "share"],
        ("healthy", "healthy", 0.0),
    ),
}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_transition(name: str, tmp_path: Path) -> None:
    events, expected = TRANSITIONS[name]
    story = Story(tmp_path / "key")
    story.play("wait 0.0007")  # deadlines that are not whole milliseconds
    for event in events:
        story.play(event)
    assert story.state() == expected


def test_only_one_call_probes_at_a_time(tmp_path: Path) -> None:
    for events in (["401 m"], REJECTED_KEY, ["429 m"], ["402 m"]):
        story = Story(tmp_path / "key")
        for event in [*events, "wait 600", "probe m"]:
            story.play(event)
        with pytest.raises(NoUsableCredential, match="is being probed by another call"):
            story.pool.acquire("m")


def test_a_rejected_key_has_its_next_probe_time(tmp_path: Path) -> None:
    story = Story(tmp_path / "key")
    story.play("401 m")
    with pytest.raises(NoUsableCredential, match="k is rejected for 120") as none:
        story.pool.acquire("m")
    assert none.value.retry_after == pytest.approx(5)
    assert none.value.kind == "authentication"
    assert story.pool.retry_after("m") == pytest.approx(120)
    assert story.pool.retry_after("n") == 0


def test_a_new_sibling_revives_no_key_and_a_new_secret_only_its_own() -> None:
    environ = {"A": SECRET, "B": OTHER}
    before = KeyRing(["env:A", "env:B"], environ=environ, clock=lambda: 1000.0)
    for model in ("m", "n"):
        for lease in [before.acquire(model) for _ in range(2)]:
            lease.failed(ProviderError("no", "authentication"))
    before.disable("sk-…bbbb")
    grown = KeyRing(["env:A", "env:B", "env:C"], environ={**environ, "C": "sk-third-key-000000cccc"}, previous=before)
    assert [status.state for status in grown.status()] == ["half_open", "disabled", "healthy"]
    assert [status.failures for status in grown.status()] == [2, 2, 0]
    renewed = KeyRing(["env:A", "env:B"], environ={**environ, "A": "sk-renewed-key-00000dddd"}, previous=before)
    assert [status.state for status in renewed.status()] == ["healthy", "disabled"]


def test_a_lease_from_before_a_reload_reports_to_the_key_it_used() -> None:
    before = KeyRing([SECRET], clock=lambda: 1000.0)
    lease = before.acquire("m")
    after = KeyRing([SECRET, OTHER], previous=before)
    lease.failed(ProviderError("slow down", "rate_limit", retry_after=20.0))
    assert after.status()[0].models["m"].seconds == 20.0
    assert after.acquire("m").secret == OTHER


def test_a_rejected_key_with_healthy_siblings_is_read_again(tmp_path: Path) -> None:
    story = Story(tmp_path / "key")
    pool = KeyRing([f"file:{story.place}", OTHER], clock=lambda: story.now)
    pool.acquire("m").failed(ProviderError("no", "authentication"))
    story.place.write_text("sk-renewed-key-00000dddd")
    story.now += 2
    assert {pool.acquire("m").secret for _ in range(4)} == {OTHER, "sk-renewed-key-00000dddd"}
    assert SECRET in pool.secrets  # running calls may still return an error that repeats it


def test_models_that_clients_invent_are_remembered_up_to_a_limit() -> None:
    pool = KeyRing([SECRET], clock=lambda: 1000.0)
    leases = [pool.acquire(f"invented-{number}") for number in range(4 * MAX_COOLDOWNS)]
    leases[0].failed(ProviderError("pay first", "billing", retry_after=1.0))
    for number, lease in enumerate(leases):
        lease.failed(ProviderError("no such model", "permission", retry_after=10.0 + number))
    (status,) = pool.status()
    assert (status.state, status.seconds) == ("exhausted", 1.0)  # what holds for every model is not forgotten
    assert list(status.models)[-1] == f"invented-{4 * MAX_COOLDOWNS - 1}"
    assert len(status.models) == MAX_COOLDOWNS - 1
