"""`antiphon doctor`: checks everything the gateway depends on, and reports what failed and how to fix it.

Each check returns findings and is independent of the others; a check that cannot run is a finding too. A provider gets one
request without a key to its address; any answer counts, and its Date header is compared with our clock. Then each key is tried
with the list of models, a call that costs nothing. `--offline` skips both.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import platform
import re
import socket
import time
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from statistics import median
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct, structs

from antiphon import __version__
from antiphon.cli.program import runnable
from antiphon.cli.terminal import joined, styled, write, write_json
from antiphon.errors import AntiphonError, StoreError
from antiphon.history.location import data_folder, data_folder_for, is_postgres_url, open_store, store_location
from antiphon.http.client.request import HttpRequest, Timeouts, Transport
from antiphon.private_files import exposure
from antiphon.providers.engine.model_list import KeyVerdict, try_key
from antiphon.providers.keys.secret import Credential, is_reference, mask
from antiphon.providers.presets import normalize_base_url
from antiphon_gateway.cli.serve import add_config, configured_by
from antiphon_gateway.config.file import ConfigError
from antiphon_gateway.config.settings import Config, GatewaySettings, ProviderSettings
from antiphon_gateway.ledger.database import ledger_address, open_operator_database
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.share.state import open_shared_store

State: TypeAlias = Literal["ok", "warn", "fail"]

_COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
_EXTRAS = (
    ("tokens", "splintr-rs"),
    ("mcp", "mcp"),
    ("local", "xllamacpp"),
    ("otel", "opentelemetry-sdk"),
    ("redis", "redis"),
    ("zstd", "backports.zstd"),
    ("postgres", "psycopg"),
    ("aws", "botocore"),
    ("google", "google-auth"),
    ("azure", "msal"),
)
_TIMEOUTS = Timeouts(connect=5.0, read=5.0, total=8.0)
_SKEW_WARNS, _SKEW_FAILS = 30.0, 300.0
_SHORT_KEY = 20
_MOST_TRIALS = 16
"""Keys that are tried at the same time."""
_TRIAL_STATES: dict[KeyVerdict, State] = {
    "works": "ok",
    "no list": "ok",
    "unknown": "warn",
    "rejected": "fail",
    "unreachable": "fail",
}
_LEAST_STORE = (6, 2)
"""The first version in which a sorted set keeps the greater of two scores."""


class CheckResult(Struct, frozen=True):
    """One check and its result."""

    state: State
    what: str
    said: str


def configure(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--offline", action="store_true", help="skip network checks")
    parser.add_argument("--json", action="store_true", help="for scripts")


def run(arguments: argparse.Namespace) -> int:
    """Run the checks, print the findings, and return 1 if one failed."""
    found = list(run_checks(arguments.config, is_offline=arguments.offline))
    if arguments.json:
        write_json(found)
    else:
        write(
            joined(styled(f"{one.state:4}", _COLOURS[one.state]), f"  {one.what:12}  {runnable(one.said)}")
            for one in found
        )
    return int(any(one.state == "fail" for one in found))


def run_checks(path: Path | None, *, is_offline: bool) -> Iterator[CheckResult]:
    """All findings, in the order of the report."""
    yield from _programs()
    try:
        configured = configured_by(path, {})
    except ConfigError as refused:
        yield from (CheckResult("fail", "config", str(problem)) for problem in refused.problems)
        config = None
    else:
        config = configured.config
        yield CheckResult("ok", "config", configured.summary)
        yield from _keys(config)
    if config is not None and not is_offline:
        yield from asyncio.run(_ask_providers(config))
        if config.gateway.shared:
            yield asyncio.run(_shared(config.gateway))
    if config is not None:
        yield from _ports(config.gateway)
        if config.gateway.state:
            yield _writable("state", Path(config.gateway.state))
        yield _ledger(config, is_offline)
    yield _store(is_offline)
    yield from _exposed([] if config is None else _gateway_files(config))


def _programs() -> Iterator[CheckResult]:
    yield CheckResult("ok", "python", platform.python_version())
    yield CheckResult("ok", "antiphon", __version__)
    for package, least in needed_packages().items():
        installed = _version(package)
        if installed is None or _numbers(installed) < _numbers(least):
            detail = f"{installed or 'missing'}; install it with: pip install '{package}>={least}'"
            yield CheckResult("fail", package, detail)
        else:
            yield CheckResult("ok", package, installed)
    for extra, package in _EXTRAS:
        installed = _version(package)
        detail = f"{package} {installed}" if installed else f"not installed; if wanted: pip install 'antiphon[{extra}]'"
        yield CheckResult("ok", f"extra {extra}", detail)


def _keys(config: Config) -> Iterator[CheckResult]:
    for provider in config.providers:
        for key in provider.keys:
            # It was read when the configuration was; report it if the file is gone by now.
            try:
                detail = mask(Credential(secret=key).read())
            except AntiphonError as error:
                yield CheckResult("fail", "key", f"{provider.name}: {error}")
            else:
                yield CheckResult("ok", "key", f"{provider.name}: {key} holds {detail}")
        if not provider.keys and not provider.is_offline:
            yield CheckResult("ok", "key", f"{provider.name}: has none, and is asked without")
    written = [*config.gateway.client_keys, *(key.key for key in config.keys)]
    if not written:
        yield CheckResult("warn", "client keys", "none: only this machine is served; `antiphon key new` makes one")
        return
    read = [Credential(secret=one) for one in written if is_reference(one)]
    short = [one.display_name for one in read if len(one.read()) < _SHORT_KEY]
    for place in short:
        yield CheckResult(
            "warn", "client keys", f"the key in {place} is short enough to guess; `antiphon key new` makes one"
        )
    if not short:
        yield CheckResult("ok", "client keys", str(len(written)))


async def _ask_providers(config: Config) -> list[CheckResult]:
    """Whether the hosts of the providers answer, whether our clock agrees with theirs, and what they say to each of our keys."""
    from antiphon.http.client.client import HttpClient

    providers = [provider for provider in config.providers if not provider.is_offline]
    transport, limit = HttpClient(), asyncio.Semaphore(_MOST_TRIALS)
    try:
        answers = await asyncio.gather(*(_answer(provider, transport) for provider in providers))
        tried = (_try_key(config, each, key, transport, limit) for each in providers for key in each.keys)
        trials = await asyncio.gather(*tried)
    except AntiphonError as error:
        return [CheckResult("fail", "network", str(error))]
    finally:
        await transport.aclose()
    skews = [skew for _, skew in answers if skew is not None]
    return [*(checked for checked, _ in answers), *([_clock(median(skews))] if skews else []), *trials]


def _clock(skew: float) -> CheckResult:
    if abs(skew) < _SKEW_WARNS:
        return CheckResult("ok", "clock", "agrees with the providers'")
    detail = f"{abs(skew):.0f} s {'fast' if skew > 0 else 'slow'} compared with the providers'"
    state: State = "fail" if abs(skew) >= _SKEW_FAILS else "warn"
    return CheckResult(state, "clock", f"{detail}; set it, or start a time service")


async def _answer(provider: ProviderSettings, transport: Transport) -> tuple[CheckResult, float | None]:
    """Whether a host answers, and by how many seconds our clock is ahead of its."""
    url = normalize_base_url(provider.base_url or provider.effective_preset.base_url, provider.name)
    what = f"{provider.name}: {urlsplit(url).netloc}"
    try:
        response = await transport.send(HttpRequest(url=url, method="GET", timeouts=_TIMEOUTS))
    except AntiphonError as error:
        return CheckResult("fail", "reachable", f"{provider.name}: {error}"), None
    now = time.time()
    response.abort()
    if response.status >= 500:
        return CheckResult("warn", "reachable", f"{what} answers, but with {response.status}; try again later"), None
    return CheckResult("ok", "reachable", f"{what} answers"), _skew(response.headers.get("date", ""), now)


def _skew(date: str, now: float) -> float | None:
    try:
        return now - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


async def _try_key(
    config: Config, settings: ProviderSettings, key: str, transport: Transport, limit: asyncio.Semaphore
) -> CheckResult:
    source = Credential(secret=key).display_name
    only = structs.replace(config, providers=(structs.replace(settings, keys=(key,)),), models=(), keys=())
    only = structs.replace(only, gateway=structs.replace(config.gateway, client_keys=()))
    try:
        provider = LoadedConfig(only, transport).providers[settings.name]
        async with limit:
            trial = await try_key(provider, source)
    except AntiphonError as error:
        return CheckResult("fail", "key tried", f"{settings.name}: {source} {error}")
    state: State = "warn" if trial.status in (404, 405) else _TRIAL_STATES[trial.verdict]
    return CheckResult(state, "key tried", f"{settings.name}: {source} {trial.text}")


async def _shared(gateway: GatewaySettings) -> CheckResult:
    """Whether the store that gateways share answers in time and can be written."""
    store = open_shared_store(gateway)
    assert store is not None, "it is configured"
    try:
        await store.connect()
        began = time.perf_counter()
        [info] = await store.execute([("INFO", "server")])
        seconds = time.perf_counter() - began
    except AntiphonError as error:
        return CheckResult("fail", "shared", f"{error}; start it, or correct shared and shared_password")
    finally:
        await store.aclose()
    latency = f"{store.address} answers in {seconds * 1000:.1f} ms"
    version = str(info.get("redis_version", ""))
    if _numbers(version) < _LEAST_STORE:
        return CheckResult("fail", "shared", f"{latency}, but is version {version}; 6.2 or newer is needed")
    return CheckResult(
        "ok", "shared", f"{latency}: {info.get('server_name', 'redis')} {info.get('valkey_version', version)}"
    )


def _ports(gateway: GatewaySettings) -> Iterator[CheckResult]:
    for name, port in (("port", gateway.port), ("format port", gateway.format_port)):
        if port == 0:
            continue
        family = socket.AF_INET6 if ":" in gateway.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((gateway.host, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE and _is_healthy(gateway.host, port):
                    yield CheckResult("ok", name, f"{gateway.host}:{port} is served by a gateway already")
                    continue
                detail = f"{gateway.host}:{port} cannot be listened on: {error.strerror or error}"
                yield CheckResult("fail", name, f"{detail}; choose another port, or stop the process that uses it")
            else:
                yield CheckResult("ok", name, f"{gateway.host}:{port} is free")


def _is_healthy(host: str, port: int) -> bool:
    """Whether the process that listens there answers like a gateway."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = HTTPConnection(reached, port, timeout=2.0)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _writable(what: str, file: Path) -> CheckResult:
    """Whether a file can be written or created; nothing is created."""
    place = file.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if place == file.absolute():
        is_well = place.is_file() and os.access(place, os.R_OK | os.W_OK) and os.access(place.parent, os.W_OK)
    else:
        is_well = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    if is_well:
        return CheckResult("ok", what, f"{file} can be written")
    return CheckResult(
        "fail", what, f"{file} cannot be written, for {place}; change its owner or mode, or name another"
    )


