"""What no type can say of a configuration: names that must be there, and be there once; addresses, secrets, routes.

`check_config` takes a configuration whose shape is right but for blanks (empty names and targets, which `config_shape` has told)
and gives everything that would keep it from being served as it was meant. Secrets are read, to see that they are there, and
forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import product
from urllib.parse import parse_qsl, urlsplit

from antiphon.errors import AntiphonError, InvalidModelName
from antiphon.gateway.access.client_keys import HASH_PREFIX, digest_of
from antiphon.gateway.cluster.redis_store import HOW_TO_INSTALL, NoAddress, address_of, is_installed
from antiphon.gateway.config.schema import Finding, meant
from antiphon.gateway.config.settings import OFFLINE, Config, GatewaySettings, Place, ProviderSettings
from antiphon.providers.credentials.secret import Credential, looks_secret
from antiphon.providers.model_name import check_model_name
from antiphon.providers.presets import PRESETS, Preset, normalize_base_url
from antiphon.wire.openai_chat.dialects import DIALECTS

_ELSEWHERE = 'put it into an environment variable and write "env:NAME", or into a file and write "file:PATH"'
_HASHED = f'write its hash, "{HASH_PREFIX}…" as `antiphon key new` prints it; or {_ELSEWHERE}'
_HERE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})

_is_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_is_provider_name = re.compile(r"[^/*?\[\]\s]+").fullmatch
_is_host = re.compile(r"[A-Za-z0-9_.:%-]+").fullmatch
_is_origin = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*").fullmatch
_is_header = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch


def check_config(config: Config, environ: Mapping[str, str]) -> list[Finding]:
    """Everything that is wrong with a configuration."""
    return [
        *_gateway(config.gateway),
        *_shared(config.gateway, environ),
        *_client_keys(config, environ),
        *_named_twice("providers", [provider.name for provider in config.providers]),
        *(
            finding
            for number, provider in enumerate(config.providers)
            for finding in _provider(provider, ("providers", number), config.gateway, environ)
        ),
        *_routes(config),
    ]


def _gateway(gateway: GatewaySettings) -> Iterator[Finding]:
    if not _is_host(gateway.host):
        yield Finding(("gateway", "host"), "is no address: write an IP address or a name, without scheme and port")
    for number, name in enumerate(gateway.allowed_hosts):
        if not _is_host(name):
            problem = "not a host name; write it without scheme, port and path"
            yield Finding(("gateway", "allowed_hosts", number), problem)
    for number, origin in enumerate(gateway.allowed_origins):
        if not _is_origin(origin):
            problem = 'not an origin; write scheme, host and port without a path, such as "http://localhost:3000"'
            yield Finding(("gateway", "allowed_origins", number), problem)
    if gateway.port == gateway.format_port != 0:
        yield Finding(("gateway", "format_port"), "is the same as port; the two services need a port each")


def _shared(gateway: GatewaySettings, environ: Mapping[str, str]) -> Iterator[Finding]:
    if gateway.shared:
        try:
            address_of(gateway.shared)
        except NoAddress as error:
            yield Finding(("gateway", "shared"), str(error))
        if not is_installed():
            yield Finding(("gateway", "shared"), f"needs what is not installed: {HOW_TO_INSTALL}")
    if gateway.shared_password:
        if not gateway.shared:
            yield Finding(("gateway", "shared_password"), "is of no use without shared, the address it is for")
        if reason := _secret(gateway.shared_password, environ):
            yield Finding(("gateway", "shared_password"), reason)


def _client_keys(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    given: list[tuple[Place, str]] = [
        *((("gateway", "client_keys", number), key) for number, key in enumerate(config.gateway.client_keys)),
        *((("keys", number, "key"), key.key) for number, key in enumerate(config.keys)),
    ]
    first: dict[bytes, Place] = {}
    for place, key in given:
        if not key and place[0] == "keys":
            continue  # the shape has told
        if reason := _secret(key, environ, takes_hash=True):
            yield Finding(place, reason)
            continue
        other = first.setdefault(digest_of(key, environ), place)
        if other != place:
            yield Finding(place, f"is the same key as {spelled(other)}; a key can be only one client's")
    yield from _named_twice("keys", [key.name for key in config.keys])


def _provider(
    provider: ProviderSettings, place: Place, gateway: GatewaySettings, environ: Mapping[str, str]
) -> Iterator[Finding]:
    if provider.name and not _is_provider_name(provider.name):
        yield Finding((*place, "name"), "must not hold a slash, a space or any of * ? [ ]: targets are `name/model`")
    if not provider.name:
        return
    preset = provider.preset_name
    if preset not in PRESETS and preset != OFFLINE:
        if provider.preset:
            yield Finding((*place, "preset"), f"is no provider we know{_one_of(preset, [*PRESETS, OFFLINE])}")
        else:
            near = meant(provider.name, PRESETS)
            yield Finding((*place, "format"), f"is missing: {provider.name!r} is no provider we know{near}")
        return
    for number, key in enumerate(provider.keys):
        if reason := _secret(key, environ):
            yield Finding((*place, "keys", number), reason)
    for header, value in provider.headers.items():
        if reason := _header(header, value, environ):
            yield Finding((*place, "headers", header), reason)
    if provider.is_offline:
        return
    row = PRESETS[preset]
    if provider.format and provider.format != row.format:
        yield Finding(
            (*place, "format"), f"is not what the preset {preset} speaks ({row.format}); leave one of them out"
        )
    if provider.dialect and provider.dialect not in DIALECTS:
        yield Finding((*place, "dialect"), f"is no dialect we know{_one_of(provider.dialect, DIALECTS)}")
    if reason := _address(provider, row, gateway):
        yield Finding((*place, "base_url"), reason)
    if _lacks_key(provider, row):
        variables = " or ".join((*row.key_variables, *row.bearer_variables)) or "NAME"
        example = f'keys = ["env:{row.key_variables[0] if row.key_variables else "NAME"}"]'
        yield Finding((*place, "keys"), f"are missing, and {variables} is not set; write {example} or set it")


def _address(provider: ProviderSettings, row: Preset, gateway: GatewaySettings) -> str:
    """What is wrong with its address; nothing if it can be used."""
    given = provider.base_url or row.base_url
    if not given:
        return f"is missing: {provider.preset_name} has no address of its own"
    try:
        parts = urlsplit(normalize_base_url(given, provider.name))
    except AntiphonError as error:
        return str(error).removeprefix(f"{provider.name}: the base URL ")
    if any(looks_secret(name) for name, _ in parse_qsl(parts.query)):
        return f"holds a key; take it out of the address and {_ELSEWHERE} in keys"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if port in (gateway.port, gateway.format_port) and parts.hostname in _HERE | {gateway.host}:
        return "is this gateway itself: requests would go in a circle; give the provider or the gateway another port"
    return ""


def _lacks_key(provider: ProviderSettings, row: Preset) -> bool:
    """Whether a key is wanted and none is given. A server of one's own may want none."""
    if provider.keys or not row.needs_key or any(map(looks_secret, provider.headers)):
        return False
    return not provider.base_url or urlsplit(provider.base_url).hostname == urlsplit(row.base_url).hostname


