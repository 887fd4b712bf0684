"""Reading `antiphon.toml`: from bytes to a `Config`, or to everything that is wrong with the file, each with its line.

In order: the bytes are there and are text; the text is TOML; the tables have the shape of a `Config`; what the environment
completes is completed; and what it says can be served. What is no TOML can be looked at no further; whatever is, is looked at to
the end, so that one reading tells all. Paths in the file are meant from the folder it is in.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from antiphon.gateway.config.checks import check_config, spelled
from antiphon.gateway.config.schema import Finding, shaped
from antiphon.gateway.config.settings import (
    NO_OVERRIDES,
    OFFLINE,
    ClientKeySettings,
    Config,
    ConfigProblem,
    ConfigRefused,
    GatewaySettings,
    ModelSettings,
    Place,
    ProviderSettings,
)
from antiphon.gateway.config.toml_lines import places_of
from antiphon.providers.default_model import MODEL_VARIABLE, default_model
from antiphon.providers.presets import PRESETS, Preset, first_set_variable

_LONGEST = 8 * 1024 * 1024
_POSITION = re.compile(r"\s*\(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


class ReadConfig(Struct, frozen=True, kw_only=True):
    """What was read: a configuration, or the problems that keep it from being one. `secret_files` are read along with it."""

    config: Config | None = None
    problems: tuple[ConfigProblem, ...] = ()
    secret_files: tuple[Path, ...] = ()


def load_config(
    path: Path | str, environ: Mapping[str, str] | None = None, *, overrides: Mapping[str, Any] = NO_OVERRIDES
) -> Config:
    """The configuration in a file. Raises `ConfigRefused` with everything that is wrong with it.

    `overrides` take the place of what the file says in `[gateway]`.
    """
    read = read_config(path, environ, overrides=overrides)
    if read.config is None:
        raise ConfigRefused(read.problems)
    return read.config


def read_config(
    path: Path | str, environ: Mapping[str, str] | None = None, *, overrides: Mapping[str, Any] = NO_OVERRIDES
) -> ReadConfig:
    """The same without raising, with the files that secrets are read from."""
    path = Path(path)
    file = str(path)
    try:
        text = _text_of(path)
        tables = tomllib.loads(text)
        lines = places_of(text)
    except _Unreadable as trouble:
        return ReadConfig(problems=(ConfigProblem(file=file, line=trouble.line, reason=str(trouble)),))
    except tomllib.TOMLDecodeError as error:
        return ReadConfig(problems=(_syntax(error, file, text),))
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        reason = "is no configuration: a number is too long, or lists are nested too deeply"
        return ReadConfig(problems=(ConfigProblem(file=file, reason=reason),))
    environ = os.environ if environ is None else environ
    shape, findings = shaped(Config, tables)
    config = _placed(shape, path.absolute().parent)
    config = structs.replace(
        config,
        gateway=structs.replace(config.gateway, **overrides),
        providers=tuple(completed(provider, environ) for provider in config.providers),
    )
    findings += check_config(config, environ)
    problems = [_problem(finding, file, lines) for finding in dict.fromkeys(findings)]
    return ReadConfig(
        config=None if problems else config,
        problems=tuple(sorted(problems, key=lambda problem: problem.line)),
        secret_files=_secret_files(config),
    )


class _Unreadable(Exception):
    """The bytes could not be had, or are no text. `line` is where they stop being one."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


