"""The guided tour that answers without a key and without a network: `OfflineModel`, the provider `offline`."""

from antiphon_chat.offline.model import OfflineModel

__all__ = ["OfflineModel"]
