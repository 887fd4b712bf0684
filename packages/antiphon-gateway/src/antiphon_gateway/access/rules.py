"""`AccessRules`: what decides who may send a request, as a configuration in use has it."""

from __future__ import annotations

from typing import Protocol

from antiphon.http.origin import OriginRules
from antiphon_gateway.access.client_keys import ClientKeys
from antiphon_gateway.config.settings import Config


class AccessRules(Protocol):
    """The part of a configuration in use that access reads."""

    config: Config
    keys: ClientKeys
    origin_rules: OriginRules

    @property
    def signing_secrets(self) -> tuple[str, ...]:
        """The secrets that every process with this configuration has; tokens are signed with them."""
