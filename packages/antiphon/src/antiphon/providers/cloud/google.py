"""`google:`: access tokens of Google Cloud for Vertex AI: a service account, a user's own login, the metadata server.

`google:PATH` is a JSON key file of a service account, or the file that `gcloud auth application-default login` writes.
`google:metadata` is the service account of the machine (Compute Engine, GKE, Cloud Run). `google:` alone looks where Google's own
SDKs look: `GOOGLE_APPLICATION_CREDENTIALS`, gcloud's file, the metadata server. A service account signs a JWT (RS256, by
`cryptography`) and exchanges it for a token.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import CredentialError
from antiphon.http.client.request import Transport
from antiphon.providers.cloud.token_cache import Fetched, TokenError
from antiphon.providers.cloud.token_request import (
    METADATA_TIMEOUTS,
    Answer,
    access_token,
    host_of,
    request_token,
    signed_token,
)

PREFIX = "google:"
METADATA = "metadata"
HOW_TO_INSTALL = "pip install 'antiphon[google]'"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_TOKEN_URI = "https://oauth2.googleapis.com/token"
_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_JWT_SECONDS = 3600
_MIN_CLOCK_DIFFERENCE = 60.0
_NEEDED = {
    "service_account": ("client_email", "private_key"),
    "authorized_user": ("client_id", "client_secret", "refresh_token"),
}


class GoogleSource:
    """Fetches tokens with the cloud-platform scope."""

    def __init__(self, place: str, *, environ: Mapping[str, str], transport: Transport) -> None:
        self._environ = environ
        self._transport = transport
        self._path = find_file(place, environ)

    async def fetch(self) -> Fetched[Mapping[str, str]]:
        """A token, as the header that carries it. Raises `TokenError`."""
        if self._path is None:
            return await self._from_metadata()
        # The file is read each time: it may be replaced by another key.
        account = await asyncio.to_thread(read_account, self._path)
        token_uri = account.get("token_uri") or _TOKEN_URI
        if account["type"] == "authorized_user":
            form = {name: str(account[name]) for name in _NEEDED["authorized_user"]}
            answer = await self._exchange(token_uri, {**form, "grant_type": "refresh_token"})
        else:
            answer = await self._exchange(token_uri, await _jwt_form(account, token_uri, time.time()))
            if answer.status == 400 and abs(answer.ahead) > _MIN_CLOCK_DIFFERENCE:  # our clock is wrong: use theirs
                answer = await self._exchange(
                    token_uri, await _jwt_form(account, token_uri, time.time() + answer.ahead)
                )
        advice = f"check that {self._path} is current and its account enabled"
        token, lifetime = access_token(answer, f"Google's token endpoint {host_of(token_uri)}", advice)
        headers = {"authorization": f"Bearer {token}"}
        if isinstance(quota := account.get("quota_project_id"), str) and quota:
            headers["x-goog-user-project"] = quota
        return Fetched(headers, lifetime)

    async def _exchange(self, token_uri: str, form: Mapping[str, str]) -> Answer:
        what = f"Google's token endpoint {host_of(token_uri)}"
        return await request_token(self._transport, token_uri, what=what, form=form)

    async def _from_metadata(self) -> Fetched[Mapping[str, str]]:
        host = self._environ.get("GCE_METADATA_HOST", "").strip() or "metadata.google.internal"
        url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
        what = "the metadata server of Google Cloud"
        try:
            answer = await request_token(
                self._transport, url, what=what, headers={"metadata-flavor": "Google"}, timeouts=METADATA_TIMEOUTS
            )
        except TokenError as error:
            raise TokenError(
                f"google: no credentials file, and {error}; set GOOGLE_APPLICATION_CREDENTIALS, write google:PATH, "
                "or run `gcloud auth application-default login`",
                error.kind,
            ) from None
        token, lifetime = access_token(answer, what, "attach a service account with the role Vertex AI User")
        return Fetched({"authorization": f"Bearer {token}"}, lifetime)


def find_file(place: str, environ: Mapping[str, str]) -> Path | None:
    """The credentials file that a reference means; None for the metadata server. Raises `CredentialError`."""
    if place == METADATA:
        return None
    named = place or environ.get("GOOGLE_APPLICATION_CREDENTIALS", "").strip()
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            source = "" if place else " (named by GOOGLE_APPLICATION_CREDENTIALS)"
            raise CredentialError(f"google: there is no credentials file {path}{source}; correct the path")
        return path
    folder = environ.get("CLOUDSDK_CONFIG", "").strip()
    home = environ.get("HOME", "") or os.path.expanduser("~")
    path = (Path(folder) if folder else Path(home) / ".config" / "gcloud") / "application_default_credentials.json"
    return path if path.is_file() else None


def find_project(place: str, environ: Mapping[str, str]) -> str:
    """The project of the credentials file that a reference means; empty if it names none."""
    try:
        path = find_file(place, environ)
        account = {} if path is None else msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (CredentialError, OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ""
    project = account.get("project_id") or account.get("quota_project_id")
    return project if isinstance(project, str) else ""


def read_account(path: Path) -> dict[str, Any]:
    """The account in a credentials file. Raises `TokenError`."""
    try:
        account = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise TokenError(f"google: cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise TokenError(f"google: {path} is not a JSON object; use the key file of a service account") from None
    needed = _NEEDED.get(str(account.get("type")))
    if needed is None:
        raise TokenError(
            f"google: {path} has credentials of type {account.get('type')!r}; supported: {', '.join(_NEEDED)}. "
            "For others use command:gcloud auth print-access-token"
        )
    missing = [name for name in needed if not isinstance(account.get(name), str)]
    if missing:
        raise TokenError(f"google: {path} lacks {', '.join(missing)}; download the key file again")
    return account


async def _jwt_form(account: Mapping[str, Any], token_uri: str, now: float) -> dict[str, str]:
    return {"grant_type": _JWT_GRANT, "assertion": await asyncio.to_thread(signed_jwt, account, token_uri, now)}


def signed_jwt(account: Mapping[str, Any], audience: str, now: float) -> str:
    """The assertion of a service account. Raises `TokenError`."""
    try:
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise TokenError(f"google: service accounts need the package cryptography; run {HOW_TO_INSTALL}") from None
    header = {"alg": "RS256", "typ": "JWT"}
    if isinstance(key_id := account.get("private_key_id"), str):
        header["kid"] = key_id
    claims = {
        "iss": account["client_email"],
        "scope": _SCOPE,
        "aud": audience,
        "iat": int(now),
        "exp": int(now) + _JWT_SECONDS,
    }
    try:
        key = load_pem_private_key(account["private_key"].encode(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise TokenError("google: the private_key of the service account is not an RSA key; download the file again")
    signer = key
    return signed_token(header, claims, lambda text: signer.sign(text, PKCS1v15(), SHA256()))
