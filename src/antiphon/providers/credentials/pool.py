"""`CredentialPool`: several keys of one provider, each used while it is good for something.

What is held against a key, and when it may be tried again, is the state machine of `health`: healthy, cooling until,
exhausted, invalid, disabled, and half-open with one probe at a time; by key, and by key and model. The pool chooses:

- Among the usable keys the choice is smooth weighted round robin: in any stretch of calls each has its share.
- The secrets of rejected keys are read again, once a second and whenever no key is usable: one that was replaced where it comes
  from is a new key.
- Where still none is, the error says why for each, and when the soonest may be tried.

Time comes from the clock that was given, secrets leave only in a `Lease`, and every method may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from math import inf

from antiphon.errors import CredentialError, NoUsableCredential
from antiphon.providers.credentials.health import CredentialStatus, Key, Waits
from antiphon.providers.credentials.secret import Credential, masked, scrubbed
from antiphon.providers.credentials.shared_state import NOTHING_HELD, Standing
from antiphon.wire.output import ErrorKind, ProviderError

_REREAD_SECONDS = 1.0
_MOST_RETIRED = 16
"""Secrets that were replaced. Calls that began with one may still bring an error that repeats it."""
_MOST_HOPEFUL: tuple[ErrorKind, ...] = ("rate_limit", "billing", "authentication", "permission")


class _CallNumbers:
    """Numbers of calls, which grow; shared by a pool and the one that replaces it."""

    def __init__(self) -> None:
        self.latest = 0

    def next(self) -> int:
        self.latest += 1
        return self.latest


class Lease:
    """A key lent for one call. Report what came of it: `succeeded`, `failed`, or `release` if it was given up."""

    __slots__ = ("_key", "_model", "_number", "_pool", "is_probe", "secret")

    def __init__(self, pool: CredentialPool, key: Key, model: str, number: int, *, is_probe: bool) -> None:
        self._pool = pool
        self._key = key
        self._model = model
        self._number = number
        self.is_probe = is_probe
        self.secret = key.secret

    @property
    def name(self) -> str:
        """What reports call the key: its name, or its masked form."""
        return self._key.name

    def succeeded(self) -> None:
        """The provider answered."""
        with self._pool.lock:
            self._key.on_success(self._model, self._number, self._pool.clock())

    def failed(self, error: ProviderError) -> None:
        """The provider refused, or could not be reached."""
        pool = self._pool
        error = scrubbed(error, (self.secret, *pool.secrets))
        if self.secret != self._key.secret:  # replaced in the meantime: the new one has done nothing
            self.release()
            return
        with pool.lock:
            self._key.on_failure(self._model, self._number, pool.latest, pool.clock(), error)

    def release(self) -> None:
        """Nothing was learned; a probe gives its place to the next. Harmless after the other two."""
        with self._pool.lock:
            self._key.on_release(self._model, self._number)

    def __repr__(self) -> str:
        return f"<Lease of {self.name}>"


class CredentialPool:
    """Keys of one provider, taken in turn. `keys` are secrets (literal, `env:NAME`, `file:PATH`) or `Credential`s.

    `previous` is the pool that this one replaces after a reload: a key that is in both keeps its state, except that what was
    rejected is probed by the next call. A key with a new secret is a new key.
    """

    def __init__(
        self,
        keys: Iterable[str | Credential],
        *,
        waits: Waits | None = None,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] | None = None,
        previous: CredentialPool | None = None,
    ) -> None:
        self.clock: Callable[[], float] = clock if previous is None else previous.clock
        self.lock: threading.Lock = threading.Lock() if previous is None else previous.lock
        self._numbers: _CallNumbers = _CallNumbers() if previous is None else previous._numbers
        self._environ = environ
        self._keys: list[Key] = []
        self._reread_at = -inf
        self._retired: deque[str] = deque(maxlen=_MOST_RETIRED)
        known = {key.secret: key for key in previous._keys} if previous is not None else {}
        with self.lock:
            for given in keys:
                credential = Credential(secret=given) if isinstance(given, str) else given
                secret = credential.read(environ)
                name = self._free_name(credential.name or masked(secret))
                key = known.pop(secret, None)
                if key is None:
                    key = Key(credential, secret, name, waits or Waits())
                else:
                    key.credential, key.name = credential, name
                    key.reload()
                self._keys.append(key)
        if not self._keys:
            raise CredentialError("a pool needs at least one key; for a provider without keys, give no pool")
        self.secrets = self._every_secret()
        """Every secret, for whoever has to take them out of what is shown."""

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"CredentialPool({', '.join(key.name for key in self._keys)})"

    @property
    def latest(self) -> int:
        """The number of the latest call."""
        return self._numbers.latest

    def acquire(self, model: str = "") -> Lease:
        """The next usable key for `model`. Raises `NoUsableCredential`, which says when one will be."""
        with self.lock:
            now = self.clock()
            usable = self._usable(model, now)
            if (not usable or self._has_rejected()) and self._read_again(now, is_needed=not usable):
                usable = self._usable(model, now)
            if not usable:
                raise self._none_usable(model, now)
            key = _next_in_turn(usable)
            number = self._numbers.next()
            is_probe = key.lend(model, number, now)
            return Lease(self, key, model, number, is_probe=is_probe)

    def retry_after(self, model: str = "") -> float:
        """In how many seconds a call for the model finds a usable key: 0 now, infinity if waiting does not help."""
        with self.lock:
            now = self.clock()
            times = [at for key in self._keys if (at := key.free_at(model)) is not None]
            return max(0.0, min(times) - now) if times else inf

    def disable(self, name: str) -> None:
        """Use the key of that name no more."""
        with self.lock:
            self._named(name).disable()

    def enable(self, name: str) -> None:
        """Use the key of that name again, and hold nothing against it."""
        with self.lock:
            self._named(name).enable()

    def status(self) -> list[CredentialStatus]:
        """What is known of each key."""
        with self.lock:
            now = self.clock()
            return [key.status(now) for key in self._keys]

    def standings(self, named: Callable[[str], str]) -> dict[str, Standing]:
        """What other processes should know of each key, by the name that `named` makes of its secret."""
        with self.lock:
            now = self.clock()
            found: dict[str, Standing] = {}
            for key in self._keys:
                name = named(key.secret)
                found[name] = found.get(name, NOTHING_HELD).joined(key.standing(now))
            return found

    def learn(self, named: Callable[[str], str], told: Mapping[str, Standing]) -> None:
        """Add what other processes know of the keys. Times are those of the pool's clock."""
        with self.lock:
            now = self.clock()
            for key in self._keys:
                if standing := told.get(named(key.secret)):
                    key.learn(standing, self.latest, now)

    def _usable(self, model: str, now: float) -> list[Key]:
        return [key for key in self._keys if key.is_free(model, now)]

    def _has_rejected(self) -> bool:
        return any(key.is_refused for key in self._keys)

    def _read_again(self, now: float, *, is_needed: bool) -> bool:
        """Look whether rejected keys were replaced where they come from; whether any was. Once a second, unless needed."""
        if not is_needed and now < self._reread_at + _REREAD_SECONDS:
            return False
        self._reread_at = now
        is_any = False
        for key in self._keys:
            if key.is_refused and not key.is_disabled and key.credential.is_elsewhere:
                try:
                    secret = key.credential.read(self._environ)
                except CredentialError:
                    continue
                if secret != key.secret:
                    self._retired.append(key.secret)
                    key.replace(secret, key.credential.name or self._free_name(masked(secret)))
                    self.secrets = self._every_secret()
                    is_any = True
        return is_any

    def _none_usable(self, model: str, now: float) -> NoUsableCredential:
        told = "; ".join(f"{key.name} {key.trouble(model, now)}" for key in self._keys)
        times = [at for key in self._keys if (at := key.free_at(model)) is not None]
        soonest = max(0.0, min(times) - now) if times else None
        ahead = "replace a key, or enable it again" if soonest is None else f"the soonest is free in {soonest:.1f} s"
        kinds = {key.kind(model) for key in self._keys}
        return NoUsableCredential(
            f"no key can be used{f' for {model}' if model else ''}: {told}; {ahead}",
            soonest,
            next(kind for kind in _MOST_HOPEFUL if kind in kinds),
        )

    def _every_secret(self) -> tuple[str, ...]:
        return (*(key.secret for key in self._keys), *self._retired)

    def _named(self, name: str) -> Key:
        for key in self._keys:
            if key.name == name:
                return key
        known = ", ".join(key.name for key in self._keys)
        raise CredentialError(f"no key is called {name!r}; there are: {known}")

    def _free_name(self, name: str) -> str:
        taken = {key.name for key in self._keys}
        others = (f"{name} #{number}" for number in count(2))
        return name if name not in taken else next(other for other in others if other not in taken)


def _next_in_turn(keys: list[Key]) -> Key:
    """Smooth weighted round robin: everybody gains its weight, the first in line pays for all."""
    if len(keys) == 1:
        return keys[0]
    for key in keys:
        key.turn += key.credential.weight
    chosen = max(keys, key=lambda key: key.turn)
    chosen.turn -= sum(key.credential.weight for key in keys)
    return chosen
