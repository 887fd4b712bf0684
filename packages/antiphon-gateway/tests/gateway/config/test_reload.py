"""Reloading: a save takes effect if it can be served, and changes nothing if it cannot."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import ProviderSetupError
from antiphon_gateway.config.reload import ConfigReloader
from antiphon_gateway.config.settings import Config
from support.waiting import until_async


def text(port: int) -> str:
    return f"[gateway]\nport = {port}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "antiphon.toml"
    path.write_text(text(1000))
    return path


class Served:
    """What was applied, and a way to wait for it."""

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self.trouble: Exception | None = None

    def __call__(self, config: Config) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.configs.append(config)

    @property
    def ports(self) -> list[int]:
        return [config.gateway.port for config in self.configs]


@asynccontextmanager
async def watching(watcher: ConfigReloader) -> Any:
    task = asyncio.create_task(watcher.run())
    try:
        yield watcher
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def watcher_of(file: Path, apply: Callable[[Config], None], **options: Any) -> ConfigReloader:
    return ConfigReloader(file, apply, **{"environ": {}, "every": 0.01, "debounce": 0.02, **options})


def refusal(watcher: ConfigReloader) -> str:
    """Why the last reload was refused; empty if it was applied."""
    assert watcher.last is not None
    assert watcher.last.is_applied == (not watcher.last.problems)
    return "\n".join(watcher.last.problems)


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(steps)


def in_place(file: Path, content: str) -> None:
    file.write_text(content)


def replaced(file: Path, content: str) -> None:
    other = file.with_name("other")
    other.write_text(content)
    os.replace(other, file)


def removed_and_made_again(file: Path, content: str) -> None:
    file.unlink()
    file.write_text(content)


def linked(file: Path, content: str) -> None:
    """As a mounted ConfigMap does it: the name is a link, and the link is changed."""
    real = file.with_name(f"real-{len(content)}-{hash(content)}")
    real.write_text(content)
    link = file.with_name("link")
    link.symlink_to(real)
    os.replace(link, file)


def with_the_same_times(file: Path, content: str) -> None:
    known = file.stat()
    file.write_text(content)
    os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns))


@pytest.mark.parametrize("saved", [in_place, replaced, removed_and_made_again, linked, with_the_same_times])
def test_every_way_of_saving_takes_effect(file: Path, saved: Callable[[Path, str], None]) -> None:
    async def steps() -> None:
        served = Served()
        async with watching(watcher_of(file, served)) as watcher:
            saved(file, text(2000))
            await until_async(lambda: bool(served.ports))
            saved(file, text(3000))
            await until_async(lambda: len(served.ports) > 1)
            assert served.ports == [2000, 3000]
            assert refusal(watcher) == ""

    run(steps())


def test_an_unchanged_file_is_not_applied(file: Path) -> None:
    async def steps() -> None:
        served = Served()
        watcher = watcher_of(file, served)
        await watcher.check()
        file.touch()
        await watcher.check()
        replaced(file, text(1000))
        await watcher.check()
        assert served.ports == []

    run(steps())


def test_an_invalid_file_is_logged_once_and_the_old_one_stays_in_use(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps() -> None:
        served = Served()
        reloads: list[bool] = []
        watcher = watcher_of(file, served, on_reload=lambda is_applied: reloads.append(is_applied))
        file.write_text('[gateway]\nprot = 1\nport = "x"\n')
        for _ in range(3):
            await watcher.check()
        assert served.ports == []
        assert reloads == [False]
        assert f"{file}:2: gateway.prot unknown key; did you mean port?" in refusal(watcher)
        assert f"{file}:3: gateway.port" in refusal(watcher)
        (message,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert message.count("invalid configuration") == 1
        assert message.count("problems in the configuration") == 0
        assert f"{file}:2: gateway.prot unknown key" in message
        file.unlink()
        await watcher.check()
        assert "not found" in refusal(watcher)
        file.write_text(text(2000))
        await watcher.check()
        assert served.ports == [2000]
        assert refusal(watcher) == ""
        assert reloads == [False, False, True]

    with caplog.at_level(logging.INFO, logger="antiphon.gateway"):
        run(steps())


@pytest.mark.parametrize(
    ("trouble", "message"),
    [(ProviderSetupError("no such thing"), "no such thing"), (ZeroDivisionError("sk-secret"), "ZeroDivisionError")],
)
def test_the_callback_may_refuse_a_configuration(file: Path, trouble: Exception, message: str) -> None:
    async def steps() -> None:
        served = Served()
        served.trouble = trouble
        watcher = watcher_of(file, served)
        file.write_text(text(2000))
        await watcher.check()
        assert message in refusal(watcher)
        assert "sk-secret" not in refusal(watcher)
        served.trouble = None
        file.write_text(text(3000))
        await watcher.check()
        assert served.ports == [3000]

    run(steps())


def test_a_file_that_is_being_written_is_waited_for(file: Path) -> None:
    """Another piece comes whenever the watcher waits for the file to settle: none of what lies between is believed."""

    async def steps() -> None:
        whole = text(2000) + "# end\n"
        pieces = (whole[:size] for size in range(1, len(whole) + 1))
        waits: list[float] = []

        async def written_meanwhile(seconds: float) -> None:
            waits.append(seconds)
            if (piece := next(pieces, None)) is not None:
                file.write_text(piece)

        served = Served()
        watcher = watcher_of(file, served, debounce=0.2, sleep=written_meanwhile)
        file.write_text(next(pieces))
        await watcher.check()
        assert served.ports == [2000]
        assert refusal(watcher) == ""
        assert waits == [0.2] * len(whole)

    run(steps())


def test_secret_files_count(file: Path) -> None:
    async def steps() -> None:
        served = Served()
        secret = file.with_name("secret")
        secret.write_text("one")
        file.write_text('[gateway]\nclient_keys = ["file:secret"]\n')
        watcher = watcher_of(file, served)
        secret.write_text("two")
        await watcher.check()
        assert len(served.configs) == 1
        secret.unlink()
        await watcher.check()
        assert f"cannot read the key file {secret}" in refusal(watcher)
        secret.write_text("three")
        await watcher.check()
        assert (len(served.configs), refusal(watcher)) == (2, "")
        # One that a refused file names is waited for as well.
        file.write_text('[gateway]\nclient_keys = ["file:later"]\n')
        await watcher.check()
        assert f"cannot read the key file {file.with_name('later')}" in refusal(watcher)
        file.with_name("later").write_text("four")
        await watcher.check()
        assert (len(served.configs), refusal(watcher)) == (3, "")

    run(steps())


def test_a_sighup_reloads_immediately_even_an_unchanged_file(file: Path) -> None:
    async def steps() -> None:
        served = Served()
        before = signal.getsignal(signal.SIGHUP)
        async with watching(watcher_of(file, served, every=3600.0)) as watcher:
            await until_async(lambda: signal.getsignal(signal.SIGHUP) is not before)
            os.kill(os.getpid(), signal.SIGHUP)
            await until_async(lambda: served.ports == [1000])
            file.write_text(text(2000))
            watcher.reload_now()
            await until_async(lambda: served.ports == [1000, 2000])
        assert signal.getsignal(signal.SIGHUP) == before

    run(steps())


def test_command_line_options_survive_a_reload(file: Path) -> None:
    async def steps() -> None:
        served = Served()
        watcher = watcher_of(file, served, overrides={"host": "::1"})
        file.write_text(text(2000))
        await watcher.check()
        assert [config.gateway.host for config in served.configs] == ["::1"]

    run(steps())


def test_a_change_before_the_watching_began_is_seen(file: Path) -> None:
    async def steps() -> None:
        served = Served()
        watcher = watcher_of(file, served, serving=Config())
        await watcher.check()
        await watcher.check()
        assert served.ports == [1000]

    run(steps())


def test_a_named_pipe_is_not_read_as_configuration(tmp_path: Path) -> None:
    async def steps() -> None:
        served = Served()
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        watcher = watcher_of(pipe, served)
        await watcher.check(is_requested=True)
        assert served.ports == []

    run(steps())
