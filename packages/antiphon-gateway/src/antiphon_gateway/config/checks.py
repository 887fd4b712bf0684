"""Checks that types cannot express: unique names, references, URLs, secrets, routes and shadowed globs.

`check_config` takes a configuration that passed `schema` (placeholders excepted) and returns every problem that would keep it
from being served as intended. Secrets are read to see that they exist, and not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from itertools import chain, product
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

from antiphon.errors import AntiphonError
from antiphon.history.location import is_postgres_url
from antiphon.http.server.listener import check_certificate
from antiphon.model_name import ModelName
from antiphon.prices.rate_card import KINDS
from antiphon.providers.cloud.signers import check_reference
from antiphon.providers.keys.secret import Credential, is_reference, is_token_source, looks_secret
from antiphon.providers.presets import PRESETS, Preset, normalize_base_url
from antiphon.providers.routes import check_model_name
from antiphon.tools.embedded import parse_setting
from antiphon.wire.anthropic.dialects import DIALECTS as ANTHROPIC_DIALECTS
from antiphon.wire.capabilities import capability_data, find_family
from antiphon.wire.openai_chat.dialects import DIALECTS
from antiphon_gateway.config.references import HASH_PREFIX, key_digest, load_cache_watch, parse_store_url
from antiphon_gateway.config.schema import Problem, did_you_mean
from antiphon_gateway.config.settings import (
    OFFLINE,
    ClientKeySettings,
    Config,
    ConfigPath,
    GatewaySettings,
    ModelSettings,
    ProviderSettings,
)

_USE_REFERENCE = 'use "env:NAME" or "file:PATH"'
_USE_HASH = f'use its hash ("{HASH_PREFIX}…", printed by `antiphon key new`), "env:NAME" or "file:PATH"'
_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})

_is_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_is_provider_name = re.compile(r"[^/*?\[\]\s]+").fullmatch
_is_host = re.compile(r"[A-Za-z0-9_.:%-]+").fullmatch
_is_origin = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*").fullmatch
_is_header = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch


Rows: TypeAlias = Iterator[tuple[ConfigPath, str]]
"""What was checked, each with what is wrong with it; empty if nothing is."""


def check_config(config: Config, environ: Mapping[str, str]) -> list[Problem]:
    """Everything that is wrong with a configuration."""
    known = {provider.name: None for provider in config.providers}
    rows = chain(
        _check_gateway(config.gateway, environ),
        _check_names(config),
        _check_client_keys(config, environ),
        *(_check_provider(number, each, config.gateway, environ) for number, each in enumerate(config.providers)),
        _check_unreachable([model.name for model in config.models]),
        *(_check_route(("models", number), each, known) for number, each in enumerate(config.models)),
        _check_overrides(config),
        _check_services(config, environ),
    )
    return [Problem(path, reason) for path, reason in rows if reason]


def _check_gateway(gateway: GatewaySettings, environ: Mapping[str, str]) -> Rows:
    if not _is_host(gateway.host):
        yield ("gateway", "host"), "not a host; use an IP address or a name without scheme and port"
    for number, name in enumerate(gateway.allowed_hosts):
        if not _is_host(name):
            yield ("gateway", "allowed_hosts", number), "not a host name; write it without scheme, port and path"
    for number, origin in enumerate(gateway.allowed_origins):
        if not _is_origin(origin):
            problem = 'not an origin; write scheme, host and port without a path, such as "http://localhost:3000"'
            yield ("gateway", "allowed_origins", number), problem
    if bool(gateway.tls_cert) != bool(gateway.tls_key):
        missing, present = ("tls_key", "tls_cert") if gateway.tls_cert else ("tls_cert", "tls_key")
        yield ("gateway", missing), f"required: {present} has no effect without it"
    elif gateway.tls_cert and (reason := check_certificate(gateway.tls_cert, gateway.tls_key)):
        yield ("gateway", "tls_cert"), f"not usable: {reason}"
    if gateway.port == gateway.format_port != 0:
        yield ("gateway", "format_port"), "same as port; the two services need different ports"
    if gateway.shared:
        yield ("gateway", "shared"), _refusal(parse_store_url, gateway.shared)
        if find_spec("redis") is None:
            yield ("gateway", "shared"), "requires the redis client; run pip install 'antiphon[redis]'"
    elif gateway.shared_password:
        yield ("gateway", "shared_password"), "has no effect without gateway.shared"
    yield ("gateway", "shared_password"), _secret_problem(gateway.shared_password, environ)


def _check_names(config: Config) -> Rows:
    named: tuple[tuple[str, Sequence[ProviderSettings | ModelSettings | ClientKeySettings]], ...] = (
        ("providers", config.providers),
        ("models", config.models),
        ("keys", config.keys),
    )
    for table, rows in named:
        first: dict[str, int] = {}
        for number, row in enumerate(rows):
            if row.name and first.setdefault(row.name, number) != number:
                place = format_path((table, first[row.name]))
                yield (table, number, "name"), f"duplicate name, already used by {place}"


def _check_client_keys(config: Config, environ: Mapping[str, str]) -> Rows:
    given: list[tuple[ConfigPath, str]] = [
        *((("gateway", "client_keys", number), key) for number, key in enumerate(config.gateway.client_keys)),
        *((("keys", number, "key"), key.key) for number, key in enumerate(config.keys)),
    ]
    first: dict[bytes, ConfigPath] = {}
    for place, key in given:
        if reason := _secret_problem(key, environ, takes_hash=True):
            yield place, reason
        elif key:
            other = first.setdefault(key_digest(key, environ), place)
            if other != place:
                yield place, f"same key as {format_path(other)}; each client needs its own key"


def _check_overrides(config: Config) -> Rows:
    for number, override in enumerate(config.capabilities):
        if override.like and find_family(override.like) is None:
            known = [example for family in capability_data().families for example in family.examples]
            problem = f"unknown model{did_you_mean(override.like, known)}; `antiphon models` lists the known families"
            yield ("capabilities", number, "like"), problem
        elif not override.like and not override.facts:
            yield ("capabilities", number), "states nothing; set `like` or a capability"
    for number, price in enumerate(config.prices):
        if all(getattr(price, kind) is None for kind in KINDS):
            yield ("prices", number), f"states no price; set {', '.join(KINDS[:-1])} or {KINDS[-1]}"


def _check_services(config: Config, environ: Mapping[str, str]) -> Rows:
    """The chat page, the cache doctor and the ledger."""
    if _refusal(parse_setting, config.chat.embedded_calls):
        yield ("chat", "embedded_calls"), "expected off, on, auto or prompt, or by model: 'ollama/*=prompt'"
    if config.cache_doctor.enabled:
        yield ("cache_doctor", "enabled"), _refusal(load_cache_watch)
    place, address = ("ledger", "address"), config.ledger.address
    if is_reference(address):
        yield place, _secret_problem(address, environ)
    elif is_postgres_url(address):
        parts = urlsplit(address)
        if parts.password is not None or any("password" in name for name, _ in parse_qsl(parts.query)):
            yield place, f"contains a password; {_USE_REFERENCE} for the whole address"
    elif "://" in address:
        yield place, "not a known address; use the path of a file or postgresql://user@host/database"


def _check_provider(
    number: int, provider: ProviderSettings, gateway: GatewaySettings, environ: Mapping[str, str]
) -> Rows:
    place = ("providers", number)
    if not provider.name:
        return  # `schema` has reported it
    if not _is_provider_name(provider.name):
        yield (*place, "name"), "must not contain a slash, a space or any of * ? [ ]; targets are `name/model`"
    preset = provider.preset_name
    if preset not in PRESETS and preset != OFFLINE:
        if provider.preset:
            yield (*place, "preset"), f"unknown preset{_suggest(preset, [*PRESETS, OFFLINE])}"
        else:
            near = did_you_mean(provider.name, PRESETS)
            yield (*place, "format"), f"required: {provider.name!r} is not a known provider{near}"
        return
    row = PRESETS.get(preset)
    for index, key in enumerate(provider.keys):
        if is_token_source(key):  # no token is fetched and no command is run
            reason = _refusal(check_reference, key, row, environ) if row is not None else ""
            yield (*place, "keys", index), f"not usable: {reason}" if reason else ""
        else:
            yield (*place, "keys", index), _secret_problem(key, environ)
    for header, value in provider.headers.items():
        yield (*place, "headers", header), _header_problem(header, value, environ)
    if row is None:
        return
    yield from _check_host_settings(provider, row, place)
    if provider.embedded_calls and row.format == "openai-responses":
        problem = "not available with openai-responses, where the provider stores its answers; use openai-chat"
        yield (*place, "embedded_calls"), problem
    if provider.format and provider.format != row.format:
        yield (*place, "format"), f"conflicts with preset {preset}, which speaks {row.format}; remove one of them"
    known = ANTHROPIC_DIALECTS if row.format == "anthropic" else DIALECTS
    if provider.dialect and provider.dialect not in known:
        yield (*place, "dialect"), f"unknown dialect{_suggest(provider.dialect, known)}"
    yield (*place, "base_url"), _base_url_problem(provider, row, gateway)
    if _lacks_key(provider, row):
        variables = " or ".join(row.secret_variables) or "NAME"
        example = f'keys = ["env:{row.key_variables[0] if row.key_variables else "NAME"}"]'
        yield (*place, "keys"), f"required: {variables} is not set; set it or add {example}"


def _check_host_settings(provider: ProviderSettings, row: Preset, place: ConfigPath) -> Rows:
    known = [setting.name for setting in row.settings]
    for name, value in provider.host_settings.items():
        if name not in known:
            yield (*place, name), f"has no effect with preset {row.name}; remove it"
        elif _refusal(row.with_settings, {name: value}):
            yield (*place, name), "not valid; use letters, digits, - . _ and :"
    for setting in row.missing_settings(provider.host_settings, has_base_url=bool(provider.base_url)):
        yield (*place, setting.name), f"required: {row.describe_missing(setting)}"


def _base_url_problem(provider: ProviderSettings, row: Preset, gateway: GatewaySettings) -> str:
    """What is wrong with the provider's URL; empty if it can be used."""
    given = provider.base_url or row.base_url
    if not given and row.base_urls:
        return ""  # made of the settings
    if not given:
        return f"required: preset {provider.preset_name} has no default URL"
    try:
        parts = urlsplit(normalize_base_url(given, provider.name))
    except AntiphonError as error:
        return str(error).removeprefix(f"{provider.name}: the base URL ")
    if any(looks_secret(name) for name, _ in parse_qsl(parts.query)):
        return f"contains a key; remove it from the URL and {_USE_REFERENCE} in keys"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if port in (gateway.port, gateway.format_port) and parts.hostname in _LOCAL_HOSTS | {gateway.host}:
        return "points to this gateway; requests would loop; change one of the ports"
    return ""


