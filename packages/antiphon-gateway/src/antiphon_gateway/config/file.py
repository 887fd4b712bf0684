"""Read `antiphon.toml`, or the environment, into a `Config`, or report everything that is wrong with it, with line numbers.

The steps: read the text, parse TOML, check types, fill in what the environment provides, check the rest. Invalid TOML stops the
reading; every later step runs to the end, so that one reading reports all problems (`ConfigError`). Paths are relative to the
file's folder.

Without a file every provider whose API key variable is set is served, else the offline one. A provider in a file without keys
and without a URL is filled in from the environment too. With a URL it is not: a key must not go to a host it was not meant for.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from antiphon.errors import AntiphonError
from antiphon.model_name import ModelName
from antiphon.providers.cloud.tokens import find_settings
from antiphon.providers.default_model import MODEL_VARIABLE, default_model
from antiphon.providers.keys.secret import is_token_source
from antiphon.providers.presets import PRESETS, Preset, enabled_presets, first_set_variable
from antiphon_gateway.config.checks import check_config, format_path
from antiphon_gateway.config.references import PathResolver
from antiphon_gateway.config.schema import Problem, check_types
from antiphon_gateway.config.settings import (
    NO_OVERRIDES,
    OFFLINE,
    ClientKeySettings,
    Config,
    ConfigPath,
    GatewaySettings,
    ModelSettings,
    ProviderSettings,
)
from antiphon_gateway.config.toml_lines import line_numbers


class ConfigProblem(Struct, frozen=True, kw_only=True):
    """One problem. `line` and `column` count from 1; 0 if there is no particular one."""

    file: str
    line: int = 0
    column: int = 0
    key: str = ""
    reason: str

    def __str__(self) -> str:
        where = ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])
        return f"{where}: {self.key}{' ' if self.key else ''}{self.reason}"


class ConfigError(AntiphonError):
    """A configuration that cannot be served, with all its problems."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = list(problems)
        count = len(self.problems)
        summary = f"{count} problems in the configuration" if count > 1 else "invalid configuration"
        super().__init__("\n  ".join([f"{summary}:", *map(str, self.problems)]))


