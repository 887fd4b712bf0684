"""`Authentication`: the last step between a written request and its bytes, for providers whose keys are tokens or signatures.

A request is wrapped for its host, signed and sent. If the host rejects the token, or the time of the signature, it is signed and
sent once more; a second rejection is the answer. Retries and other keys are decided by the engine, and each attempt is signed
again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping

from antiphon.errors import TransportError
from antiphon.http.client.request import HttpRequest, HttpResponse, Transport
from antiphon.providers.cloud.hosts import unwrap_response, wrap_request
from antiphon.providers.cloud.signers import Signer, make_signer
from antiphon.providers.presets import Preset


class Authentication:
    """Sends the requests of one provider."""

    def __init__(self, preset: Preset, signers: Mapping[str, Signer], transport: Transport) -> None:
        self._preset = preset
        self._signers = signers
        self._transport = transport

    @classmethod
    def create(
        cls,
        preset: Preset,
        references: Iterable[str],
        transport: Transport,
        *,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Authentication:
        """The one for a provider and the token sources among its keys. Raises `CredentialError`."""
        environ = os.environ if environ is None else environ
        signers = {reference: make_signer(reference, preset, environ=environ, clock=clock) for reference in references}
        return cls(preset, signers, transport)

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
        signed = await self.sign(request, key)
        response = await self._transport.send(signed)
        if response.status >= 400 and request.stream is None and signer.learn_from_rejection(signed, response):
            await response.aclose()
            message = f"{request.host} refused the signature (status {response.status}); it was signed again"
            request.resends.append(TransportError(message, "signed_again"))
            response = await self._transport.send(await self.sign(request, key))
        return await unwrap_response(response)

    async def sign(self, request: HttpRequest, key: str | None) -> HttpRequest:
        """The request with what the key adds to it. Raises `CredentialError`."""
        signer = None if key is None else self._signers.get(key)
        return request if signer is None else await signer.sign(request)
