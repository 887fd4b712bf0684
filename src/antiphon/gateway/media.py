"""The documented import path of names in `antiphon.gateway.generate.media`."""

from antiphon.gateway.generate.media import MediaFetcher

__all__ = ["MediaFetcher"]
