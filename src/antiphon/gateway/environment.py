"""The configuration that the environment offers when there is no file: every provider whose key is set, else the offline one.

The variables are those that the providers' own SDKs read (`providers.presets`). The same is done for a provider in a file that
gives neither keys nor an address (`completed`). Once it gives an address, nothing is taken from the environment: a key must not
go to a host that it was not meant for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from antiphon.gateway.config import (
    NO_OVERRIDES,
    OFFLINE,
    ClientKeySettings,
    Config,
    ConfigProblem,
    ConfigRefused,
    GatewaySettings,
    ModelSettings,
    ProviderSettings,
)
from antiphon.gateway.config_checks import check_config, spelled
from antiphon.providers.default_model import MODEL_VARIABLE, default_model
from antiphon.providers.presets import PRESETS, Preset, first_set

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
    key = first_set(row.key_variables, environ)
    bearer = "" if key else first_set(row.bearer_variables, environ)
    address = first_set(row.base_url_variables, environ)
    version = first_set(row.api_version_variables, environ)
    headers = {
        header: f"env:{variable}" for header, variable in row.header_variables if first_set((variable,), environ)
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
    if first_set((ADMIN_KEY_VARIABLE,), environ):
        yield ClientKeySettings(name="admin", key=f"env:{ADMIN_KEY_VARIABLE}", admin=True)


def _offering(environ: Mapping[str, str]) -> Iterator[str]:
    for name, row in PRESETS.items():
        # A server of one's own is meant when its address is said; its default may be somebody else's, even ours.
        variables = (*row.key_variables, *row.bearer_variables) if row.needs_key else row.base_url_variables
        if first_set(variables, environ) and (row.base_url or first_set(row.base_url_variables, environ)):
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
