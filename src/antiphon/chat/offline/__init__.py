"""The embedded default: a deterministic model that needs no key and no network, and says that it is not a language model."""

from antiphon.chat.offline.model import OfflineModel

__all__ = ["OfflineModel"]
