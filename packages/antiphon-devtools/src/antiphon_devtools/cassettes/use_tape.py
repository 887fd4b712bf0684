"""`use_tape`: a gateway for one test, which records the first time and plays the recording from then on.

The gateway runs in a thread of the test's process, on a free port of this machine; it is imported when a tape is used. A
recording replaces the tape only when the test has passed through the block without an exception.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, get_args

from msgspec import structs

from antiphon.errors import TapeError

if TYPE_CHECKING:
    from antiphon_devtools.cassettes.matching import MatchLevel
    from antiphon_devtools.cassettes.player import TapePlayer
    from antiphon_gateway.app import Gateway, TapeHandler
    from antiphon_gateway.config.settings import Config

TapeMode: TypeAlias = Literal["auto", "record", "replay", "none"]
MODES: tuple[TapeMode, ...] = get_args(TapeMode)
VARIABLE = "ANTIPHON_TAPE"
"""The environment variable with the mode, where a test does not name one."""
_START_SECONDS = 30.0
_PLACEHOLDER_KEY = "sk-not-needed"


class TapedGateway:
    """A running gateway. `mode` is what it does: `record`, `replay`, or `none` (it asks the providers and keeps nothing)."""

    def __init__(self, path: Path, mode: TapeMode) -> None:
        self.path = path
        self.mode = mode
        self.port = 0
        self._player: TapePlayer | None = None

    @property
    def url(self) -> str:
        """The base URL for clients of Anthropic and Google."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI."""
        return f"{self.url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which the official SDKs use this gateway. A key that is set stays; others get a placeholder."""
        addresses = {
            "OPENAI_BASE_URL": self.openai_url,
            "ANTHROPIC_BASE_URL": self.url,
            "GOOGLE_GEMINI_BASE_URL": self.url,
        }
        names = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
        return {**addresses, **{name: os.environ.get(name) or _PLACEHOLDER_KEY for name in names}}

    @property
    def misses(self) -> list[str]:
        """Why requests had no recorded answer, one text for each."""
        return list(self._player.misses) if self._player is not None else []

    @property
    def unplayed(self) -> list[int]:
        """The numbers of recorded exchanges that were not played."""
        return self._player.unplayed if self._player is not None else []

    def _playing(self, player: TapePlayer) -> TapePlayer:
        self._player = player
        return player


class TapeOptions(TypedDict, total=False):
    """Arguments of `use_tape` besides the path."""

    mode: TapeMode | None
    config: str | os.PathLike[str] | Config | None
    match: MatchLevel
    ignore: Sequence[str]
    redact: Sequence[str]
    speed: float
    once: bool


@contextmanager
def use_tape(
    path: str | os.PathLike[str],
    *,
    mode: TapeMode | None = None,
    config: str | os.PathLike[str] | Config | None = None,
    match: MatchLevel = "body",
    ignore: Sequence[str] = (),
    redact: Sequence[str] = (),
    speed: float = inf,
    once: bool = False,
) -> Iterator[TapedGateway]:
    """A gateway that records on the tape at `path`, or plays it.

    `mode` is `auto` (record if there is no tape), `record` (a new tape in place of the old one), `replay` or `none`; by default
    `$ANTIPHON_TAPE`, else `auto`. `config` is an `antiphon.toml` for recording; by default the providers whose API key is set.
    The rest is as in `antiphon serve`: `match`, `ignore`, `speed` and `once` for playing, `redact` for recording.
    """
    tape = TapedGateway(Path(path), _mode(mode, Path(path)))
    if tape.mode == "replay":
        with _playing(tape, match, ignore, speed=speed, once=once):
            yield tape
        return
    settings = _config(config, tape)
    if tape.mode == "none":
        with _serving(settings, tape, None):
            yield tape
        return
    from antiphon_devtools.cassettes.recorder import recorder_to

    tape.path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = tape.path.with_name(f".{tape.path.name}.{os.getpid()}")
    try:
        with _serving(settings, tape, recorder_to(unfinished, redact)):
            yield tape
        unfinished.replace(tape.path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{unfinished}{suffix}")


def _mode(given: TapeMode | None, path: Path) -> TapeMode:
    mode = given or os.environ.get(VARIABLE) or "auto"
    if mode not in MODES:
        where = f"${VARIABLE}" if given is None else "mode"
        raise TapeError(f"{where} is {mode!r}; expected {', '.join(MODES)}")
    if mode == "auto":
        return "replay" if path.exists() else "record"
    return mode


@contextmanager
def _playing(
    tape: TapedGateway, match: MatchLevel, ignore: Sequence[str], *, speed: float, once: bool
) -> Iterator[None]:
    from antiphon_devtools.cassettes.matching import LEVELS, MatchRules, check_ignored_paths
    from antiphon_devtools.cassettes.player import ReplayOptions, TapePlayer, replay_config
    from antiphon_devtools.cassettes.tape import Tape

    if problem := check_ignored_paths(ignore):
        raise TapeError(f"ignore: {problem}")
    if match not in LEVELS:
        raise TapeError(f"match is {match!r}; expected {', '.join(LEVELS)}")
    if not speed > 0:
        raise TapeError(f"speed is {speed}; expected a number above 0")
    options = ReplayOptions(speed, once, MatchRules(match, tuple(ignore)))
    if not tape.path.exists():
        raise TapeError(
            f"there is no tape at {tape.path}; record it: run the test with --tape=record, or {VARIABLE}=record"
        )
    opened = Tape(tape.path)
    with _serving(replay_config({}, _PORTS), tape, lambda gateway: tape._playing(TapePlayer(gateway, opened, options))):
        yield


_PORTS = {"host": "127.0.0.1", "port": 0, "format_port": 0}


def _config(given: str | os.PathLike[str] | Config | None, tape: TapedGateway) -> Config:
    """The configuration to record with, on free ports and without keys of clients, a ledger or another process."""
    from antiphon_gateway.config.file import config_from_environment, load_config
    from antiphon_gateway.config.settings import Config, LedgerSettings

    if isinstance(given, Config):
        config = given
    elif given is not None:
        config = load_config(Path(given))
    else:
        config = config_from_environment(os.environ).config
        if all(provider.is_offline for provider in config.providers):
            raise TapeError(
                f"there is nothing to record {tape.path} from: no API key is set; set one, or give config=, an antiphon.toml"
            )
    own = structs.replace(config.gateway, **_PORTS, client_keys=(), tls_cert="", tls_key="", shared="")
    return structs.replace(config, gateway=own, keys=(), ledger=LedgerSettings(enabled=False))


@contextmanager
def _serving(
    config: Config,
    tape: TapedGateway,
    handler: Callable[[Gateway], TapeHandler] | None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """A gateway in a thread with an event loop of its own, until the block ends."""
    from antiphon_gateway.serve import serve

    loop, stop, is_ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    failure: list[BaseException] = []

    def ready(ports: tuple[int, int]) -> None:
        tape.port = ports[0]
        is_ready.set()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve(config, ready=ready, environ=environ, stop=stop, tape=handler, has_own_logs=False))
        except BaseException as error:
            failure.append(error)
        finally:
            is_ready.set()

    thread = threading.Thread(target=run, name="antiphon-tape", daemon=True)
    thread.start()
    if not is_ready.wait(_START_SECONDS):
        raise TapeError(f"the gateway for {tape.path} did not start within {_START_SECONDS:g} s")
    if failure:
        raise failure[0]
    try:
        yield
    finally:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(stop.set)
        thread.join(_START_SECONDS + 5)
    if failure:
        raise failure[0]
