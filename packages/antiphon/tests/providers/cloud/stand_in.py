"""Stand-ins for AWS, Google Cloud and Azure on this machine: they verify signatures, assertions, tokens and their age.

Signatures are checked by botocore's own signer, assertions by cryptography. A host answers as the real services do: Bedrock with
frames and `x-amzn-errortype`, Vertex AI with Google's error object, Azure with OpenAI's.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import struct
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from zlib import crc32

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from providers.sample_answers import STREAMS
from providers.scripted_server import Received, Reply

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = (
    "AKIDEXAMPLE000000000",
    "aws-secret-canary-000000000000000000",
    "session-canary-0001",
)
REGION = "us-east-1"
_AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
                            r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})")  # fmt: skip
WHOLE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [{"type": "text", "text": "Rain."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PRIVATE_PEM = RSA_KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


def json_reply(body: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(
        status=status, body=json.dumps(body).encode(), content_type="application/json", headers=headers, has_length=True
    )


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """A frame of an AWS event stream, with text headers."""
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    names = b"".join(
        bytes([len(name)]) + name + b"\x07" + struct.pack(">H", len(value)) + value for name, value in encoded
    )
    start = struct.pack(">II", 16 + len(names) + len(payload), len(names))
    start += struct.pack(">I", crc32(start))
    return (whole := start + names + payload) + struct.pack(">I", crc32(whole))


def chunk(event: bytes) -> bytes:
    """An event of the Messages API as Bedrock frames it."""
    payload = json.dumps({"bytes": b64encode(event).decode(), "p": "abcdefgh"}).encode()
    return frame({":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}, payload)


def exception(name: str, message: str) -> bytes:
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps({"message": message}).encode())


EVENTS = re.findall(rb"data: (.*)\n\n", STREAMS["anthropic"])
FRAMES = [chunk(event) for event in EVENTS]


class AwsStandIn:
    """Bedrock and its neighbours. `ahead` is by how many seconds its clock is ahead of ours."""

    def __init__(self, region: str = REGION, service: str = "bedrock") -> None:
        self.region = region
        self.service = service
        self.ahead = 0.0
        self.session_token = SESSION_TOKEN
        self.bearer = ""
        self.frames = list(FRAMES)
        self.cut_after: int | None = None
        self.refusals: list[Reply] = []
        self.rejected: list[str] = []
        """Why requests were rejected."""

    def __call__(self, request: Received) -> Reply:
        now = time.time() + self.ahead
        problem = self._bearer_problem(request) if self.bearer else self._problem(request, now)
        if problem:
            self.rejected.append(problem[0])
            date = formatdate(now, usegmt=True)
            return aws_error(403, *problem, date=date)
        if self.refusals:
            return self.refusals.pop(0)
        if self.service != "bedrock":
            return Reply(body=STREAMS["anthropic"])
        body = json.loads(request.body)
        if "model" in body or "stream" in body or body.get("anthropic_version") != "bedrock-2023-05-31":
            return aws_error(400, "ValidationException", f"malformed input request: {sorted(body)}")
        if request.target.endswith("/invoke"):
            return json_reply(WHOLE)
        if not request.target.endswith("/invoke-with-response-stream"):
            return aws_error(404, "UnknownOperationException", "")
        return Reply(
            body=b"".join(self.frames),
            content_type="application/vnd.amazon.eventstream",
            cut_after=self.cut_after,
            piece=7,
        )

    def _bearer_problem(self, request: Received) -> tuple[str, str] | None:
        if request.headers.get("authorization") == f"Bearer {self.bearer}":
            return None
        return "AccessDeniedException", "Authentication failed: please make sure your API Key is valid."

    def _problem(self, request: Received, now: float) -> tuple[str, str] | None:
        found = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
        if found is None:
            return "MissingAuthenticationTokenException", "Missing Authentication Token"
        access_key, date, region, service, names, signature = found.groups()
        if access_key != ACCESS_KEY:
            return "UnrecognizedClientException", "The security token included in the request is invalid."
        if (region, service) != (self.region, self.service):
            return "InvalidSignatureException", f"Credential should be scoped to a valid region, not {region!r}."
        if request.headers.get("x-amz-security-token", "") != self.session_token:
            return "ExpiredTokenException", "The security token included in the request is expired"
        moment = request.headers["x-amz-date"]
        sent_at = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        if abs(now - sent_at) > 300 or not moment.startswith(date):
            return "InvalidSignatureException", f"Signature not yet current or expired: {moment}"
        if signature != botocore_signature(request, names.split(";"), region, service):
            return (
                "InvalidSignatureException",
                "The request signature we calculated does not match the signature you provided.",
            )
        return None


def aws_error(status: int, name: str, message: str, **headers: str) -> Reply:
    return json_reply({"message": message}, status, **{"x-amzn-errortype": f"{name}:http://internal/"}, **headers)


def botocore_signature(request: Received, names: list[str], region: str, service: str) -> str:
    """The signature of a request that arrived, as botocore computes it."""
    signed = AWSRequest(
        method=request.method,
        url=f"http://{request.headers['host']}{request.target}",
        headers={name: request.headers[name] for name in names},
        data=request.body,
    )
    signed.context["timestamp"] = request.headers["x-amz-date"]
    auth = SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), service, region)
    return str(auth.signature(auth.string_to_sign(signed, auth.canonical_request(signed)), signed))


class TokenStandIn:
    """Tokens and what they are for: an endpoint that issues them, and a check of requests that carry them."""

    def __init__(self) -> None:
        self.issued = 0
        self.valid = ""
        self.lifetime: Any = 3600
        self.ahead = 0.0
        self.refusal: Reply | None = None

    def issue(self) -> Reply:
        if self.refusal is not None:
            return self.refusal
        self.issued += 1
        self.valid = f"token-canary-{self.issued:08}"
        return json_reply({"access_token": self.valid, "expires_in": self.lifetime, "token_type": "Bearer"})

    def accepts(self, request: Received) -> bool:
        return bool(self.valid) and request.headers.get("authorization") == f"Bearer {self.valid}"


class GoogleStandIn(TokenStandIn):
    """Google's token endpoint, the metadata server, and Vertex AI."""

    def __call__(self, request: Received) -> Reply:
        path = urlsplit(request.target).path
        if path == "/token":
            return self._token(dict(parse_qsl(request.body.decode())))
        if path == "/sts":
            return self._exchanged(request)
        if path.endswith(":generateAccessToken"):
            assert request.headers["authorization"] == "Bearer federated-canary"
            self.issue()
            return json_reply({"accessToken": self.valid, "expireTime": "2099-01-01T00:00:00Z"})
        if path.startswith("/computeMetadata/"):
            assert request.headers["metadata-flavor"] == "Google"
            if path.endswith("/token"):
                return self.issue()
            account = {"email": "robot@my-project.iam.gserviceaccount.com", "scopes": [], "aliases": ["default"]}
            return json_reply(account, 200, **{"metadata-flavor": "Google"})
        if not self.accepts(request):
            error = {
                "code": 401,
                "message": "Request had invalid authentication credentials.",
                "status": "UNAUTHENTICATED",
            }
            return json_reply({"error": error}, 401)
        if path.endswith(":streamGenerateContent"):
            return Reply(body=STREAMS["gemini"])
        body = json.loads(request.body)
        if "model" in body or body.get("anthropic_version") != "vertex-2023-10-16":
            error = {"code": 400, "message": f"anthropic_version: {sorted(body)}", "status": "INVALID_ARGUMENT"}
            return json_reply({"error": error}, 400)
        if path.endswith(":streamRawPredict"):
            assert body["stream"] is True
            return Reply(body=STREAMS["anthropic"])
        assert path.endswith(":rawPredict"), path
        return json_reply(WHOLE)

    def _exchanged(self, request: Received) -> Reply:
        """A token of another identity provider for one of Google's."""
        form = dict(parse_qsl(request.body.decode()))
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
        if form["subject_token"] != "subject-canary":
            return json_reply({"error": "invalid_grant", "error_description": "not this subject"}, 400)
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return json_reply({"access_token": "federated-canary", "issued_token_type": kind, "expires_in": 3600})

    def _token(self, form: dict[str, str]) -> Reply:
        now = time.time() + self.ahead
        date = {"date": formatdate(now, usegmt=True)}
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != "refresh-canary" or form["client_secret"] != "client-secret-canary":
                return json_reply({"error": "invalid_grant", "error_description": "Bad Request"}, 400)
            return self.issue()
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        header, claims, signature = form["assertion"].split(".")
        try:
            RSA_KEY.public_key().verify(
                _unbase64(signature), f"{header}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            return json_reply({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400, **date)
        assert json.loads(_unbase64(header))["alg"] == "RS256"
        claim = json.loads(_unbase64(claims))
        assert claim["scope"] == "https://www.googleapis.com/auth/cloud-platform"
        assert claim["exp"] - claim["iat"] <= 3600
        assert claim["iss"] == "robot@my-project.iam.gserviceaccount.com"
        if not claim["iat"] - 60 <= now <= claim["exp"]:
            text = "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
            return json_reply({"error": "invalid_grant", "error_description": text}, 400, **date)
        return self.issue()


class AzureStandIn(TokenStandIn):
    """Entra ID, the managed identity services, and Azure OpenAI."""

    def __init__(self) -> None:
        super().__init__()
        self.scope = "https://cognitiveservices.azure.com/.default"
        self.secret = "entra-secret-canary"
        self.assertion = ""
        self.certificate: x509.Certificate | None = None
        self.audience = ""
        self.token_ids: set[str] = set()

    def __call__(self, request: Received) -> Reply:
        parts = urlsplit(request.target)
        if parts.path.endswith("/.well-known/openid-configuration"):
            login = f"https://{request.headers['host']}/tenant-1"
            found = {"token_endpoint": f"{login}/oauth2/v2.0/token", "authorization_endpoint": f"{login}/a"}
            return json_reply({**found, "issuer": f"{login}/v2.0"})
        if parts.path.endswith("/oauth2/v2.0/token"):
            return self._token(parts.path, dict(parse_qsl(request.body.decode())))
        if parts.path.startswith("/metadata/identity") or parts.path == "/msi/token":
            return self._managed(request, dict(parse_qsl(parts.query)))
        if not self.accepts(request):
            message = "Unauthorized. Access token is missing, invalid, audience is incorrect, or have expired."
            return json_reply({"error": {"code": "401", "message": message}}, 401)
        return Reply(body=STREAMS["openai-chat"])

    def _token(self, path: str, form: dict[str, str]) -> Reply:
        assert path == "/tenant-1/oauth2/v2.0/token"
        assert (form["grant_type"], form["scope"]) == ("client_credentials", self.scope)
        if self.certificate is not None:
            is_known = self._verifies(form["client_assertion"])
        elif self.assertion:
            assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            is_known = form["client_assertion"] == self.assertion
        else:
            is_known = form["client_secret"] == self.secret
        if form["client_id"] != "client-1" or not is_known:
            text = "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 1"
            return json_reply({"error": "invalid_client", "error_description": text}, 401)
        return self.issue()

    def _verifies(self, assertion: str) -> bool:
        """Whether the app's certificate signed the assertion for this endpoint, and it was not used before."""
        assert self.certificate is not None
        head, body, signature = assertion.split(".")
        header, claims = json.loads(_unbase64(head)), json.loads(_unbase64(body))
        thumbprint = sha256(self.certificate.public_bytes(serialization.Encoding.DER)).digest()
        public = self.certificate.public_key()
        assert isinstance(public, rsa.RSAPublicKey)
        try:
            pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
            public.verify(_unbase64(signature), f"{head}.{body}".encode(), pss, hashes.SHA256())
        except InvalidSignature:
            return False
        is_new = claims["jti"] not in self.token_ids
        self.token_ids.add(claims["jti"])
        return (
            header["alg"] == "PS256"
            and _unbase64(header["x5t#S256"].rstrip("=")) == thumbprint
            and (claims["iss"], claims["sub"], claims["aud"]) == ("client-1", "client-1", self.audience)
            and time.time() < claims["exp"] <= time.time() + 601
            and is_new
        )

    def _managed(self, request: Received, query: dict[str, str]) -> Reply:
        assert query["resource"] == self.scope.removesuffix("/.default")
        if request.target.startswith("/msi/"):
            assert request.headers["x-identity-header"] == "identity-canary"
        else:
            assert request.headers["metadata"] == "true"
        reply = json.loads(self.issue().body)
        return json_reply({**reply, "expires_on": str(int(time.time()) + 3600)})


@contextmanager
def process_environment(**values: str) -> Iterator[Mapping[str, str]]:
    """The environment of this process with these values and without what a developer has set: libraries look nowhere else."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "MSI_", "CLOUDSDK_")):
                patch.delenv(name)
        for name, value in {"HOME": "/nonexistent", **values}.items():
            patch.setenv(name, value)
        yield os.environ


def own_certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server on this machine needs for TLS, and the file that its clients trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stand-in")]), datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(days=1))
    names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    trusted, secret = folder / "trusted.pem", folder / "server.key"
    trusted.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(*pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, secret)
    return context, trusted


def _unbase64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def model_in(target: str) -> str:
    """The model that the path of a request names, unquoted."""
    return unquote(re.search(r"/model(?:s)?/([^/]+?)(?:/invoke|:stream|:raw|:generate)", target)[1])  # type: ignore[index]


Script = Callable[[Received], Reply]
