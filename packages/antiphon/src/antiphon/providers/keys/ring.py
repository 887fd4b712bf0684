"""`KeyRing`: the keys of one provider, and which of them the next call uses.

Each key's health is the state machine of `health`. Among the usable keys the choice is smooth weighted round robin, so in any
stretch of calls each key gets its share. Secrets of rejected keys are read again once a second, and whenever no key is usable:
a secret that changed makes a new key. If still none is usable, a rejected one is probed, at most every few seconds. Otherwise the
error names the reason for each key and the time until the next try.

Secrets leave only in a `KeyLease`. Every method may be called from any thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import inf

from msgspec import Struct

from antiphon.errors import CredentialError, NoUsableCredential
from antiphon.providers.keys.health import Calls, CooldownPolicy, CredentialStatus, Health, KeyHealth
from antiphon.providers.keys.secret import Credential, mask, scrub, unique_name
from antiphon.wire.output import ErrorKind, ProviderError

_REREAD_SECONDS = 1.0
_MAX_RETIRED = 16
"""Replaced secrets. An error of a call that began with one may still repeat it."""
_KIND_PRIORITY: tuple[ErrorKind, ...] = ("rate_limit", "billing", "authentication", "permission")


class KeyLease(Struct, eq=False):
    """A key for one call. Report the result: `succeeded`, `failed`, or `release` if the call was abandoned."""

    _ring: KeyRing
    _key: KeyHealth
    _model: str
    _number: int
    name: str
    """The key's name in reports: its name, or the masked secret."""
    secret: str
    is_probe: bool = False

    def succeeded(self) -> None:
        """The provider answered."""
        ring, key = self._ring, self._key
        with ring.lock:
            key.successes += 1
            if key.cooldowns or key.rejected_models:
                key.on_success(self._model, self._number)

    def failed(self, error: ProviderError, *, is_scrubbed: bool = False) -> None:
        """The call failed. The error is kept, without secrets; `is_scrubbed`: it has none any more."""
        ring = self._ring
        error = error if is_scrubbed else scrub(error, (self.secret, *ring.secrets))
        if self.secret != self._key.secret:  # replaced meanwhile: the new one did not fail
            self.release()
            return
        with ring.lock:
            self._key.on_failure(self._model, self._number, error)

    def release(self) -> None:
        """No result; the next call may probe. No effect after `succeeded` or `failed`."""
        with self._ring.lock:
            self._key.on_release(self._model, self._number)

    def __repr__(self) -> str:
        return f"<KeyLease of {self.name}>"


