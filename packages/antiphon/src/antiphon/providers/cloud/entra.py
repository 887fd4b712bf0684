"""`entra:`: tokens of Microsoft Entra ID for Azure: a client secret or certificate, a federated token (workload identity), a
managed identity.

`entra:` alone reads the variables of Azure's own SDKs: `AZURE_TENANT_ID`, `AZURE_CLIENT_ID` and `AZURE_CLIENT_SECRET`,
`AZURE_CLIENT_CERTIFICATE_PATH` or `AZURE_FEDERATED_TOKEN_FILE`; without them the managed identity of the machine. Several
identities in one gateway are written out: `entra:tenant=T,client=C,secret=env:NAME`, `…,certificate=PATH`, `…,token_file=PATH`,
`entra:managed` or `entra:managed,client=C`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from antiphon.errors import CredentialError
from antiphon.http.client.request import Transport
from antiphon.providers.cloud.client_certificate import ClientCertificate
from antiphon.providers.cloud.token_cache import Fetched, TokenError
from antiphon.providers.cloud.token_request import (
    METADATA_TIMEOUTS,
    access_token,
    read_token_file,
    refusal,
    request_token,
)
from antiphon.providers.credentials.command import as_timestamp
from antiphon.providers.credentials.secret import Credential

PREFIX = "entra:"
OPTIONS = ("tenant", "client", "secret", "certificate", "certificate_password", "token_file", "managed", "scope")
_AUTHORITY = "https://login.microsoftonline.com"
_METADATA = "http://169.254.169.254"
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_WHERE = (
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, AZURE_CLIENT_CERTIFICATE_PATH or "
    "AZURE_FEDERATED_TOKEN_FILE, "
    "or write entra:tenant=…,client=…,secret=env:NAME"
)


class EntraSource:
    """Fetches tokens for one scope, such as `https://cognitiveservices.azure.com/.default`."""

    def __init__(
        self, options: Mapping[str, str], scope: str, *, environ: Mapping[str, str], transport: Transport
    ) -> None:
        self._environ = environ
        self._transport = transport
        self._scope = options.get("scope") or scope
        self._client = options.get("client") or environ.get("AZURE_CLIENT_ID", "").strip()
        self._tenant = options.get("tenant") or environ.get("AZURE_TENANT_ID", "").strip()
        is_explicit = bool({"secret", "certificate", "token_file", "managed"} & options.keys())
        self._secret = options.get("secret", "")
        self._token_file = options.get("token_file", "")
        self._certificate = options.get("certificate", "")
        self._password = options.get("certificate_password", "")
        if not is_explicit and environ.get("AZURE_CLIENT_SECRET", "").strip():
            self._secret = "env:AZURE_CLIENT_SECRET"
        elif not is_explicit and environ.get("AZURE_CLIENT_CERTIFICATE_PATH", "").strip():
            self._certificate = environ["AZURE_CLIENT_CERTIFICATE_PATH"].strip()
            if environ.get("AZURE_CLIENT_CERTIFICATE_PASSWORD"):
                self._password = "env:AZURE_CLIENT_CERTIFICATE_PASSWORD"
        elif not is_explicit:
            self._token_file = environ.get("AZURE_FEDERATED_TOKEN_FILE", "").strip()
        self._is_managed = "managed" in options or not (self._secret or self._certificate or self._token_file)
        for option, secret in (("secret", self._secret), ("certificate_password", self._password)):
            if secret and not secret.startswith(("env:", "file:")):
                raise CredentialError(
                    f"entra: {option} contains a literal key; use {option}=env:NAME or {option}=file:PATH"
                )
        if not self._is_managed:
            for value, name, variable in (
                (self._tenant, "tenant", "AZURE_TENANT_ID"),
                (self._client, "client", "AZURE_CLIENT_ID"),
            ):
                if not value:
                    raise CredentialError(f"entra: the {name} is missing; set {variable}, or write entra:{name}=…")

    async def fetch(self) -> Fetched[Mapping[str, str]]:
        """A token, as the header that carries it. Raises `TokenError`."""
        token, lifetime = await (self._managed_identity() if self._is_managed else self._client_credentials())
        return Fetched({"authorization": f"Bearer {token}"}, lifetime)

    async def _client_credentials(self) -> tuple[str, float]:
        form = {"client_id": self._client, "scope": self._scope, "grant_type": "client_credentials"}
        authority = self._environ.get("AZURE_AUTHORITY_HOST", "").strip().rstrip("/") or _AUTHORITY
        authority = authority if "://" in authority else f"https://{authority}"
        url = f"{authority}/{quote(self._tenant, safe='')}/oauth2/v2.0/token"
        if self._secret:
            form["client_secret"] = await asyncio.to_thread(Credential(secret=self._secret).read, self._environ)
        else:
            assertion = await asyncio.to_thread(self._assertion, url)
            form |= {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
        answer = await request_token(self._transport, url, what="Entra ID", form=form)
        what = "certificate" if self._certificate else "secret"
        return access_token(answer, "Entra ID", f"check tenant, client and {what} of the app registration")

    def _assertion(self, url: str) -> str:
        """What proves who this is. Files are read each time: they are replaced while the gateway runs."""
        if not self._certificate:
            return _read_token(self._token_file)
        password = Credential(secret=self._password).read(self._environ) if self._password else ""
        return ClientCertificate(self._certificate, password).assertion(self._client, url, time.time())

    async def _managed_identity(self) -> tuple[str, float]:
        resource = self._scope.removesuffix("/.default")
        endpoint, header = self._environ.get("IDENTITY_ENDPOINT", ""), self._environ.get("IDENTITY_HEADER", "")
        if endpoint and header:  # App Service, Container Apps, Functions
            query, headers = {"api-version": "2019-08-01", "resource": resource}, {"x-identity-header": header}
        else:
            host = self._environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "").strip().rstrip("/") or _METADATA
            endpoint = f"{host}/metadata/identity/oauth2/token"
            query, headers = {"api-version": "2018-02-01", "resource": resource}, {"metadata": "true"}
        if self._client:
            query["client_id"] = self._client
        what = "the managed identity service"
        try:
            answer = await request_token(
                self._transport,
                f"{endpoint}?{urlencode(query)}",
                what=what,
                headers=headers,
                timeouts=METADATA_TIMEOUTS,
            )
        except TokenError as error:
            raise TokenError(f"entra: no client credentials, and {error}; {_WHERE}", error.kind) from None
        if answer.status != 200:
            raise refusal(answer, what, "assign an identity to this machine, or name it with entra:managed,client=…")
        token, lifetime = access_token(answer, what, "check the identity of this machine")
        moment = as_timestamp(answer.json(what).get("expires_on"))
        return token, lifetime if moment is None else moment - time.time() - answer.ahead


def _read_token(path: str) -> str:
    token = read_token_file(path, "entra: cannot read the federated token file")
    if not token:
        raise TokenError(f"entra: the federated token file {path} is empty")
    return token
