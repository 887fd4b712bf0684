"""The documented path of `open_store`."""

from antiphon.history.location import open_store

__all__ = ["open_store"]