def _lacks_key(provider: ProviderSettings, row: Preset) -> bool:
    """Whether a key is required and missing. Local servers may not need one."""
    if provider.keys or not row.needs_key or any(map(looks_secret, provider.headers)):
        return False
    return not provider.base_url or urlsplit(provider.base_url).hostname == urlsplit(row.base_url).hostname


def _header_problem(header: str, value: str, environ: Mapping[str, str]) -> str:
    if not _is_header(header):
        return "not a valid header name"
    if is_reference(value):
        return _secret_problem(value, environ)
    if looks_secret(header):
        return f"contains a literal key; {_USE_REFERENCE}"
    return "" if value.isprintable() and value.isascii() else "contains characters that are not allowed in a header"


def _secret_problem(written: str, environ: Mapping[str, str], *, takes_hash: bool = False) -> str:
    """What is wrong with the reference to a secret. It repeats the value only if that is a reference."""
    if not written:
        return ""  # `schema` has reported it
    kind, colon, rest = written.partition(":")
    if takes_hash and kind + colon == HASH_PREFIX:
        is_hash = re.fullmatch(r"[0-9a-fA-F]{64}", rest)
        return "" if is_hash else f"not a valid hash; expected {HASH_PREFIX} and 64 hexadecimal digits"
    if is_token_source(written):
        return 'names a token source, which only keys of providers may; use "env:NAME" or "file:PATH"'
    if kind not in ("env", "file") or not colon:
        return f"contains a literal key; {_USE_HASH if takes_hash else _USE_REFERENCE}"
    if not rest:
        return f"has no {'variable name' if kind == 'env' else 'file path'} after {kind}:"
    if kind == "env" and not _is_variable(rest):
        return "not a valid variable name; use letters, digits and underscores"
    reason = _refusal(Credential(secret=written).read, environ)
    return f"not usable: {reason}" if reason else ""


