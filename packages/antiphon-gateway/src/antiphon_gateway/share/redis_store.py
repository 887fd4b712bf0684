"""`RedisStore`: the connection to a Redis or Valkey server, which may be unavailable and is never waited for.

Every command is answered within `REQUEST_TIMEOUT`, or the store is unavailable: no reply, a broken connection and a server that
refuses are treated alike. From then on callers get `SharedStoreUnavailable` at once, until `connect` has found a server that
replies in time and can be written, and `mark_available` is called. So an outage delays only the requests that are just waiting.

Shared times are the server's: `clock` is the local monotonic clock plus an offset, measured on connecting and whenever the two
differ by more than a second. The password is read from `shared_password` for each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b, sha1
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from antiphon.errors import CredentialError, SharedStoreUnavailable
from antiphon.providers.keys.secret import HIDDEN, Credential
from antiphon_gateway.config.store_url import StoreUrl

if TYPE_CHECKING:
    from redis.asyncio import Redis

PREFIX = "antiphon:"
"""The prefix of every key in the store."""
REQUEST_TIMEOUT = 0.25
"""How long anything that a request waits for may take, in seconds."""
_CONNECT_SECONDS = 2.0
_LARGEST_SKEW = 1.0
_LONGEST_REASON = 200
_ALIVE = f"{PREFIX}alive"
_ALIVE_SECONDS = 60

Command: TypeAlias = Sequence[str | int | float]


class SharedStatus(Struct, frozen=True, kw_only=True):
    """The state of the store. `reason` is why it is unavailable; `since` is when the state last changed."""

    address: str
    is_unavailable: bool = field(name="is_away")
    since: datetime
    reason: str = ""


class StoreScript:
    """A Lua script that runs in the store: loaded once, then called by its hash."""

    def __init__(self, source: str) -> None:
        self.load: Command = ("SCRIPT", "LOAD", source)
        """The command that loads it."""
        self._hash = sha1(source.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[str], *values: str | float) -> Command:
        """The command that runs it."""
        return ("EVALSHA", self._hash, len(keys), *keys, *values)


class RedisStore:
    """One process's connection, unavailable at first. `password` is read again for every connection."""

    def __init__(
        self,
        address: StoreUrl,
        password: Credential | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        self.address = address
        self.is_unavailable = True
        """Whether commands fail at once."""
        self.offset = 0.0
        """How far the server's clock is ahead of `time.monotonic`."""
        self.reason = "not connected yet"
        self._password = password
        self._environ = environ
        self._timeout = timeout
        self._client: Redis | None = None
        self._since = datetime.now(UTC)
        self._secret = ""
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def status(self) -> SharedStatus:
        """The current state."""
        return SharedStatus(
            address=str(self.address),
            is_unavailable=self.is_unavailable,
            since=self._since,
            reason=self.reason if self.is_unavailable else "",
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The password, which must not be shown anywhere."""
        return (self._secret,) if self._secret else ()

    @property
    def key(self) -> bytes:
        """The key for hashing the names of secrets in the store: every process that shares it has it, the store does not."""
        return blake2b(self._secret.encode(), person=b"antiphon").digest()

    def clock(self) -> float:
        """The server's time now, in seconds since 1970."""
        return time.monotonic() + self.offset

    async def connect(self) -> None:
        """Find a server that answers in time and can be written. It stays unavailable to other callers until `mark_available`."""
        await self.aclose()
        try:
            self._secret = self._password.read(self._environ) if self._password is not None else ""
        except CredentialError as error:
            raise self._mark_unavailable(f"cannot read its password: {error}") from None
        self._client = self._new_client()
        await self.execute([("PING",)], _CONNECT_SECONDS)  # connecting may take longer than an answer
        await self.execute([("SET", _ALIVE, 1, "EX", _ALIVE_SECONDS)])
        await self.set_clock()

    def mark_available(self) -> None:
        """Allow commands of all callers."""
        self.is_unavailable = False
        self._since = datetime.now(UTC)

    async def execute(self, commands: Sequence[Command], timeout: float | None = None) -> list[Any]:
        """The replies to some commands, in one round trip. Raises `SharedStoreUnavailable`; the commands may have run then.

        A script that the server does not have is not a failure: it is a `NoScriptError` among the replies.
        """
        from redis.exceptions import NoScriptError

        client = self._client
        if client is None:
            raise SharedStoreUnavailable(f"shared store {self.address} is unavailable: {self.reason}")
        timeout = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout):
                answers = await _send(client, commands)
        except TimeoutError:
            raise self._mark_unavailable(f"no reply within {timeout:g} s", client) from None
        except Exception as error:  # an error of the store must not fail a request
            raise self._mark_unavailable(_error_text(error), client) from None
        for answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, NoScriptError):
                raise self._mark_unavailable(f"the server returned an error: {_error_text(answer)}", client)
        return answers

    async def run_script(self, script: StoreScript, calls: Sequence[Command]) -> list[Any]:
        """The replies to calls of a script, which is loaded if the server does not have it. Raises `SharedStoreUnavailable`."""
        answers = await self.execute(calls)
        missing = [number for number, answer in enumerate(answers) if isinstance(answer, Exception)]
        if missing:
            await self.execute([script.load])
            again = await self.execute([calls[number] for number in missing])
            if any(isinstance(answer, Exception) for answer in again):
                raise SharedStoreUnavailable(f"shared store {self.address} does not keep the loaded script")
            for number, answer in zip(missing, again, strict=True):
                answers[number] = answer
        return answers

    async def set_clock(self) -> None:
        """Measure the offset of the server's clock."""
        began = time.monotonic()
        [[seconds, microseconds]] = await self.execute([("TIME",)])
        offset = int(seconds) + int(microseconds) / 1e6 - (began + time.monotonic()) / 2
        if abs(offset - self.offset) > _LARGEST_SKEW:
            self.offset = round(offset, 3)

    async def aclose(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        self.is_unavailable = True
        if client is not None:
            await _close(client)
        await asyncio.gather(*self._closing)

    def _new_client(self) -> Redis:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        address = self.address
        return Redis(
            host=address.host or "localhost",
            port=address.port,
            unix_socket_path=address.path or None,
            db=address.database,
            username=address.user or None,
            password=self._secret or None,
            ssl=address.is_encrypted,
            socket_timeout=None,  # each caller has its own timeout
            socket_connect_timeout=_CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            decode_responses=True,
        )

    def _mark_unavailable(self, reason: str, client: Redis | None = None) -> SharedStoreUnavailable:
        """Record that the store is unavailable, and return the error to raise."""
        if self._secret:
            reason = reason.replace(self._secret, HIDDEN)
        if client is self._client:  # otherwise an earlier caller recorded it, and there may be a new connection
            if not self.is_unavailable:
                self._since = datetime.now(UTC)
            self.is_unavailable, self.reason, self._client = True, reason, None
            if client is not None:
                self._closing.add(task := asyncio.create_task(_close(client)))
                task.add_done_callback(self._closing.discard)
        return SharedStoreUnavailable(f"shared store {self.address} is unavailable: {reason}")


async def _send(client: Any, commands: Sequence[Command]) -> list[Any]:
    """The replies, including error replies."""
    from redis.exceptions import ResponseError

    if len(commands) == 1:  # a pipeline of one costs half as much again
        try:
            return [await client.execute_command(*commands[0])]
        except ResponseError as refusal:
            return [refusal]
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return list(await pipeline.execute(raise_on_error=False))


async def _close(client: Redis) -> None:
    with contextlib.suppress(Exception):  # the connection is being discarded
        async with asyncio.timeout(_CONNECT_SECONDS):
            await client.aclose()


def _error_text(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_REASON].rstrip(".") or type(error).__name__
