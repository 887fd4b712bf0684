"""The built-in default model: rules that need no key and no network. Its first answer states that it is not a language model."""

from antiphon.chat.offline.model import OfflineModel

__all__ = ["OfflineModel"]
