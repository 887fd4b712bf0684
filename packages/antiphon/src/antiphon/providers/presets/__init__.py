"""Presets: what is known about the hosts of models, as data."""

from antiphon.providers.presets.known import PRESETS, add_preset, enabled_presets, get_preset, remove_preset
from antiphon.providers.presets.preset import AuthStyle, Preset, PresetSetting, first_set_variable, normalize_base_url

__all__ = [
    "PRESETS",
    "AuthStyle",
    "Preset",
    "PresetSetting",
    "add_preset",
    "enabled_presets",
    "first_set_variable",
    "get_preset",
    "normalize_base_url",
    "remove_preset",
]
