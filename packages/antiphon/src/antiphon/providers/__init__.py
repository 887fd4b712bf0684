"""Model providers: clients, credentials and routing. Each name is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what editors and type checkers see
    from antiphon.providers.call import Attempt as Attempt
    from antiphon.providers.call import CallReport as CallReport
    from antiphon.providers.call import ModelCallFailed as ModelCallFailed
    from antiphon.providers.call import ProviderCallOptions as ProviderCallOptions
    from antiphon.providers.call import ProviderClient as ProviderClient
    from antiphon.providers.http_provider import HttpProviderClient as HttpProviderClient
    from antiphon.providers.http_provider import provider as provider
    from antiphon.providers.keys.ring import KeyRing as KeyRing
    from antiphon.providers.router import ProviderRouter as ProviderRouter
    from antiphon.providers.scripted import FunctionModel as FunctionModel
    from antiphon.providers.scripted import ScriptedModel as ScriptedModel

_EXPORTS = {
    "call": "Attempt CallReport ModelCallFailed ProviderCallOptions ProviderClient",
    "http_provider": "HttpProviderClient provider",
    "keys.ring": "KeyRing",
    "router": "ProviderRouter",
    "scripted": "FunctionModel ScriptedModel",
}
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _EXPORTS.items() for name in names.split()}

__all__ = sorted(_HOME_OF)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'antiphon.providers' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value
