"""Hashes of client keys: how the configuration and the operator database write them, and the digest of a presented key."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from antiphon.providers.keys.secret import Credential

HASH_PREFIX = "sha256:"


def key_digest(reference: str, environ: Mapping[str, str] | None = None) -> bytes:
    """The digest of a key in the configuration, which gives its hash or where to read it."""
    if reference.startswith(HASH_PREFIX):
        return bytes.fromhex(reference.removeprefix(HASH_PREFIX))
    return digest_of(Credential(secret=reference).read(environ))


def digest_of(key: str) -> bytes:
    """The digest of a key as a client presents it."""
    # The raw bytes of the header are hashed, even if they are not valid text.
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
