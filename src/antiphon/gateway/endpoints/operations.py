"""Who may read `/status` and `/metrics`, and what `/readyz` answers.

With client keys in the configuration only a key with `admin = true` reads them. Without any, this machine does. `/readyz` answers
everybody, for load balancers have no key, but only whether any provider is usable; which ones is for the operator.
"""

from __future__ import annotations

from math import inf

from antiphon.gateway.access.client_keys import ClientKey, ClientKeys, is_loopback
from antiphon.gateway.config.loaded import Running
from antiphon.gateway.http.messages import Answer
from antiphon.providers.credentials.pool import CredentialPool
from antiphon.wire.output import ProviderError

NOT_ADMIN = ProviderError(
    "this key may not read this; use a key with admin = true", "permission", code="admin_required"
)


def is_operator(keys: ClientKeys, key: ClientKey | None, peer: str) -> bool:
    """Whether a client that presented `key` (None: none that is known) may see how the gateway is doing."""
    return is_loopback(peer) if keys.is_open else key is not None and key.admin


def readiness(running: Running, *, has_details: bool) -> Answer:
    """Ready while at least one provider is usable. The details name those that are, and why the others are not."""
    pools = {name: upstream.pool for name, upstream in running.upstreams.items()}
    usable = [name for name, pool in pools.items() if pool is None or _is_usable(pool)]
    body: dict[str, object] = {"status": "ok" if usable else "no usable provider"}
    if has_details:
        body["providers"] = usable
        body["unusable"] = {
            name: _reason(pool) for name, pool in pools.items() if pool is not None and name not in usable
        }
    return Answer.json(body, 200 if usable else 503)


def _is_usable(pool: CredentialPool) -> bool:
    return any(status.state in ("healthy", "half_open") for status in pool.status())


def _reason(pool: CredentialPool) -> str:
    states = ", ".join(f"{status.name} is {status.state}" for status in pool.status())
    wait = pool.retry_after()
    return f"no usable key: {states}" + (f"; retry in {wait:.0f} s" if wait < inf else "")
