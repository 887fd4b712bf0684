"""Settings of hosts in a cloud (region, project, resource, workspace): given, from variables, or from files of its SDK."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from antiphon.errors import ProviderSetupError
from antiphon.providers.cloud.tokens import AWS, GOOGLE, find_google_project, profile_region
from antiphon.providers.presets import Preset, PresetSetting, first_set_variable


def find_settings(
    preset: Preset, given: Mapping[str, str], keys: Iterable[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The value of each setting of the preset; empty where there is none. Files are read only for what is missing."""
    found = dict(given)
    for setting in preset.settings:
        if found.get(setting.name):
            continue
        variable = first_set_variable(setting.variables, environ)
        value = environ[variable].strip() if variable else ""
        found[setting.name] = value or _from_files(setting.name, keys, environ)
    return found


def fill_preset(preset: Preset, values: Mapping[str, str], *, name: str, has_base_url: bool) -> Preset:
    """The preset with its settings. Raises `ProviderSetupError` if one is missing or not valid."""
    if missing := preset.missing_settings(values, has_base_url=has_base_url):
        raise ProviderSetupError(f"{name} needs a {missing[0].name}: {describe_missing(preset, missing[0])}")
    return preset.with_settings(values)


def describe_missing(preset: Preset, setting: PresetSetting) -> str:
    """Where to put a missing setting."""
    places = [*setting.variables, f'{setting.name} = "{setting.example}"']
    if setting not in preset.missing_settings({}, has_base_url=True):
        places.append(f"base_url ({' or '.join(preset.base_url_variables)})")
    return f"set {', '.join(places[:-1])} or {places[-1]}"


def _from_files(setting: str, keys: Iterable[str], environ: Mapping[str, str]) -> str:
    for key in keys:
        if setting == "region" and key.startswith(AWS):
            return profile_region(environ, key.partition("profile=")[2].partition(",")[0])
        if setting == "project" and key.startswith(GOOGLE):
            return find_google_project(key.removeprefix(GOOGLE), environ)
    return ""
