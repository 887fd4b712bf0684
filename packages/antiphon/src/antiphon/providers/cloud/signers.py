"""`Authentication`: the last step between a written request and its bytes, for providers whose keys are tokens or signatures.

A request is wrapped for its host, signed and sent. If the host rejects the token, or the time of the signature, it is signed and
sent once more; a second rejection is the answer. Retries and other keys are decided by the engine, and each attempt is signed
again. What a key adds is the work of its signer: a `HeaderSigner` adds headers with a token (`command:`, `entra:`, `google:`), a
`SignatureSigner` the signature of AWS (`aws:`). Nothing here blocks the event loop: files are read, commands run and tokens
fetched elsewhere, and not once per request.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import structs

from antiphon.errors import CredentialError, TransportError
from antiphon.http.client.connection import parse_url
from antiphon.http.client.request import HttpRequest, HttpResponse, Transport
from antiphon.providers.cloud.hosts import error_type, unwrap_response, wrap_request
from antiphon.providers.cloud.sigv4 import AwsKeys, sign
from antiphon.providers.cloud.token_cache import Fetched, TokenCache, TokenError
from antiphon.providers.cloud.tokens import (
    AWS,
    AWS_OPTIONS,
    ENTRA,
    ENTRA_OPTIONS,
    GOOGLE,
    AwsSource,
    EntraSource,
    GoogleSource,
    TokenSource,
)
from antiphon.providers.keys import command
from antiphon.providers.keys.command import Command, as_timestamp, find_program, parse_command, run_command, secret_in
from antiphon.providers.keys.secret import Credential
from antiphon.providers.presets import Preset

T = TypeVar("T")

_EXPIRED_KEYS = frozenset(
    {"ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidClientTokenId"}
)
"""Errors of AWS after which other keys may be accepted."""
_MIN_CLOCK_DIFFERENCE = 120.0
"""Seconds. AWS accepts signatures for five minutes."""


class Authentication:
    """Sends the requests of one provider. `references` are the token sources among its keys. Raises `CredentialError`."""

    def __init__(
        self,
        preset: Preset,
        references: Iterable[str],
        transport: Transport,
        *,
        environ: Mapping[str, str] | None,
        clock: Callable[[], float],
    ) -> None:
        self._preset = preset
        self._transport = transport
        known = os.environ if environ is None else environ
        self._signers = {each: make_signer(each, preset, environ=known, clock=clock) for each in references}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every token in use."""
        return tuple(secret for signer in self._signers.values() for secret in signer.secrets)

    async def send(self, request: HttpRequest, key: str | None) -> HttpResponse:
        """Send it with a key of the pool. Raises `TransportError`, and `CredentialError` if there is no token."""
        if self._preset.host and request.method == "POST" and request.stream is None:
            request = wrap_request(self._preset.host, request)
        signer = None if key is None else self._signers.get(key)
        if signer is None:
            return await unwrap_response(await self._transport.send(request))
        token = await signer.tokens.get()
        response = await self._transport.send(signer.sign(request, token))
        if response.status >= 400 and request.stream is None and signer.learn_from_rejection(token, response):
            response.abort()
            message = f"{request.host} refused the signature (status {response.status}); it was signed again"
            request.resends.append(TransportError(message, "signed_again"))
            response = await self._transport.send(signer.sign(request, await signer.tokens.get()))
        return await unwrap_response(response)

    async def check(self, key: str) -> None:
        """Raise `CredentialError` if the key names a token source that gives no token."""
        if signer := self._signers.get(key):
            await signer.tokens.get()


class Signer(ABC, Generic[T]):
    """Signs the requests of one key, with the `tokens` of a source. `name` is for the log."""

    def __init__(self, name: str, source: TokenSource[T], clock: Callable[[], float]) -> None:
        self.tokens: TokenCache[T] = TokenCache(name, source.fetch, clock=clock)

    @property
    @abstractmethod
    def secrets(self) -> tuple[str, ...]:
        """Every value that must not be shown, in use now or lately."""

    @abstractmethod
    def sign(self, request: HttpRequest, token: T) -> HttpRequest:
        """The request with what proves who sends it. Raises `TokenError` if it cannot be signed."""

    @abstractmethod
    def learn_from_rejection(self, token: T, response: HttpResponse) -> bool:
        """Whether the host rejected the token or the time of the signature, and another signature may be accepted."""


