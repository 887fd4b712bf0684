"""The built-in default: deterministic rules that need no key and no network. It is not a language model, and its first answer says so."""

from antiphon.chat.offline.model import OfflineModel

__all__ = ["OfflineModel"]
