"""Secrets: where a key is read from, how it is displayed, and how it is removed from text.

A secret is a literal, `env:NAME` or `file:PATH`. It leaves this package only in the header of a request. `command:…`, `aws:…`,
`google:…` and `entra:…` name where a token comes from that expires (`providers.cloud`): what is stored here is only that name.
Law L10: everything that shows a provider's text (an error, a log line, a report) passes it through `scrub` first, because some
providers repeat a rejected key in full.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping
from itertools import chain, count
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from antiphon.errors import CredentialError
from antiphon.providers.keys.command import parse_command
from antiphon.wire.output import ProviderError

HIDDEN = "…"
_MIN_MASKED_LENGTH = 12
"""Nothing of a shorter secret is shown: four characters would be too many."""
_MIN_SCRUBBED_LENGTH = 4
"""A shorter value would match ordinary text."""


TOKEN_SOURCES = ("command:", "aws:", "google:", "entra:")
"""How references to tokens begin."""


def is_token_source(secret: str) -> bool:
    """Whether it names where a token comes from; it is not a secret itself."""
    return secret.startswith(TOKEN_SOURCES)


def is_reference(secret: str) -> bool:
    """Whether it names a variable or a file, where the secret may change."""
    return secret.startswith(("env:", "file:"))


class Credential(Struct, frozen=True, kw_only=True):
    """A key: `name` is its name in reports, `weight` its share of the calls."""

    secret: str
    """The secret itself, or a reference: `env:NAME`, `file:PATH`, `command:…`, `aws:…`, `google:…`, `entra:…`."""
    name: str = ""
    weight: int = 1

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise CredentialError(f"weight of key {self.display_name} is {self.weight}; it must be at least 1")

    @property
    def is_reference(self) -> bool:
        """Whether the secret is read from a variable or file."""
        return is_reference(self.secret)

    @property
    def source_name(self) -> str:
        """The name, or where the secret is read from: `env:NAME`, or `file:` and the name of the file; empty for a literal."""
        if self.name or not (self.is_reference or is_token_source(self.secret)):
            return self.name
        kind, _, place = self.secret.partition(":")
        if kind == "command":  # its arguments may name what should stay private
            return parse_command(self.secret).display_name
        return f"file:{Path(place).name}" if kind == "file" else self.secret

    @property
    def display_name(self) -> str:
        """For display: the name, the reference, or the masked secret."""
        if is_token_source(self.secret):
            return self.source_name
        return self.name or (self.secret if self.is_reference else mask(self.secret))

    def read(self, environ: Mapping[str, str] | None = None) -> str:
        """The secret; of a token source, its name. Raises `CredentialError` if there is none."""
        if is_token_source(self.secret):
            return self.secret
        kind, _, place = self.secret.partition(":") if self.is_reference else ("", "", "")
        secret = self.secret
        if kind == "env":
            secret = (os.environ if environ is None else environ).get(place, "")
            if not secret.strip():
                raise CredentialError(f"environment variable {place} is not set; set it to the key")
        elif kind == "file":
            try:
                secret = Path(place).expanduser().read_text()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not text"
                raise CredentialError(f"cannot read the key file {place}: {reason}") from None
            except (ValueError, RuntimeError):  # a zero byte, a ~user that there is not
                raise CredentialError(f"cannot read the key file {place!a}: not a valid path") from None
        secret = secret.strip()
        if not secret:
            raise CredentialError(f"key {self.display_name} is empty")
        if not (secret.isascii() and secret.isprintable()):
            raise CredentialError(
                f"key {self.display_name} contains characters that an HTTP header cannot carry; copy it again"
            )
        return secret

    def __repr__(self) -> str:
        return f"Credential({self.display_name})"


_secret_word = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE).search


def looks_secret(name: str) -> bool:
    """Whether a header or query field of that name is likely to contain a secret."""
    return _secret_word(name) is not None


def read_headers(
    headers: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Headers with lower-case names and `env:` and `file:` values resolved, and the values that must not be shown.

    Secret are resolved values, whatever the header, and values of headers with a secret-looking name. Of a value with a scheme
    (`Bearer …`) the credential alone is secret too: that is what a provider repeats.
    """
    values: dict[str, str] = {}
    secrets: list[str] = []
    for header, literal in headers.items():
        credential = Credential(secret=literal)
        value = values[header.lower()] = credential.read(environ) if credential.is_reference else literal
        if credential.is_reference or looks_secret(header):
            scheme, space, rest = value.partition(" ")
            secrets += [value, rest.strip()] if space and scheme.isalpha() else [value]
    return values, tuple(secrets)


def mask(secret: str) -> str:
    """A secret for display: `sk-…wxyz`; nothing of a short one."""
    if len(secret) < _MIN_MASKED_LENGTH:
        return HIDDEN
    return f"{'sk-' if secret.startswith('sk-') else ''}{HIDDEN}{secret[-4:]}"


def unique_name(name: str, taken: Container[str]) -> str:
    """The name, or the first of `name #2`, `name #3` and so on that is not taken."""
    return next(one for one in chain([name], (f"{name} #{number}" for number in count(2))) if one not in taken)


def longest_first(secrets: Iterable[str]) -> list[str]:
    """The secrets in the order in which text is cleared of them: if one is a prefix of another, masking the short one first
    would leave the rest of the long one."""
    long = [one for one in secrets if len(one) >= _MIN_SCRUBBED_LENGTH and not one.startswith(TOKEN_SOURCES)]
    return sorted(long, key=len, reverse=True)


def scrub_text(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret masked."""
    for secret in longest_first(secrets):
        text = text.replace(secret, mask(secret))
    return text


def scrub(error: ProviderError, secrets: Iterable[str]) -> ProviderError:
    """The error with every secret masked; the same object if it contains none, and only Unicode."""
    try:
        text = msgspec.json.encode(error).decode()
    except UnicodeEncodeError:  # its message has a header of the provider
        error = structs.replace(error, message=error.message.encode(errors="replace").decode())
        text = msgspec.json.encode(error).decode()
    clean = text
    for secret in longest_first(secrets):
        # The secret may be escaped in JSON, so compare its escaped form without quotes.
        if (escaped := msgspec.json.encode(secret).decode()[1:-1]) in clean:
            clean = clean.replace(escaped, mask(secret))
    if clean == text:
        return error
    try:
        return msgspec.json.decode(clean, type=ProviderError)
    except msgspec.DecodeError:  # a secret that is also part of the JSON structure
        return structs.replace(error, message="the provider's message contained a secret and is not shown", native=None)
