"""`Redactor`: removes secrets from what is recorded.

Removed are the values of headers, query fields and JSON fields whose name says that they are secret, everything that looks like a
key of a known provider or a token, the parameters of URLs that carry one, and the exact secrets that the process knows. A request
that is compared with recorded ones passes through the same code, so it does not matter which key a client uses.

A stream is searched as a whole: a key may be cut anywhere between two pieces. What a model spells out over several events of a
stream is found only if it is one of these patterns in the bytes of the stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from antiphon.providers.credentials.secret import longest_first, looks_secret

REMOVED = "[removed]"
_REMOVED = REMOVED.encode()

FIELDS = frozenset(
    {"authorization", "proxy-authorization", "authorization_token", "api_key", "api-key", "apikey", "x-api-key"}
    | {"x-goog-api-key", "access_token", "refresh_token", "id_token", "session_token", "client_secret", "secret_key"}
    | {"secret", "password", "passwd", "private_key", "cookie", "set-cookie", "aws_secret_access_key"}
)
"""JSON fields whose text is removed."""
_DROPPED_HEADERS = frozenset({"cookie", "set-cookie", "proxy-authorization"})
_LIMIT_HEADERS = ("x-ratelimit-", "anthropic-ratelimit-")
"""Their names contain "tokens", which are counted there, not kept secret."""
_TICKETS = frozenset({"ticket", "sig", "signature", "x-amz-signature", "x-amz-credential", "x-goog-signature"})
MIN_KNOWN_LENGTH = 12
"""A shorter key of a client is a word like "test", which would be removed from ordinary text."""

_DIGIT = rb"(?=[A-Za-z0-9_.-]{0,200}\d)"
_PATTERNS: tuple[tuple[tuple[bytes, ...], re.Pattern[bytes]], ...] = tuple(
    (needles, re.compile(pattern))
    for needles, pattern in (
        ((b"sk-", b"rk-", b"pk-"), rb"\b[srp]k-" + _DIGIT + rb"[A-Za-z0-9_-]{16,}"),  # OpenAI, Anthropic, this gateway
        (
            (b"gsk_", b"hf_", b"r8_", b"xai-", b"pplx-", b"nvapi-", b"fw_", b"tgp_v1_"),
            rb"\b(?:gsk_|hf_|r8_|xai-|pplx-|nvapi-|fw_|tgp_v1_)" + _DIGIT + rb"[A-Za-z0-9_-]{20,}",
        ),
        ((b"AIza",), rb"\bAIza[0-9A-Za-z_-]{35}"),  # Google
        ((b"ya29.",), rb"\bya29\.[0-9A-Za-z_-]{20,}"),
        ((b"AKIA", b"ASIA"), rb"\bA[KS]IA[0-9A-Z]{16}\b"),  # AWS
        ((b"gh", b"glpat-"), rb"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_-]{20,})"),
        ((b"github_pat_",), rb"\bgithub_pat_[A-Za-z0-9_]{20,}"),
        ((b"xox",), rb"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),  # Slack
        ((b".eyJ",), rb"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),  # JSON web tokens
        (
            (b"PRIVATE KEY-----",),
            rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[^-]{1,10000}-----END [A-Z ]{0,20}PRIVATE KEY-----",
        ),
        ((b"earer ",), rb"(?<=earer )" + _DIGIT + rb"[A-Za-z0-9_.~+/=-]{16,}"),
        ((b"key=",), rb"(?<=[?&_]key=)[A-Za-z0-9_.%-]+"),  # in a URL, as the following
        ((b"ticket=",), rb"(?<=[?&]ticket=)[A-Za-z0-9_.%-]+"),
        ((b"token=",), rb"(?<=[?&_]token=)[A-Za-z0-9_.%-]+"),
        ((b"://",), rb"(?<=://)[^/\s:@\"\\]{1,200}:[^/\s:@\"\\]{1,200}(?=@)"),  # user and password
    )
)
"""Patterns of keys. Each is searched for only where one of the texts it begins with is found, which is much faster."""


class Redactor:
    """Removes secrets. `names` are headers, query fields and JSON fields besides the usual ones; `secrets` are texts."""

    def __init__(self, names: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        self._names = frozenset(name.lower() for name in names)
        written = b"|".join(re.escape(name.encode()) for name in sorted(FIELDS | self._names))
        self._field = re.compile(
            # Plain JSON, and JSON inside a text of JSON, as the arguments of a call are.
            rb'"(?:%b)"\s*:\s*"((?:[^"\\]|\\.)+)"|\\"(?:%b)\\"\s*:\s*\\"([^"\\]+)\\"' % (written, written),
            re.IGNORECASE | re.DOTALL,
        )
        self._secrets = longest_first({secret for secret in secrets if len(secret) >= MIN_KNOWN_LENGTH})

    def knowing(self, *secrets: str) -> Redactor:
        """One that removes these texts, too."""
        if all(len(secret) < MIN_KNOWN_LENGTH or secret in self._secrets for secret in secrets):
            return self
        other = object.__new__(Redactor)
        other._names, other._field = self._names, self._field
        other._secrets = longest_first({*self._secrets, *(one for one in secrets if len(one) >= MIN_KNOWN_LENGTH)})
        return other

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers without secrets; cookies are left out."""
        return {
            name: REMOVED if self._is_secret_header(name) else self.text(value)
            for name, value in headers.items()
            if name.lower() not in _DROPPED_HEADERS
        }

    def query(self, query: Mapping[str, str]) -> dict[str, str]:
        """Query fields without those that carry a secret."""
        return {name: self.text(value) for name, value in query.items() if not self._is_secret_field(name)}

    def text(self, text: str) -> str:
        """Text without secrets."""
        return self.body(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def body(self, data: bytes) -> bytes:
        """Bytes without secrets; the same object if there are none."""
        spans = self._spans(data)
        return _replaced(data, spans) if spans else data

    def pieces(self, pieces: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """The pieces of a stream without secrets, wherever it was cut. What replaces a secret is where the secret began."""
        spans = self._spans(b"".join([data for _, data in pieces]))
        if not spans:
            return pieces
        cleared, start = [], 0
        for at, data in pieces:
            end = start + len(data)
            own = [
                (max(first, start) - start, min(last, end) - start, _REMOVED if first >= start else b"")
                for first, last in spans
                if first < end and last > start
            ]
            pieces_of = []
            position = 0
            for first, last, replacement in own:
                pieces_of += [data[position:first], replacement]
                position = last
            cleared.append((at, b"".join([*pieces_of, data[position:]])))
            start = end
        return [(at, data) for at, data in cleared if data]

    def _is_secret_header(self, name: str) -> bool:
        name = name.lower()
        return name in self._names or (looks_secret(name) and not name.startswith(_LIMIT_HEADERS))

    def _is_secret_field(self, name: str) -> bool:
        return name.lower() in self._names or name.lower() in _TICKETS or looks_secret(name)

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where secrets are, in order and without overlaps."""
        found = [match.span(1 if match[1] is not None else 2) for match in self._field.finditer(data)]
        for needles, pattern in _PATTERNS:
            if any(needle in data for needle in needles):
                found += [match.span() for match in pattern.finditer(data)]
        for secret in self._secrets:
            written = secret.encode("utf-8", "surrogatepass")
            position = data.find(written)
            while position >= 0:
                found.append((position, position + len(written)))
                position = data.find(written, position + len(written))
        merged: list[tuple[int, int]] = []
        for first, last in sorted(found):
            if data[first:last] == _REMOVED:
                continue
            if merged and first < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return merged


def _replaced(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    pieces, position = [], 0
    for first, last in spans:
        pieces += [data[position:first], _REMOVED]
        position = last
    return b"".join([*pieces, data[position:]])