def _header(header: str, value: str, environ: Mapping[str, str]) -> str:
    if not _is_header(header):
        return "is no name a header can have"
    if value.startswith(("env:", "file:")):
        return _secret(value, environ)
    if looks_secret(header):
        return f"holds a key; {_ELSEWHERE}"
    return "" if value.isprintable() and value.isascii() else "holds what no header can carry"


def _secret(written: str, environ: Mapping[str, str], *, takes_hash: bool = False) -> str:
    """What is wrong with how a secret is given. Never holds what was written unless it says where to read."""
    kind, colon, rest = written.partition(":")
    if takes_hash and kind + colon == HASH_PREFIX:
        is_hash = re.fullmatch(r"[0-9a-fA-F]{64}", rest)
        return "" if is_hash else f"is no hash: {HASH_PREFIX} is followed by 64 hexadecimal digits"
    if kind not in ("env", "file") or not colon:
        return f"holds a key itself, and a key is never written into this file; {_HASHED if takes_hash else _ELSEWHERE}"
    if not rest:
        return f"does not say {'which variable' if kind == 'env' else 'which file'}"
    if kind == "env" and not _is_variable(rest):
        return "names no variable: env: is followed by a name of letters, digits and underscores"
    try:
        Credential(secret=written).read(environ)
    except AntiphonError as error:
        return f"cannot be used: {error}"
    return ""


def _routes(config: Config) -> Iterator[Finding]:
    names = [model.name for model in config.models]
    yield from _named_twice("models", names)
    known = [provider.name for provider in config.providers]
    for number, model in enumerate(config.models):
        place: Place = ("models", number)
        above = next(
            (name for name in names[:number] if name != model.name and name and covers(name, model.name)), None
        )
        if above is not None and model.name not in names[:number]:
            yield Finding((*place, "name"), f"is never reached: {above!r} stands above it and takes every such name")
        for index, target in enumerate(model.targets):
            if reason := _target(target, known):
                yield Finding((*place, "targets", index), reason)
            elif target in model.targets[:index]:
                yield Finding((*place, "targets", index), "stands there twice")


def _target(target: str, known: list[str]) -> str:
    provider, slash, model = target.partition("/")
    if not target or "" in known:
        return ""  # the shape has told, and one that has no name may be the one that is meant
    if not slash or not model:
        return "should be written as provider/model; provider/* keeps the name that was asked for"
    try:
        check_model_name(model)
    except InvalidModelName as error:
        return str(error)
    return "" if provider in known else f"names a provider that is not in [[providers]]{_one_of(provider, known)}"


def _named_twice(table: str, names: list[str]) -> Iterator[Finding]:
    for number, name in enumerate(names):
        if name and name in names[:number]:
            yield Finding((table, number, "name"), f"is taken: {spelled((table, names.index(name)))} has it already")


def _one_of(name: str, names: Iterable[str]) -> str:
    names = [one for one in names if one]
    return meant(name, names) or f"; there are {', '.join(names) or 'none'}"


def spelled(place: Place) -> str:
    """A place as a person writes it: `providers[0].keys[1]`."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if re.fullmatch(r"[A-Za-z0-9_-]+", step) else ascii(step))
    return text


_LETTER = "\ue000"
_MOST_STARS = 4
_wildcards = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]")


def covers(wide: str, narrow: str) -> bool:
    """Whether every name that `narrow` takes is taken by `wide`."""
    if wide == narrow or wide == "*":
        return True
    pieces = _wildcards.split(narrow)
    signs = _wildcards.findall(narrow)
    if "[" in wide and signs:
        return False
    stars = sum(sign.startswith("*") for sign in signs)
    if stars > _MOST_STARS:
        return False
    for lengths in product((0, 1, len(wide) + 1), repeat=stars):
        remaining = iter(lengths)
        filled = [_LETTER * (next(remaining) if sign.startswith("*") else 1) for sign in signs]
        name = "".join(piece + filling for piece, filling in zip(pieces, [*filled, ""], strict=True))
        if not fnmatchcase(name, wide):
            return False
    return True
