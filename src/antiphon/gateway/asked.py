"""`Asked`: a request with everything that is needed to answer it."""

from __future__ import annotations

from msgspec import Struct

from antiphon.gateway.client_keys import ClientKey
from antiphon.gateway.door import Door
from antiphon.gateway.message import ClientRequest
from antiphon.gateway.running import Running
from antiphon.gateway.services import Services


class Asked(Struct, frozen=True):
    """What is asked for (`door`), by whom (`key`), and with what it is answered. `running` is kept to the end."""

    running: Running
    services: Services
    request: ClientRequest
    door: Door
    key: ClientKey
