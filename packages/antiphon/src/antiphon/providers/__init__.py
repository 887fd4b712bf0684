"""Model providers: clients, credentials and routing. Each name is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.providers.call import Attempt, CallReport, ModelCallFailed, ProviderCallOptions
    from antiphon.providers.client import ProviderClient
    from antiphon.providers.http_provider import HttpProviderClient, provider
    from antiphon.providers.keys.ring import KeyRing
    from antiphon.providers.router import ProviderRouter
    from antiphon.providers.scripted import FunctionModel, ScriptedModel

_HOMES = {
    "Attempt": "call",
    "CallReport": "call",
    "KeyRing": "keys.ring",
    "FunctionModel": "scripted",
    "HttpProviderClient": "http_provider",
    "ModelCallFailed": "call",
    "ProviderCallOptions": "call",
    "ProviderClient": "client",
    "ProviderRouter": "router",
    "ScriptedModel": "scripted",
    "provider": "http_provider",
}

__all__ = [
    "Attempt",
    "CallReport",
    "FunctionModel",
    "HttpProviderClient",
    "KeyRing",
    "ModelCallFailed",
    "ProviderCallOptions",
    "ProviderClient",
    "ProviderRouter",
    "ScriptedModel",
    "provider",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'antiphon.providers' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"antiphon.providers.{_HOMES[name]}"), name)
        return value