class KeyRing:
    """Keys of one provider, used in turn. `keys` are secrets (literal, `env:NAME`, `file:PATH`) or `Credential`s.

    `previous` is the ring that this one replaces after a reload: a key in both keeps its health, but a rejected one is probed by
    the next call. A key with a new secret is a new key.
    """

    def __init__(
        self,
        keys: Iterable[str | Credential],
        *,
        waits: CooldownPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] | None = None,
        previous: KeyRing | None = None,
    ) -> None:
        self._calls: Calls = Calls(clock) if previous is None else previous._calls
        self.lock = self._calls.lock
        self._environ = environ
        self._keys: list[KeyHealth] = []
        self._reread_at = -inf
        self._retired: deque[str] = deque(maxlen=_MAX_RETIRED)
        known = {key.secret: key for key in previous._keys} if previous is not None else {}
        with self.lock:
            for item in keys:
                credential = Credential(secret=item) if isinstance(item, str) else item
                secret = credential.read(environ)
                name = self._unique_name(credential.source_name or mask(secret))
                key = known.pop(secret, None)
                if key is None:
                    key = KeyHealth(credential, secret, name, waits or CooldownPolicy(), self._calls)
                else:
                    key.credential, key.name = credential, name
                    key.waive_rejection()
                self._keys.append(key)
        if not self._keys:
            raise CredentialError("a ring needs at least one key; for a provider without keys, pass none")
        self.secrets = self._all_secrets()
        """Every secret, to be removed from anything that is shown."""

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(key.name for key in self._keys)})"

    def acquire(self, model: str = "", *, in_order: bool = False, preferred: str = "") -> KeyLease:
        """The next usable key for `model`. Raises `NoUsableCredential` with the time until one is usable.

        `in_order`: the first usable one, for what belongs to an account (files). `preferred`: the key of that name, if it is
        usable.
        """
        with self.lock:
            key, calls = self._keys[0], self._calls
            calls.last += 1
            if len(self._keys) == 1 and not key.cooldowns and not key.is_disabled:
                key.number_of_calls += 1
                return KeyLease(self, key, model, calls.last, key.name, key.secret)
            usable = self._usable(model)
            if (not usable or self._has_rejected()) and self._reread_rejected(is_needed=not usable):
                usable = self._usable(model)
            if not usable and self._waive_rejections(model):
                usable = self._usable(model)
            if not usable:
                raise self._no_usable_key(model)
            named = next((each for each in usable if each.name == preferred), None) if preferred else None
            key = named or (usable[0] if in_order else _weighted_round_robin(usable))
            is_probe = key.begin_call(model, calls.last)
            return KeyLease(self, key, model, calls.last, key.name, key.secret, is_probe)

    def retry_after(self, model: str = "") -> float:
        """Seconds until a key is usable for the model: 0 if one is now, infinity if waiting does not help."""
        with self.lock:
            times = [at for key in self._keys if (at := key.available_at(model)) is not None]
            return max(0.0, min(times) - self._calls.clock()) if times else inf

    def retry_rejected(self) -> None:
        """Let the next call probe a key although it was just rejected, if there is no other: a person asks for another try."""
        with self.lock:
            if all(key.is_rejected for key in self._keys):
                for key in self._keys:
                    key.waive_rejection()

    def disable(self, name: str) -> None:
        """Stop using the key of that name."""
        with self.lock:
            self._find(name).disable()

    def enable(self, name: str) -> None:
        """Use the key of that name again, with a clean state."""
        with self.lock:
            self._find(name).enable()

    def status(self) -> list[CredentialStatus]:
        """The health of each key."""
        with self.lock:
            return [key.status() for key in self._keys]

    @property
    def shared(self) -> list[tuple[str, Health]]:
        """What other processes should know of: the health of each key, with the secret that names it."""
        return [(key.secret, key) for key in self._keys]

    def _usable(self, model: str) -> list[KeyHealth]:
        return [key for key in self._keys if key.is_free(model)]

    def _has_rejected(self) -> bool:
        return any(key.is_rejected for key in self._keys)

    def _reread_rejected(self, *, is_needed: bool) -> bool:
        """Read the references of rejected keys again; True if a secret was replaced. Once a second, unless needed."""
        now = self._calls.clock()
        if not is_needed and now < self._reread_at + _REREAD_SECONDS:
            return False
        self._reread_at = now
        has_replaced = False
        for key in self._keys:
            if key.is_rejected and not key.is_disabled and key.credential.is_reference:
                try:
                    secret = key.credential.read(self._environ)
                except CredentialError:
                    continue
                if secret != key.secret:
                    self._retired.append(key.secret)
                    key.replace(secret, key.name if key.credential.source_name else self._unique_name(mask(secret)))
                    self.secrets = self._all_secrets()
                    has_replaced = True
        return has_replaced

    def _waive_rejections(self, model: str) -> bool:
        """Let rejected keys be probed, if they were rejected some time ago; True if there is one."""
        now = self._calls.clock()
        found = [key for key in self._keys if (at := key.retry_rejection_at(model)) is not None and at <= now]
        for key in found:
            key.waive_rejection()
        return bool(found)

    def _no_usable_key(self, model: str) -> NoUsableCredential:
        found = {key.name: key.why_unusable(model) for key in self._keys}
        reasons = "; ".join(f"{name} {reason}" for name, (reason, _) in found.items())
        kinds = {kind for _, kind in found.values()}
        times = [at for key in self._keys if (at := _next_try(key, model)) is not None]
        soonest = max(0.0, min(times) - self._calls.clock()) if times else None
        advice = "replace a key or enable one" if soonest is None else f"retry in {soonest:.1f} s"
        return NoUsableCredential(
            f"no usable key{f' for {model}' if model else ''}: {reasons}; {advice}",
            soonest,
            next(kind for kind in _KIND_PRIORITY if kind in kinds),
        )

    def _all_secrets(self) -> tuple[str, ...]:
        return (*(key.secret for key in self._keys), *self._retired)

    def _find(self, name: str) -> KeyHealth:
        for key in self._keys:
            if name in (key.name, mask(key.secret)):
                return key
        known = ", ".join(key.name for key in self._keys)
        raise CredentialError(f"unknown key {name!r}; known keys: {known}")

    def _unique_name(self, name: str) -> str:
        return unique_name(name, {key.name for key in self._keys})


def _next_try(key: KeyHealth, model: str) -> float | None:
    """When the key can be used, or is probed because no other one is left."""
    rejected_until = key.retry_rejection_at(model)
    return key.available_at(model) if rejected_until is None else rejected_until


def _weighted_round_robin(keys: list[KeyHealth]) -> KeyHealth:
    """Smooth weighted round robin: each key gains its weight, the chosen one pays the total."""
    if len(keys) == 1:
        return keys[0]
    for key in keys:
        key.weight_credit += key.credential.weight
    chosen = max(keys, key=lambda key: key.weight_credit)
    chosen.weight_credit -= sum(key.credential.weight for key in keys)
    return chosen