def _check_unreachable(names: Sequence[str]) -> Rows:
    """The names of models that a glob above them matches too."""
    globs: dict[tuple[str, str], dict[str, int]] = {}
    """By how they begin or else how they end, which is how everything that they match does, so that few are compared."""
    known: set[str] = set()
    for number, name in enumerate(names):
        pieces = _wildcards.split(name)
        head, tail = pieces[0][:_COMPARED_CHARS], pieces[-1][-_COMPARED_CHARS:]
        ends = [(head[: at + 1], "") for at in range(len(head))] + [("", tail[at:]) for at in range(len(tail) + 1)]
        near = (glob for end in ends for glob in globs.get(end, {}).items())
        above = min((place for glob, place in near if glob_covers(glob, name)), default=None)
        if above is not None and name not in known:
            yield ("models", number, "name"), f"unreachable: {names[above]!r} above it matches every such name"
        known.add(name)
        if len(pieces) > 1:
            globs.setdefault((head, "") if head else ("", tail), {}).setdefault(name, number)


def _check_route(place: ConfigPath, model: ModelSettings, known: Collection[str]) -> Rows:
    first: dict[str, int] = {}
    for index, target in enumerate(model.targets):
        repeated = "" if first.setdefault(target, index) == index else "duplicate"
        yield (*place, "targets", index), _target_problem(target, known) or repeated
    if model.weights and model.order != "weighted":
        yield (*place, "weights"), f'has no effect with order = "{model.order}"; set order = "weighted"'
    elif model.weights and len(model.weights) != len(model.targets):
        reason = f"has {len(model.weights)} numbers for {len(model.targets)} targets; give each target a weight"
        yield (*place, "weights"), reason
    elif model.weights and not any(model.weights):
        yield (*place, "weights"), "are all 0; give at least one target a weight"


