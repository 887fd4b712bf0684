"""`ClientCertificate`: the certificate of an app registration of Entra ID with its private key, and the assertions it signs.

The file is PEM (certificate and key in any order) or PKCS#12. It is read for each token, so a renewed certificate is used without
a restart. The assertion names the certificate by `x5t#S256`, its SHA-256 thumbprint, and is signed with PS256, as Microsoft asks.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from antiphon.providers.cloud.token_cache import TokenError
from antiphon.providers.cloud.token_request import base64url, signed_token

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

_LIFETIME_SECONDS = 600
_EARLY_SECONDS = 60
"""How far the clock of this machine may be ahead."""


class ClientCertificate:
    """The certificate in a file. Raises `TokenError` if it cannot be read."""

    def __init__(self, path: str, password: str = "") -> None:
        self._path = path
        try:
            data = Path(path).expanduser().read_bytes()
        except OSError as error:
            raise TokenError(f"entra: cannot read the certificate {path}: {error.strerror}") from None
        try:
            self._key, self._thumbprint = _load(data, password.encode() or None)
        except ImportError:
            raise TokenError(
                "entra: certificates need the package cryptography; run pip install cryptography"
            ) from None
        except (ValueError, TypeError) as error:
            what = "a PEM or PKCS#12 file with a certificate and its RSA private key"
            hint = "; if it is encrypted, check certificate_password" if password or "assword" in str(error) else ""
            raise TokenError(f"entra: {path} is not {what}{hint}") from None

    def assertion(self, client: str, audience: str, now: float) -> str:
        """The assertion of an app for a token endpoint."""
        from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
        from cryptography.hazmat.primitives.hashes import SHA256

        header = {"alg": "PS256", "typ": "JWT", "x5t#S256": base64url(self._thumbprint).decode()}
        claims = {
            "aud": audience,
            "iss": client,
            "sub": client,
            "jti": str(uuid4()),
            "nbf": int(now) - _EARLY_SECONDS,
            "iat": int(now),
            "exp": int(now) + _LIFETIME_SECONDS,
        }
        padding = PSS(MGF1(SHA256()), PSS.DIGEST_LENGTH)
        return signed_token(header, claims, lambda text: self._key.sign(text, padding, SHA256()))


def _load(data: bytes, password: bytes | None) -> tuple[RSAPrivateKey, bytes]:
    """The key, and the thumbprint of its certificate. Raises `ValueError` or `TypeError`."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates
    from cryptography.x509 import load_pem_x509_certificates

    if b"-----BEGIN" in data:
        key, certificates = load_pem_private_key(data, password), load_pem_x509_certificates(data)
        public = key.public_key()
        found = next((one for one in certificates if one.public_key() == public), None)
    else:
        given, found, _ = load_key_and_certificates(data, password)
        if given is None:
            raise ValueError("no key")
        key = given
    if not isinstance(key, RSAPrivateKey) or found is None:
        raise ValueError("no RSA key with its certificate")
    return key, sha256(found.public_bytes(Encoding.DER)).digest()
