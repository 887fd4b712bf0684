"""`/healthz`: that the process answers; `/readyz`: whether any provider is usable.

Both are open to everyone, because load balancers have no key; the details are for operators.
"""

from __future__ import annotations

from math import inf

from antiphon import __version__
from antiphon.http.messages import Response
from antiphon.providers.keys.ring import KeyRing
from antiphon_gateway.access.client_keys import find_operator
from antiphon_gateway.runtime.metered import MeteredRequest


async def handle_health(_: MeteredRequest) -> Response:
    """The process answers."""
    return Response.json({"status": "ok", "version": __version__})


async def handle_ready(context: MeteredRequest) -> Response:
    """Ready while at least one provider is usable. The details list those that are, and why the others are not."""
    pools = {name: upstream.keys for name, upstream in context.loaded.providers.items()}
    usable = [name for name, pool in pools.items() if pool is None or has_usable_key(pool)]
    body: dict[str, object] = {"status": "ok" if usable else "no usable provider"}
    if find_operator(context.loaded, context.request) is not None:
        body["providers"] = usable
        body["unusable"] = {
            name: _reason(pool) for name, pool in pools.items() if pool is not None and name not in usable
        }
    return Response.json(body, 200 if usable else 503)


def has_usable_key(pool: KeyRing) -> bool:
    return any(status.state in ("healthy", "half_open") for status in pool.status())


def _reason(pool: KeyRing) -> str:
    states = ", ".join(f"{status.name} is {status.state}" for status in pool.status())
    wait = pool.retry_after()
    return f"no usable key: {states}" + (f"; retry in {wait:.0f} s" if wait < inf else "")