CLIENT_KEY_VARIABLE = "ANTIPHON_CLIENT_KEY"
ADMIN_KEY_VARIABLE = "ANTIPHON_ADMIN_KEY"
_LONGEST = 8 * 1024 * 1024
_POSITION = re.compile(r"\s*\(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


class ConfigResult(Struct, frozen=True, kw_only=True):
    """The result of reading: a configuration, or the problems that prevent one. `secret_files` are the files it refers to."""

    config: Config | None = None
    problems: tuple[ConfigProblem, ...] = ()
    secret_files: tuple[Path, ...] = ()


def load_config(
    path: Path | str,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Mapping[str, Any] = NO_OVERRIDES,
    only: Collection[str] = (),
) -> Config:
    """The configuration in a file. Raises `ConfigError` with everything that is wrong with it.

    `overrides` replace values of the file's `[gateway]` table. `only`: the tables that are needed; what is wrong with the others,
    such as a missing secret, does not matter.
    """
    read = read_config(path, environ, overrides=overrides, only=only)
    if read.config is None:
        raise ConfigError(read.problems)
    return read.config


def read_config(
    path: Path | str,
    environ: Mapping[str, str] | None = None,
    *,
    overrides: Mapping[str, Any] = NO_OVERRIDES,
    only: Collection[str] = (),
) -> ConfigResult:
    """The same without raising, with the files that secrets are read from."""
    path = Path(path)
    file = str(path)
    try:
        text = _read_text(path)
        tables = tomllib.loads(text)
        lines = line_numbers(text)
    except ConfigError as unreadable:
        return ConfigResult(problems=tuple(unreadable.problems))
    except tomllib.TOMLDecodeError as error:
        return ConfigResult(problems=(_syntax_problem(error, file, text),))
    except (ValueError, RecursionError):  # numbers of thousands of digits, deeply nested lists
        reason = "invalid TOML: a number is too long or lists are nested too deeply"
        return ConfigResult(problems=(ConfigProblem(file=file, reason=reason),))
    environ = os.environ if environ is None else environ
    resolver = PathResolver(path.absolute().parent)
    config, problems = check_types(Config, tables, resolver)
    config = structs.replace(
        config,
        gateway=structs.replace(config.gateway, **overrides),
        providers=tuple(fill_from_environment(provider, environ) for provider in config.providers),
    )
    problems += check_config(config, environ)
    if only:
        problems = [problem for problem in problems if problem.path and problem.path[0] in only]
    located = [_locate(problem, file, lines) for problem in dict.fromkeys(problems)]
    return ConfigResult(
        config=None if located else config,
        problems=tuple(sorted(located, key=lambda problem: problem.line)),
        secret_files=tuple(resolver.secret_files),
    )


def _read_text(path: Path) -> str:
    """The text of the file. Raises `ConfigError`."""

    def unreadable(reason: str, line: int = 0) -> ConfigError:
        return ConfigError([ConfigProblem(file=str(path), line=line, reason=reason)])

    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise unreadable("is a folder; give the path of a file")
        with open(path, "rb") as file:
            data = file.read(_LONGEST + 1)
    except FileNotFoundError:
        raise unreadable("not found; create it, or omit --config to use API keys from the environment") from None
    except OSError as error:
        raise unreadable(f"not readable: {error.strerror or 'access failed'}") from None
    except ValueError:  # a path with a zero byte in it
        raise unreadable("not a valid path") from None
    if len(data) > _LONGEST:
        raise unreadable(f"larger than {_LONGEST:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise unreadable("not valid UTF-8; save it as UTF-8 text", line) from None


def _syntax_problem(error: tomllib.TOMLDecodeError, file: str, text: str) -> ConfigProblem:
    message = str(error)
    found = _POSITION.search(message)
    reason = message[: found.start()] if found else message
    if found and found["line"]:
        line, column = int(found["line"]), int(found["column"])
    else:
        line, column = text.rstrip().count("\n") + 1, 0
    return ConfigProblem(file=file, line=line, column=column, reason=f"invalid TOML: {reason[:1].lower()}{reason[1:]}")


def _locate(problem: Problem, file: str, lines: Mapping[ConfigPath, int]) -> ConfigProblem:
    path = problem.path
    while path and path not in lines:  # a missing key is reported at its table
        path = path[:-1]
    line = lines.get(path, 0)
    return ConfigProblem(file=file, line=line, key=format_path(problem.path), reason=problem.reason)


class Configured(Struct, frozen=True):
    """A configuration, one line about where it comes from, and its file (None: the environment)."""

    config: Config
    summary: str
    path: Path | None = None


def config_from_environment(environ: Mapping[str, str], *, overrides: Mapping[str, Any] = NO_OVERRIDES) -> Configured:
    """The configuration for the environment alone. Raises `ConfigError` where a variable has an invalid value."""
    enabled = (ProviderSettings(name=name) for name in enabled_presets(environ))
    providers = tuple(fill_from_environment(provider, environ) for provider in enabled)
    is_open = not environ.get(CLIENT_KEY_VARIABLE, "").strip()
    config = Config(
        gateway=GatewaySettings(
            **{
                "client_keys": () if is_open else (f"env:{CLIENT_KEY_VARIABLE}",),
                "serve_unlisted_models": True,  # no models are listed, so every model of these providers is served
                **overrides,
            }
        ),
        providers=providers or (ProviderSettings(name=OFFLINE),),
        models=tuple(_default_models(providers, environ)),
        keys=tuple(_admin_key(environ)),
    )
    if problems := check_config(config, environ):
        raise ConfigError(
            ConfigProblem(file="the environment", key=format_path(problem.path), reason=problem.reason)
            for problem in problems
        )
    if providers:
        summary = f"no configuration file; using {', '.join(one.name for one in providers)} with API keys from the environment"
    else:
        summary = f"no configuration file; using {default_model({})}"
    return Configured(config, summary)


def fill_from_environment(provider: ProviderSettings, environ: Mapping[str, str]) -> ProviderSettings:
    """A provider without keys and URL, completed from the environment; others unchanged."""
    row = PRESETS.get(provider.preset_name)
    if row is None:
        return provider
    found, has_host = row.read_variables(environ), bool(provider.keys or provider.base_url)
    if row.settings or row.token_source:
        keys = provider.keys or ((found.key,) if is_token_source(found.key) else ())
        settings = find_settings(row, provider.host_settings, keys, environ)
        provider = structs.replace(provider, keys=keys, base_url=provider.base_url or found.base_url, **settings)
    if has_host:
        return provider
    return structs.replace(
        provider,
        keys=(found.key,) if found.key else (),
        auth="bearer" if found.is_bearer and not provider.auth else provider.auth,
        base_url=found.base_url,
        api_version=provider.api_version or found.api_version,
        headers={**found.headers, **provider.headers},
    )


def _admin_key(environ: Mapping[str, str]) -> Iterator[ClientKeySettings]:
    if first_set_variable((ADMIN_KEY_VARIABLE,), environ):
        yield ClientKeySettings(name="admin", key=f"env:{ADMIN_KEY_VARIABLE}", admin=True)


def _default_models(providers: tuple[ProviderSettings, ...], environ: Mapping[str, str]) -> Iterator[ModelSettings]:
    globs = [(glob, row.name) for row in map(_preset, providers) for glob in row.models]
    for glob, name in sorted(
        globs, key=lambda one: not one[0].startswith("*")
    ):  # gpt-5-codex: the suffix is more specific
        yield ModelSettings(name=glob, targets=(f"{name}/*",))
    rest = environ.get(MODEL_VARIABLE, "").strip() if providers else default_model({}).model
    if not providers or (ModelName.parse(rest).provider or rest) in {provider.name for provider in providers}:
        yield ModelSettings(name="*", targets=(rest,))


def _preset(provider: ProviderSettings) -> Preset:
    return PRESETS[provider.name]
