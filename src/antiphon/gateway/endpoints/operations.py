"""`/readyz`, and who may use `/status`, `/metrics` and `/credentials`.

With client keys in the configuration only a key with `admin = true` may; without any, loopback clients. `/readyz` is open to
everyone, because load balancers have no key, but returns only whether any provider is usable; the details are for operators.
"""

from __future__ import annotations

from math import inf

from antiphon.gateway.access.client_keys import ClientKey, ClientKeys, is_loopback
from antiphon.gateway.config.loaded import LoadedConfig
from antiphon.gateway.http.messages import Response
from antiphon.providers.credentials.pool import CredentialPool
from antiphon.wire.output import ProviderError

NOT_ADMIN = ProviderError(
    "this key may not read this endpoint; use a key with admin = true", "permission", code="admin_required"
)


OPERATOR_ACTIONS = frozenset({"metrics", "status", "list_credentials", "switch_credential"})
"""What only operators may do."""


def is_operator(keys: ClientKeys, key: ClientKey | None, peer: str) -> bool:
    """Whether a client that presented `key` (None: no known key) may read the state of the gateway."""
    return is_loopback(peer) if keys.allows_anonymous else key is not None and key.admin


def readiness(loaded: LoadedConfig, *, has_details: bool) -> Response:
    """Ready while at least one provider is usable. The details list those that are, and why the others are not."""
    pools = {name: upstream.pool for name, upstream in loaded.providers.items()}
    usable = [name for name, pool in pools.items() if pool is None or has_usable_key(pool)]
    body: dict[str, object] = {"status": "ok" if usable else "no usable provider"}
    if has_details:
        body["providers"] = usable
        body["unusable"] = {
            name: _reason(pool) for name, pool in pools.items() if pool is not None and name not in usable
        }
    return Response.json(body, 200 if usable else 503)


def has_usable_key(pool: CredentialPool) -> bool:
    return any(status.state in ("healthy", "half_open") for status in pool.status())


def _reason(pool: CredentialPool) -> str:
    states = ", ".join(f"{status.name} is {status.state}" for status in pool.status())
    wait = pool.retry_after()
    return f"no usable key: {states}" + (f"; retry in {wait:.0f} s" if wait < inf else "")
