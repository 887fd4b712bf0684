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
from antiphon.providers.presets import PRESETS, enabled_presets, first_set_variable
from antiphon_gateway.config.checks import check_config, format_path
from antiphon_gateway.config.references import PathResolver
from antiphon_gateway.config.schema import Problem, check_types
from antiphon_gateway.config.settings import NO_OVERRIDES, OFFLINE, Config, ConfigPath, ProviderSettings
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
    try:
        tables, lines = _read_tables(path)
    except ConfigError as unreadable:
        return ConfigResult(problems=tuple(unreadable.problems))
    environ, resolver = os.environ if environ is None else environ, PathResolver(path.absolute().parent)
    config, problems = _checked(tables, environ, overrides, resolver)
    if only:
        problems = [problem for problem in problems if problem.path and problem.path[0] in only]
    located = [_locate(problem, str(path), lines) for problem in problems]
    return ConfigResult(
        config=None if located else config,
        problems=tuple(sorted(located, key=lambda problem: problem.line)),
        secret_files=tuple(resolver.secret_files),
    )


def _checked(
    tables: dict[str, Any],
    environ: Mapping[str, str],
    overrides: Mapping[str, Any],
    resolver: PathResolver,
) -> tuple[Config, list[Problem]]:
    """The configuration in tables, with what the environment adds to it, and all its problems."""
    config, problems = check_types(Config, tables, resolver)
    config = structs.replace(
        config,
        gateway=structs.replace(config.gateway, **overrides),
        providers=tuple(fill_from_environment(provider, environ) for provider in config.providers),
    )
    return config, list(dict.fromkeys([*problems, *check_config(config, environ)]))


def _read_tables(path: Path) -> tuple[dict[str, Any], Mapping[ConfigPath, int]]:
    """The tables in a file, and the lines of their keys. Raises `ConfigError`."""

    def unreadable(reason: str, line: int = 0, column: int = 0) -> ConfigError:
        return ConfigError([ConfigProblem(file=str(path), line=line, column=column, reason=reason)])

    try:
        if path.is_dir():
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
        text = data.decode("utf-8-sig")
        return tomllib.loads(text), line_numbers(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise unreadable("not valid UTF-8; save it as UTF-8 text", line) from None
    except tomllib.TOMLDecodeError as error:
        reason, line, column = _syntax_problem(str(error))
        raise unreadable(f"invalid TOML: {reason}", line or text.rstrip().count("\n") + 1, column) from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, deeply nested lists
        raise unreadable("invalid TOML: a number is too long or lists are nested too deeply") from None


def _syntax_problem(message: str) -> tuple[str, int, int]:
    """What is wrong, and the line and column; 0 where that is the end of the text."""
    found = _POSITION.search(message)
    reason = message[: found.start()] if found else message
    line, column = (int(found["line"] or 0), int(found["column"] or 0)) if found else (0, 0)
    return reason[:1].lower() + reason[1:], line, column


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
    names = list(enabled_presets(environ))
    is_open = not environ.get(CLIENT_KEY_VARIABLE, "").strip()
    is_administered = first_set_variable((ADMIN_KEY_VARIABLE,), environ)
    tables: dict[str, Any] = {
        "gateway": {
            "client_keys": [] if is_open else [f"env:{CLIENT_KEY_VARIABLE}"],
            "serve_unlisted_models": True,  # no models are listed, so every model of these providers is served
        },
        "providers": [{"name": name} for name in names or [OFFLINE]],
        "models": [{"name": glob, "targets": [target]} for glob, target in _default_models(names, environ)],
        "keys": [{"name": "admin", "key": f"env:{ADMIN_KEY_VARIABLE}", "admin": True}] if is_administered else [],
    }
    config, problems = _checked(tables, environ, overrides, PathResolver(Path()))
    if problems:
        raise ConfigError(_locate(problem, "the environment", {}) for problem in problems)
    if names:
        summary = f"no configuration file; using {', '.join(names)} with API keys from the environment"
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


def _default_models(providers: list[str], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names that each provider answers, and everything else."""
    globs = [(glob, name) for name in providers for glob in PRESETS[name].models]
    for glob, name in sorted(globs, key=lambda one: not one[0].startswith("*")):
        yield glob, f"{name}/*"  # suffixes first: for gpt-5-codex that is more specific
    rest = environ.get(MODEL_VARIABLE, "").strip() if providers else default_model({}).model
    if not providers or (ModelName.parse(rest).provider or rest) in providers:
        yield "*", rest