def _store(is_offline: bool) -> CheckResult:
    """Whether the store can be used; for a server, whether it answers and accepts our credentials."""
    place = store_location(None)
    if not is_postgres_url(place):
        return _writable("store", Path(place))
    if is_offline:
        return CheckResult("ok", "store", "on a server; not asked")
    try:
        with open_store(place, read_only=True, create=False, timeout=_TIMEOUTS.connect) as store:
            return CheckResult("ok", "store", f"{store.path} answers")
    except StoreError as error:
        return CheckResult("fail", "store", str(error))


def _ledger(config: Config, is_offline: bool) -> CheckResult:
    """Whether the operator database can be used: usage, client keys and the audit log are in it."""
    try:
        address = ledger_address(config)
        is_server = is_postgres_url(address)
        if is_server and is_offline:
            return CheckResult("ok", "ledger", "on a server; not asked")
        if not is_server and not Path(address).exists():
            return _writable("ledger", Path(address))
        database = open_operator_database(address, create=False, read_only=True)
    except AntiphonError as error:
        if str(error).startswith("there is no store at"):
            return CheckResult("ok", "ledger", "the server answers; the tables are made at the first start")
        return CheckResult("fail", "ledger", f"{error}; correct [ledger] address")
    location = database.location
    database.close()
    return CheckResult("ok", "ledger", f"{location} answers") if is_server else _writable("ledger", Path(address))


