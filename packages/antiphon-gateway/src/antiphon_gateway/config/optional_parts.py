"""What a configuration can turn on and may not be installed: the client of the shared store, and the cache doctor."""

from __future__ import annotations

from importlib.util import find_spec
from types import ModuleType

from antiphon.extensions import EXTENSIONS, load_part

HOW_TO_INSTALL_REDIS = "pip install 'antiphon[redis]'"


def has_redis() -> bool:
    """Whether the client library of the shared store is installed."""
    return find_spec("redis") is not None


def load_cache_watch() -> ModuleType:
    """The module with the cache doctor's `CacheWatch`. Raises `ExtraMissing` if it is not installed."""
    return load_part(EXTENSIONS, "cache_watch", "the cache doctor")