def _target_problem(target: str, known: Collection[str]) -> str:
    provider, model = ModelName.parse(target)
    if not target or "" in known:
        return ""  # `schema` has reported it, and a provider without a name may be the one that is meant
    if not provider or not model:
        return "expected provider/model; provider/* keeps the requested name"
    if reason := _refusal(check_model_name, model):
        return reason
    return "" if provider in known else f"unknown provider; not listed in [[providers]]{_suggest(provider, known)}"


def _refusal(check: Callable[..., object], *arguments: object) -> str:
    """Why something cannot be used that raises an error where it cannot; empty if it can be."""
    try:
        check(*arguments)
    except AntiphonError as error:
        return str(error)
    return ""


def _suggest(name: str, names: Iterable[str]) -> str:
    names = [one for one in names if one]
    return did_you_mean(name, names) or f"; available: {', '.join(names) or 'none'}"


def format_path(place: ConfigPath) -> str:
    """A path in the form people write it: `providers[0].keys[1]`."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if re.fullmatch(r"[A-Za-z0-9_-]+", step) else ascii(step))
    return text


_PROBE_CHAR = "\ue000"
_MAX_STARS = 4
_COMPARED_CHARS = 50
_wildcards = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]")


def glob_covers(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every name that `narrow` matches."""
    if wide == narrow or wide == "*":
        return True
    pieces = _wildcards.split(narrow)
    signs = _wildcards.findall(narrow)
    if "[" in wide and signs:
        return False
    stars = sum(sign.startswith("*") for sign in signs)
    if stars > _MAX_STARS:
        return False
    for lengths in product((0, 1, len(wide) + 1), repeat=stars):
        remaining = iter(lengths)
        filled = [_PROBE_CHAR * (next(remaining) if sign.startswith("*") else 1) for sign in signs]
        name = "".join(piece + filling for piece, filling in zip(pieces, [*filled, ""], strict=True))
        if not fnmatchcase(name, wide):
            return False
    return True
