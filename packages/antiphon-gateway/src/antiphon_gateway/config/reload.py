"""`ConfigReloader`: reload the configuration when its file is saved, or on SIGHUP.

Once a second the file and the files of its secrets are read and their digests compared; modification times are too coarse, and
editors replace files in different ways. A new content must stay the same for a moment before it is read, so that a half-written
file is not.

An invalid file changes nothing: the reason is logged once and kept for `/status`. The same holds for a configuration that
`apply` rejects. SIGHUP (or `reload_now`) reads at once and applies even an unchanged file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

from antiphon.errors import AntiphonError
from antiphon_gateway.config.file import ConfigError, ConfigResult, read_config
from antiphon_gateway.config.settings import NO_OVERRIDES, Config
from antiphon_gateway.threads import PROCESS

logger = logging.getLogger("antiphon.gateway")

_MAX_BYTES = 8 * 1024 * 1024
_Contents: TypeAlias = Mapping[Path, bytes | None]


class ReloadResult(Struct, frozen=True, kw_only=True):
    """The last reload. After a rejected one the old configuration stays in use; `problems` are the reasons."""

    time: datetime = field(default_factory=partial(datetime.now, UTC))
    is_applied: bool
    problems: tuple[str, ...] = ()


class ConfigReloader:
    """Watches one file. `apply` gets each new configuration, and may reject it with an `AntiphonError`.

    `serving` is what was read from the file before; if the file differs by now, that is the first change. `overrides` are
    for `load_config`. A pipe can be read only once and is not watched. `sleep` can be replaced in tests.
    """

    def __init__(
        self,
        path: Path,
        apply: Callable[[Config], None],
        *,
        serving: Config | None = None,
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] = NO_OVERRIDES,
        every: float = 1.0,
        debounce: float = 0.2,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        on_reload: Callable[..., None] = lambda **_: None,
    ) -> None:
        self.path = path
        self.last: ReloadResult | None = None
        """The last reload, if there was one."""
        self._apply = apply
        self._environ = environ
        self._overrides = overrides
        self._every = every
        self._debounce_seconds = debounce
        self._on_reload = on_reload
        self._sleep = sleep
        self._reload_requested = asyncio.Event()
        self._is_pipe = path.exists() and not path.is_file()
        read = ConfigResult() if self._is_pipe else self._read()
        self._secret_files = read.secret_files
        self._known = self._contents() if serving in (None, read.config) else {}

    def reload_now(self) -> None:
        """Read the file at once and apply it, changed or not."""
        self._reload_requested.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        with self._handle_sighup():
            while True:
                await self._wait_for_change()
                is_requested = self._reload_requested.is_set()
                self._reload_requested.clear()
                await self.check(is_requested=is_requested)

    async def check(self, *, is_requested: bool = False) -> None:
        """Check once, and reload if needed. `is_requested`: even if nothing has changed."""
        if self._is_pipe:
            return
        contents = await PROCESS.run(self._contents)
        if contents == self._known and not is_requested:
            return
        while True:
            await self._sleep(self._debounce_seconds)
            later = await PROCESS.run(self._contents)
            if later == contents:
                break
            contents = later
        read = await PROCESS.run(self._read)
        served = self._secret_files if read.config is None else ()
        self._secret_files = tuple(dict.fromkeys((*served, *read.secret_files)))
        # The digests are taken before the reading: a save during it is a change for the next check.
        self._known = {path: contents.get(path, now) for path, now in (await PROCESS.run(self._contents)).items()}
        self.last = self._take(read)
        self._on_reload(is_applied=self.last.is_applied)

    def _take(self, read: ConfigResult) -> ReloadResult:
        """Use what was read, if it can be."""
        if read.config is None:
            return _refused(ConfigError(read.problems))
        try:
            self._apply(read.config)
        except AntiphonError as error:
            return _refused(error)
        except Exception as error:  # a defect of ours must not end the watching or the server
            logger.exception("could not apply the configuration from %s", self.path)
            return ReloadResult(is_applied=False, problems=(f"could not be applied: {type(error).__name__}",))
        logger.info("configuration reloaded from %s", self.path)
        return ReloadResult(is_applied=True)

    async def _wait_for_change(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._reload_requested.wait()

    @contextlib.contextmanager
    def _handle_sighup(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGHUP, self.reload_now)
        except (AttributeError, NotImplementedError, RuntimeError, ValueError):
            yield  # no such signal on this system, or not in the main thread: saved files are still noticed
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    def _read(self) -> ConfigResult:
        return read_config(self.path, self._environ, overrides=self._overrides)

    def _contents(self) -> _Contents:
        return {path: _content(path) for path in (self.path, *self._secret_files)}


def _refused(error: AntiphonError) -> ReloadResult:
    problems = "\n  ".join(["", *map(str, error.problems)]) if isinstance(error, ConfigError) else f" {error}"
    logger.error("invalid configuration; keeping the previous one:%s", problems)
    return ReloadResult(is_applied=False, problems=tuple(str(error).splitlines()))


def _content(path: Path) -> bytes | None:
    """The digest of a file's content; None if it cannot be read."""
    try:
        if not path.is_file():  # opening a pipe would block until it is written
            return None
        with open(path, "rb") as file:
            return sha256(file.read(_MAX_BYTES)).digest()
    except (OSError, ValueError):
        return None