class HeaderSigner(Signer[Mapping[str, str]]):
    """Adds the headers that its source gets."""

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(value.rpartition(" ")[2] for headers in self.tokens.recent for value in headers.values())

    def sign(self, request: HttpRequest, token: Mapping[str, str]) -> HttpRequest:
        return structs.replace(request, headers={**request.headers, **token})

    def learn_from_rejection(self, token: Mapping[str, str], response: HttpResponse) -> bool:
        if response.status == 401:
            self.tokens.discard(token)
        return response.status == 401


class SignatureSigner(Signer[AwsKeys]):
    """Signs requests to a service of AWS."""

    def __init__(self, name: str, source: TokenSource[AwsKeys], preset: Preset, clock: Callable[[], float]) -> None:
        super().__init__(name, source, clock)
        self._preset = preset
        self._ahead = 0.0  # by how many seconds the clock of AWS is ahead of ours

    @property
    def secrets(self) -> tuple[str, ...]:
        values = (value for keys in self.tokens.recent for value in (keys.secret_key, keys.session_token))
        return tuple(filter(None, values))

    def sign(self, request: HttpRequest, token: AwsKeys) -> HttpRequest:
        if request.stream is not None:
            raise TokenError("aws: an upload cannot be signed while it arrives; use an API key for files and batches")
        origin, target = parse_url(request.url)
        headers = {name.lower(): value for name, value in request.headers.items()}
        added = sign(
            token,
            method=request.method,
            host=headers.get("host", origin.authority),
            target=target,
            headers=headers,
            body=request.body,
            region=self._preset.region,
            service=self._preset.service,
            timestamp=time.time() + self._ahead,
        )
        return structs.replace(request, headers={**request.headers, **added})

    def learn_from_rejection(self, token: AwsKeys, response: HttpResponse) -> bool:
        if response.status not in (400, 401, 403):
            return False
        if error_type(response.headers) in _EXPIRED_KEYS:
            self.tokens.discard(token)
            return True
        theirs, ours = as_timestamp(response.headers.get("date")), time.time()
        if theirs is None or abs(theirs - ours - self._ahead) <= _MIN_CLOCK_DIFFERENCE:
            return False
        self._ahead = theirs - ours
        return True


def make_signer(
    reference: str,
    preset: Preset,
    *,
    environ: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
) -> Signer[Any]:
    """The signer that a reference names. Raises `CredentialError` for one that cannot be used with the preset."""
    name = Credential(secret=reference).display_name
    if reference.startswith(command.PREFIX):
        return HeaderSigner(name, _CommandSource(parse_command(reference), preset, environ), clock)
    if reference.startswith(GOOGLE):
        return HeaderSigner(name, GoogleSource(reference.removeprefix(GOOGLE), environ=environ), clock)
    if reference.startswith(ENTRA):
        options = parse_options(reference, ENTRA, ENTRA_OPTIONS)
        return HeaderSigner(name, EntraSource(options, preset.token_scope, environ=environ), clock)
    if not preset.service:
        raise CredentialError(f"{name} signs requests to AWS, and preset {preset.name} is not one of its services")
    keys = AwsSource(parse_options(reference, AWS, AWS_OPTIONS), preset.region, environ=environ)
    return SignatureSigner(name, keys, preset, clock)


def check_reference(reference: str, preset: Preset, environ: Mapping[str, str]) -> None:
    """Raise `CredentialError` for a reference that cannot work. Nothing is fetched and no command is run."""
    make_signer(reference, preset, environ=environ)
    if reference.startswith(command.PREFIX):
        find_program(parse_command(reference), environ)


def parse_options(reference: str, prefix: str, known: Iterable[str]) -> dict[str, str]:
    """`a=1,b` as a dictionary; `process` takes the rest of the text. Raises `CredentialError`."""
    options: dict[str, str] = {}
    rest = reference.removeprefix(prefix).strip()
    while rest:
        if rest.startswith("process="):
            options["process"] = rest.removeprefix("process=")
            break
        part, _, rest = rest.partition(",")
        name, _, value = part.strip().partition("=")
        if name not in known or name in options:
            problem = "duplicate" if name in options else "unknown"
            raise CredentialError(f"{prefix} has the {problem} option {name!r}; known: {', '.join(known)}")
        options[name] = value.strip()
    return options


class _CommandSource(TokenSource[Mapping[str, str]]):
    """A command that prints a key."""

    def __init__(self, parsed: Command, preset: Preset, environ: Mapping[str, str]) -> None:
        self._command = parsed
        self._preset = preset
        self._environ = environ

    def read(self) -> Fetched[Mapping[str, str]]:
        """The key, as the header that carries it."""
        output = run_command(self._command, self._environ)
        headers = self._preset.credential_header(secret_in(self._command, output))
        return Fetched(headers, command.DEFAULT_TTL if output.lifetime is None else output.lifetime)
