"""TLS of the listeners: a certificate and its key from two PEM files, read again when they are renewed.

New files are loaded into the context that is in use: connections from then on get the new certificate, open ones are not touched.
Files that do not belong together change nothing, so a half-written renewal is harmless.
"""

from __future__ import annotations

import ssl

from antiphon.errors import GatewayStartError


class ServerCertificate:
    """The certificate of this process. Raises `GatewayStartError` if the files cannot be used."""

    def __init__(self, certificate: str, key: str) -> None:
        self.context = _load(certificate, key)

    def reload(self, certificate: str, key: str) -> None:
        """Use other files, or new content of the same. Raises `GatewayStartError`, and keeps what is in use."""
        _load(certificate, key)  # into a context of its own first: a key that does not match would break the one in use
        self.context.load_cert_chain(certificate, key, password=_no_password)


def check_certificate(certificate: str, key: str) -> str:
    """What is wrong with a pair of files; empty if they can be used."""
    try:
        _load(certificate, key)
    except GatewayStartError as error:
        return str(error)
    return ""


def _load(certificate: str, key: str) -> ssl.SSLContext:
    for path in (certificate, key):
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as error:
            raise GatewayStartError(f"cannot read {path}: {error.strerror}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", "") or ""
        if reason == "KEY_VALUES_MISMATCH":
            raise GatewayStartError(f"the key {key} does not belong to the certificate {certificate}") from None
        raise GatewayStartError(
            f"{certificate} and {key} are not a certificate and its key; both must be PEM files, the key without a password"
        ) from None
    return context


def _no_password() -> str:
    """Without it, OpenSSL would ask on the terminal."""
    return ""