def _gateway_files(config: Config) -> list[Path]:
    """The files of a gateway that only its own user should be able to read."""
    address = config.ledger.address
    ledger = "" if is_reference(address) or is_postgres_url(address) else ledger_address(config)
    return [Path(file) for file in (config.gateway.state, ledger) if file]


def _exposed(files: Sequence[Path]) -> Iterator[CheckResult]:
    """The files and folders with conversations, plans, responses and usage that other users of the machine can access."""
    place = store_location(None)
    folder = data_folder_for(place)
    ours = [] if is_postgres_url(place) else [Path(place)]
    ours += [*sorted(folder.glob("plans*.db")), folder / "documents.index.db", *files]
    ours = [file.with_name(file.name + end) for file in ours for end in ("", "-wal", "-shm")]
    for path in ([folder] if folder == data_folder() else []) + ours:
        if problem := exposure(path):
            yield CheckResult("warn", "privacy", problem)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def needed_packages() -> dict[str, str]:
    """The packages that the library always needs, with the oldest versions that will do; those of an extra have a condition."""
    try:
        written = [re.fullmatch(r"([\w.-]+)>=([\d.]+),[^;]*", line) for line in requires("antiphon") or ()]
    except PackageNotFoundError:
        return {}
    return {found[1]: found[2] for found in written if found}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
