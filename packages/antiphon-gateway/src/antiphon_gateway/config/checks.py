"""Checks that types cannot express: unique names, references, URLs, secrets, routes and shadowed globs.

`check_config` takes a configuration that passed `schema` (placeholders excepted) and returns every problem that would keep it
from being served as intended. Secrets are read to see that they exist, and not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.util import find_spec
from itertools import product
from urllib.parse import parse_qsl, urlsplit

from antiphon.errors import AntiphonError, ConversationError, CredentialError, ExtraMissing, InvalidModelName
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
from antiphon_gateway.config.references import (
    HASH_PREFIX,
    InvalidStoreUrl,
    key_digest,
    load_cache_watch,
    parse_store_url,
)
from antiphon_gateway.config.schema import Problem, did_you_mean
from antiphon_gateway.config.settings import (
    OFFLINE,
    ChatPageSettings,
    Config,
    ConfigPath,
    GatewaySettings,
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


def check_config(config: Config, environ: Mapping[str, str]) -> list[Problem]:
    """Everything that is wrong with a configuration."""
    return [
        *_check_gateway(config.gateway),
        *_check_chat(config.chat),
        *_check_shared_store(config.gateway, environ),
        *_check_client_keys(config, environ),
        *_check_unique("providers", [provider.name for provider in config.providers]),
        *(
            problem
            for number, provider in enumerate(config.providers)
            for problem in _check_provider(provider, ("providers", number), config.gateway, environ)
        ),
        *_check_routes(config),
        *_check_capabilities(config),
        *_check_prices(config),
        *_check_ledger(config, environ),
        *_check_cache_doctor(config),
    ]


def _check_cache_doctor(config: Config) -> Iterator[Problem]:
    if config.cache_doctor.enabled:
        try:
            load_cache_watch()
        except ExtraMissing as error:
            yield Problem(("cache_doctor", "enabled"), str(error))


def _check_capabilities(config: Config) -> Iterator[Problem]:
    for number, override in enumerate(config.capabilities):
        if override.like and find_family(override.like) is None:
            known = [example for family in capability_data().families for example in family.examples]
            problem = f"unknown model{did_you_mean(override.like, known)}; `antiphon models` lists the known families"
            yield Problem(("capabilities", number, "like"), problem)
        elif not override.like and not override.facts:
            yield Problem(("capabilities", number), "states nothing; set `like` or a capability")


def _check_prices(config: Config) -> Iterator[Problem]:
    for number, override in enumerate(config.prices):
        if all(getattr(override, kind) is None for kind in KINDS):
            yield Problem(("prices", number), f"states no price; set {', '.join(KINDS[:-1])} or {KINDS[-1]}")


def _check_ledger(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    place, address = ("ledger", "address"), config.ledger.address
    if is_reference(address):
        if reason := _secret_problem(address, environ):
            yield Problem(place, reason)
    elif is_postgres_url(address):
        parts = urlsplit(address)
        if parts.password is not None or any("password" in name for name, _ in parse_qsl(parts.query)):
            yield Problem(place, f"contains a password; {_USE_REFERENCE} for the whole address")
    elif "://" in address:
        yield Problem(place, "not a known address; use the path of a file or postgresql://user@host/database")


def _check_chat(chat: ChatPageSettings) -> Iterator[Problem]:
    try:
        parse_setting(chat.embedded_calls)
    except ConversationError:
        yield Problem(("chat", "embedded_calls"), "expected off, on, auto or prompt, or by model: 'ollama/*=prompt'")


def _check_gateway(gateway: GatewaySettings) -> Iterator[Problem]:
    if not _is_host(gateway.host):
        yield Problem(("gateway", "host"), "not a host; use an IP address or a name without scheme and port")
    for number, name in enumerate(gateway.allowed_hosts):
        if not _is_host(name):
            problem = "not a host name; write it without scheme, port and path"
            yield Problem(("gateway", "allowed_hosts", number), problem)
    for number, origin in enumerate(gateway.allowed_origins):
        if not _is_origin(origin):
            problem = 'not an origin; write scheme, host and port without a path, such as "http://localhost:3000"'
            yield Problem(("gateway", "allowed_origins", number), problem)
    if bool(gateway.tls_cert) != bool(gateway.tls_key):
        missing, present = ("tls_key", "tls_cert") if gateway.tls_cert else ("tls_cert", "tls_key")
        yield Problem(("gateway", missing), f"required: {present} has no effect without it")
    elif gateway.tls_cert and (reason := check_certificate(gateway.tls_cert, gateway.tls_key)):
        yield Problem(("gateway", "tls_cert"), f"not usable: {reason}")
    if gateway.port == gateway.format_port != 0:
        yield Problem(("gateway", "format_port"), "same as port; the two services need different ports")


def _check_shared_store(gateway: GatewaySettings, environ: Mapping[str, str]) -> Iterator[Problem]:
    if gateway.shared:
        try:
            parse_store_url(gateway.shared)
        except InvalidStoreUrl as error:
            yield Problem(("gateway", "shared"), str(error))
        if find_spec("redis") is None:
            yield Problem(("gateway", "shared"), "requires the redis client; run pip install 'antiphon[redis]'")
    if gateway.shared_password:
        if not gateway.shared:
            yield Problem(("gateway", "shared_password"), "has no effect without gateway.shared")
        if reason := _secret_problem(gateway.shared_password, environ):
            yield Problem(("gateway", "shared_password"), reason)


def _check_client_keys(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    given: list[tuple[ConfigPath, str]] = [
        *((("gateway", "client_keys", number), key) for number, key in enumerate(config.gateway.client_keys)),
        *((("keys", number, "key"), key.key) for number, key in enumerate(config.keys)),
    ]
    first: dict[bytes, ConfigPath] = {}
    for place, key in given:
        if not key:
            continue  # `schema` has reported it
        if reason := _secret_problem(key, environ, takes_hash=True):
            yield Problem(place, reason)
            continue
        other = first.setdefault(key_digest(key, environ), place)
        if other != place:
            yield Problem(place, f"same key as {format_path(other)}; each client needs its own key")
    yield from _check_unique("keys", [key.name for key in config.keys])


def _check_provider(
    provider: ProviderSettings, place: ConfigPath, gateway: GatewaySettings, environ: Mapping[str, str]
) -> Iterator[Problem]:
    if provider.name and not _is_provider_name(provider.name):
        yield Problem((*place, "name"), "must not contain a slash, a space or any of * ? [ ]; targets are `name/model`")
    if not provider.name:
        return
    preset = provider.preset_name
    if preset not in PRESETS and preset != OFFLINE:
        if provider.preset:
            yield Problem((*place, "preset"), f"unknown preset{_suggest(preset, [*PRESETS, OFFLINE])}")
        else:
            near = did_you_mean(provider.name, PRESETS)
            yield Problem((*place, "format"), f"required: {provider.name!r} is not a known provider{near}")
        return
    for number, key in enumerate(provider.keys):
        reason = _token_problem(key, provider, environ) if is_token_source(key) else _secret_problem(key, environ)
        if reason:
            yield Problem((*place, "keys", number), reason)
    for header, value in provider.headers.items():
        if reason := _header_problem(header, value, environ):
            yield Problem((*place, "headers", header), reason)
    if provider.is_offline:
        return
    row = PRESETS[preset]
    yield from _check_host_settings(provider, row, place)
    if provider.embedded_calls and row.format == "openai-responses":
        problem = "not available with openai-responses, where the provider stores its answers; use openai-chat"
        yield Problem((*place, "embedded_calls"), problem)
    if provider.format and provider.format != row.format:
        yield Problem(
            (*place, "format"), f"conflicts with preset {preset}, which speaks {row.format}; remove one of them"
        )
    known = ANTHROPIC_DIALECTS if row.format == "anthropic" else DIALECTS
    if provider.dialect and provider.dialect not in known:
        yield Problem((*place, "dialect"), f"unknown dialect{_suggest(provider.dialect, known)}")
    if reason := _base_url_problem(provider, row, gateway):
        yield Problem((*place, "base_url"), reason)
    if _lacks_key(provider, row):
        variables = " or ".join(row.secret_variables) or "NAME"
        example = f'keys = ["env:{row.key_variables[0] if row.key_variables else "NAME"}"]'
        yield Problem((*place, "keys"), f"required: {variables} is not set; set it or add {example}")


def _check_host_settings(provider: ProviderSettings, row: Preset, place: ConfigPath) -> Iterator[Problem]:
    known = [setting.name for setting in row.settings]
    for name, value in provider.host_settings.items():
        if name not in known:
            yield Problem((*place, name), f"has no effect with preset {row.name}; remove it")
            continue
        try:
            row.with_settings({name: value})
        except AntiphonError:
            yield Problem((*place, name), "not valid; use letters, digits, - . _ and :")
    for setting in row.missing_settings(provider.host_settings, has_base_url=bool(provider.base_url)):
        yield Problem((*place, setting.name), f"required: {row.describe_missing(setting)}")


def _token_problem(reference: str, provider: ProviderSettings, environ: Mapping[str, str]) -> str:
    """What is wrong with the reference to a token. No token is fetched and no command is run."""
    row = PRESETS.get(provider.preset_name)
    try:
        if row is not None:
            check_reference(reference, row, environ)
    except CredentialError as error:
        return f"not usable: {error}"
    return ""


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
    try:
        Credential(secret=written).read(environ)
    except AntiphonError as error:
        return f"not usable: {error}"
    return ""


def _check_routes(config: Config) -> Iterator[Problem]:
    names = [model.name for model in config.models]
    yield from _check_unique("models", names)
    known = [provider.name for provider in config.providers]
    for number, model in enumerate(config.models):
        place: ConfigPath = ("models", number)
        above = next(
            (name for name in names[:number] if name != model.name and name and glob_covers(name, model.name)), None
        )
        if above is not None and model.name not in names[:number]:
            yield Problem((*place, "name"), f"unreachable: {above!r} above it matches every such name")
        for index, target in enumerate(model.targets):
            if reason := _target_problem(target, known):
                yield Problem((*place, "targets", index), reason)
            elif target in model.targets[:index]:
                yield Problem((*place, "targets", index), "duplicate")
        if model.weights and model.order != "weighted":
            yield Problem((*place, "weights"), f'has no effect with order = "{model.order}"; set order = "weighted"')
        elif model.weights and len(model.weights) != len(model.targets):
            reason = f"has {len(model.weights)} numbers for {len(model.targets)} targets; give each target a weight"
            yield Problem((*place, "weights"), reason)
        elif model.weights and not any(model.weights):
            yield Problem((*place, "weights"), "are all 0; give at least one target a weight")


def _target_problem(target: str, known: list[str]) -> str:
    provider, model = ModelName.parse(target)
    if not target or "" in known:
        return ""  # `schema` has reported it, and a provider without a name may be the one that is meant
    if not provider or not model:
        return "expected provider/model; provider/* keeps the requested name"
    try:
        check_model_name(model)
    except InvalidModelName as error:
        return str(error)
    return "" if provider in known else f"unknown provider; not listed in [[providers]]{_suggest(provider, known)}"


def _check_unique(table: str, names: list[str]) -> Iterator[Problem]:
    for number, name in enumerate(names):
        if name and name in names[:number]:
            yield Problem(
                (table, number, "name"), f"duplicate name, already used by {format_path((table, names.index(name)))}"
            )


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
