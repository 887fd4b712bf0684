"""The documented import path of names in `antiphon.gateway.config.file`."""

from antiphon.gateway.config.file import load_config

__all__ = ["load_config"]
