"""Secrets: where a credential's secret is read from, how it is shown, and how it is taken out of what is shown.

A secret is a literal, or a place it is read from: `env:NAME` or `file:PATH`. It leaves this package only in the header of a
request. Law L10: whoever shows something that a provider said (an error, a log line, a report) sends it through `scrubbed`
first, for some providers repeat a refused key in full.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from antiphon.errors import CredentialError
from antiphon.wire.output import ProviderError

HIDDEN = "…"
_LONG_ENOUGH = 12
"""A shorter secret is shown by nothing: four of its characters would be too many."""
_SHORTEST_SCRUBBED = 4
"""Anything shorter would be found in every word, and is no secret."""


class Credential(Struct, frozen=True, kw_only=True):
    """A key and how it is used: `name` is what reports call it, `weight` its share of the calls."""

    secret: str
    """The secret itself, or `env:NAME` or `file:PATH`."""
    name: str = ""
    weight: int = 1

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise CredentialError(f"the weight of {self.shown} is {self.weight}; it must be at least 1")

    @property
    def is_elsewhere(self) -> bool:
        """Whether the secret is read from somewhere, where it may change."""
        return self.secret.startswith(("env:", "file:"))

    @property
    def shown(self) -> str:
        """What may be shown of it: the name, the place, or the masked secret."""
        return self.name or (self.secret if self.is_elsewhere else masked(self.secret))

    def read(self, environ: Mapping[str, str] | None = None) -> str:
        """The secret. Raises `CredentialError` where there is none."""
        kind, _, place = self.secret.partition(":") if self.is_elsewhere else ("", "", "")
        secret = self.secret
        if kind == "env":
            secret = (os.environ if environ is None else environ).get(place, "")
            if not secret.strip():
                raise CredentialError(f"the environment variable {place} is not set; it should hold a key")
        elif kind == "file":
            try:
                secret = Path(place).expanduser().read_text()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is no text"
                raise CredentialError(f"the key in {place} cannot be read: {reason}") from None
        secret = secret.strip()
        if not secret:
            raise CredentialError(f"the key {self.shown} is empty")
        if not (secret.isascii() and secret.isprintable()):
            raise CredentialError(f"the key {self.shown} holds characters that no header can carry; copy it again")
        return secret

    def __repr__(self) -> str:
        return f"Credential({self.shown})"


_holds_secret = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE).search


def holds_secret(name: str) -> bool:
    """Whether what goes by that name (a header, a field of an address) is likely to be a secret."""
    return _holds_secret(name) is not None


def read_headers(
    headers: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Headers with lower-case names and their `env:` and `file:` values read, and the values that must never be shown.

    Secret is every value that is read from somewhere, whatever its header is called, and every one whose header sounds secret.
    Of a value with a scheme (`Bearer …`) the credential alone is secret too: that is what a provider repeats.
    """
    values: dict[str, str] = {}
    secrets: list[str] = []
    for header, written in headers.items():
        credential = Credential(secret=written)
        value = values[header.lower()] = credential.read(environ) if credential.is_elsewhere else written
        if credential.is_elsewhere or holds_secret(header):
            scheme, space, rest = value.partition(" ")
            secrets += [value, rest.strip()] if space and scheme.isalpha() else [value]
    return values, tuple(secrets)


def masked(secret: str) -> str:
    """A secret as it may be shown: `sk-…wxyz`, and nothing at all of a short one."""
    if len(secret) < _LONG_ENOUGH:
        return HIDDEN
    return f"{'sk-' if secret.startswith('sk-') else ''}{HIDDEN}{secret[-4:]}"


def scrubbed(error: ProviderError, secrets: Iterable[str]) -> ProviderError:
    """The error without the secrets; the same object where there are none in it."""
    # The longest first: where one secret begins another, masking the short one would leave the rest of the long one.
    found = sorted((secret for secret in secrets if len(secret) >= _SHORTEST_SCRUBBED), key=len, reverse=True)
    if not found:
        return error
    text = msgspec.json.encode(error).decode()
    clean = text
    for secret in found:
        # As JSON the secret may be escaped; without its quotes it is what stands inside the text.
        clean = clean.replace(msgspec.json.encode(secret).decode()[1:-1], masked(secret))
    if clean == text:
        return error
    try:
        return msgspec.json.decode(clean, type=ProviderError)
    except msgspec.DecodeError:  # a secret that was also a word of the structure
        return structs.replace(error, message="the provider's words held a secret, and are not shown", native=None)