def _text_of(path: Path) -> str:
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise _Unreadable("is a folder; name the file in it")
        with open(path, "rb") as file:
            data = file.read(_LONGEST + 1)
    except FileNotFoundError:
        raise _Unreadable(
            "is not there; write one, or leave --config out to serve what the environment offers"
        ) from None
    except OSError as error:
        raise _Unreadable(f"cannot be read: {error.strerror or 'the system refuses it'}") from None
    except ValueError:  # a path with a zero byte in it
        raise _Unreadable("is no path") from None
    if len(data) > _LONGEST:
        raise _Unreadable(f"is larger than {_LONGEST:,} bytes, and no configuration is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _Unreadable("is not written in UTF-8; save it as UTF-8 text", line) from None


def _syntax(error: tomllib.TOMLDecodeError, file: str, text: str) -> ConfigProblem:
    message = str(error)
    found = _POSITION.search(message)
    said = message[: found.start()] if found else message
    if found and found["line"]:
        line, column = int(found["line"]), int(found["column"])
    else:
        line, column = text.rstrip().count("\n") + 1, 0
    return ConfigProblem(file=file, line=line, column=column, reason=f"is no TOML: {said[:1].lower()}{said[1:]}")


def _problem(finding: Finding, file: str, lines: Mapping[Place, int]) -> ConfigProblem:
    place = finding.place
    while place and place not in lines:  # what is missing is missed where it should have been
        place = place[:-1]
    line = lines.get(place, 0)
    return ConfigProblem(file=file, line=line, key=spelled(finding.place), reason=finding.reason)


def _placed(config: Config, folder: Path) -> Config:
    """The configuration with its paths in full."""
    gateway = config.gateway
    return structs.replace(
        config,
        gateway=structs.replace(
            gateway,
            client_keys=tuple(_full(key, folder) for key in gateway.client_keys),
            state=str(folder / Path(gateway.state).expanduser()) if gateway.state else "",
            shared_password=_full(gateway.shared_password, folder),
        ),
        providers=tuple(
            structs.replace(
                provider,
                keys=tuple(_full(key, folder) for key in provider.keys),
                headers={name: _full(value, folder) for name, value in provider.headers.items()},
            )
            for provider in config.providers
        ),
        keys=tuple(structs.replace(key, key=_full(key.key, folder)) for key in config.keys),
    )


def _full(written: str, folder: Path) -> str:
    kind, colon, place = written.partition(":")
    if kind != "file" or not place:
        return written
    try:
        return f"{kind}{colon}{folder / Path(place).expanduser()}"
    except RuntimeError:  # the home of nobody
        return written


def _secret_files(config: Config) -> tuple[Path, ...]:
    written = [
        *config.gateway.client_keys,
        config.gateway.shared_password,
        *(key.key for key in config.keys),
        *(key for provider in config.providers for key in (*provider.keys, *provider.headers.values())),
    ]
    return tuple(dict.fromkeys(Path(one.removeprefix("file:")) for one in written if one.startswith("file:")))


CLIENT_KEY_VARIABLE = "ANTIPHON_CLIENT_KEY"
ADMIN_KEY_VARIABLE = "ANTIPHON_ADMIN_KEY"


class Offer(Struct, frozen=True):
    """A configuration, and one line that says where it comes from."""

    config: Config
    told: str


def offered(environ: Mapping[str, str], *, overrides: Mapping[str, Any] = NO_OVERRIDES) -> Offer:
    """What can be served with the environment alone. Raises `ConfigRefused` where a variable holds what cannot be used."""
    providers = tuple(completed(ProviderSettings(name=name), environ) for name in _offering(environ))
    is_open = not environ.get(CLIENT_KEY_VARIABLE, "").strip()
    config = Config(
        gateway=GatewaySettings(
            **{
                "client_keys": () if is_open else (f"env:{CLIENT_KEY_VARIABLE}",),
                "serve_unlisted_models": True,  # nobody wrote a list: every model of these providers is meant
                **overrides,
            }
        ),
        providers=providers or (ProviderSettings(name=OFFLINE),),
        models=tuple(_routes(providers, environ)),
        keys=tuple(_admin_key(environ)),
    )
    if findings := check_config(config, environ):
        raise ConfigRefused(
            ConfigProblem(file="the environment", key=spelled(finding.place), reason=finding.reason)
            for finding in findings
        )
    if providers:
        told = f"no configuration file: serving {', '.join(one.name for one in providers)} with the environment's keys"
    else:
        told = f"no configuration file: serving {default_model({})}"
    return Offer(config, told)


def completed(provider: ProviderSettings, environ: Mapping[str, str]) -> ProviderSettings:
    """A provider that gives neither keys nor an address, with what the environment says of it; others as they are."""
    row = PRESETS.get(provider.preset_name)
    if row is None or provider.keys or provider.base_url:
        return provider
    key = first_set_variable(row.key_variables, environ)
    bearer = "" if key else first_set_variable(row.bearer_variables, environ)
    address = first_set_variable(row.base_url_variables, environ)
    version = first_set_variable(row.api_version_variables, environ)
    headers = {
        header: f"env:{variable}"
        for header, variable in row.header_variables
        if first_set_variable((variable,), environ)
    }
    return structs.replace(
        provider,
        keys=tuple(f"env:{variable}" for variable in (key, bearer) if variable),
        auth="bearer" if bearer and not provider.auth else provider.auth,
        base_url=environ[address] if address else "",
        api_version=provider.api_version or (environ[version] if version else ""),
        headers={**headers, **provider.headers},
    )


def _admin_key(environ: Mapping[str, str]) -> Iterator[ClientKeySettings]:
    if first_set_variable((ADMIN_KEY_VARIABLE,), environ):
        yield ClientKeySettings(name="admin", key=f"env:{ADMIN_KEY_VARIABLE}", admin=True)


def _offering(environ: Mapping[str, str]) -> Iterator[str]:
    for name, row in PRESETS.items():
        # A server of one's own is meant when its address is said; its default may be somebody else's, even ours.
        variables = (*row.key_variables, *row.bearer_variables) if row.needs_key else row.base_url_variables
        if first_set_variable(variables, environ) and (
            row.base_url or first_set_variable(row.base_url_variables, environ)
        ):
            yield name


def _routes(providers: tuple[ProviderSettings, ...], environ: Mapping[str, str]) -> Iterator[ModelSettings]:
    globs = [(glob, row.name) for row in map(_row, providers) for glob in row.models]
    for glob, name in sorted(globs, key=lambda one: not one[0].startswith("*")):  # gpt-5-codex: the end says more
        yield ModelSettings(name=glob, targets=(f"{name}/*",))
    rest = environ.get(MODEL_VARIABLE, "").strip() if providers else default_model({}).model
    if not providers or rest.partition("/")[0] in {provider.name for provider in providers}:
        yield ModelSettings(name="*", targets=(rest,))


def _row(provider: ProviderSettings) -> Preset:
    return PRESETS[provider.name]
