"""The documented import path of `OfflineModel`, which is in `antiphon.chat.offline` and loaded on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.chat.offline import OfflineModel

__all__ = ["OfflineModel"]


def __getattr__(name: str) -> Any:
    if name == "OfflineModel":
        from antiphon.chat.offline import OfflineModel

        return OfflineModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
