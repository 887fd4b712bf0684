"""`Redactor`: removes secrets from what is recorded.

Removed are the values of headers, query fields and JSON fields whose name says that they are secret, everything that looks like a
key of a known provider or a token, the parameters of URLs that carry one, and the exact secrets that the process knows. A request
that is compared with recorded ones passes through the same code, so it does not matter which key a client uses.

A stream is searched as a whole: a key may be cut anywhere between two pieces. It is also searched field by field over its
events, because a model that repeats a key spells it out in several of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from antiphon.json_text import NOT_JSON
from antiphon.providers.keys.secret import longest_first, looks_secret

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


Edit: TypeAlias = tuple[int, int, bytes]
"""Where a part of the bytes begins and ends, and what replaces it."""
_EVENT = re.compile(rb"^(?:data: ?)?(\{.*\})\r?$", re.MULTILINE)
"""The JSON of one event of a stream: server-sent events, or one object in each line."""


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
        return _edited([(0, data)], [(*span, _REMOVED) for span in spans])[0][1] if spans else data

    def pieces(self, pieces: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """The pieces of a stream without secrets, wherever it was cut. What replaces a secret is where the secret began."""
        spans = self._spans(b"".join([data for _, data in pieces]))
        if spans:
            pieces = _edited(pieces, [(*span, _REMOVED) for span in spans])
        edits = self._event_edits(b"".join([data for _, data in pieces]))
        return _edited(pieces, edits) if edits else pieces

    def _event_edits(self, data: bytes) -> list[Edit]:
        """New bytes for the events of a stream that together spell a secret, each a part of it in the same field."""
        events: list[tuple[re.Match[bytes], Any]] = []
        leaves: dict[str, list[tuple[int, Any, Any, bytes]]] = {}
        for match in _EVENT.finditer(data):
            try:
                value = msgspec.json.decode(match[1])
                found = list(_texts(value, ""))
            except NOT_JSON:
                continue
            for path, holder, place, text in found:
                leaves.setdefault(path, []).append((len(events), holder, place, text.encode("utf-8", "surrogatepass")))
            events.append((match, value))
        changed: set[int] = set()
        for parts in leaves.values():
            spans = self._spans(b"".join([text for *_, text in parts])) if len(parts) > 1 else []
            if not spans:
                continue
            texts = [(number, text) for number, (*_, text) in enumerate(parts)]
            cleared = _edited(texts, [(*span, _REMOVED) for span in spans], keeps_empty=True)
            for (event, holder, place, before), (_, now) in zip(parts, cleared, strict=True):
                if now != before:
                    holder[place] = now.decode("utf-8", "replace")
                    changed.add(event)
        return [(*events[number][0].span(1), msgspec.json.encode(events[number][1])) for number in sorted(changed)]

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


def _edited(
    pieces: list[tuple[int, bytes]], edits: list[Edit], *, keeps_empty: bool = False
) -> list[tuple[int, bytes]]:
    """Pieces with parts of them replaced; places count through all pieces. A replacement is put where its part began."""
    edited, start = [], 0
    for at, data in pieces:
        end, position, kept = start + len(data), start, []
        for first, last, replacement in edits:
            if first >= end or last <= start:
                continue
            kept += [data[position - start : max(first, start) - start], replacement if first >= start else b""]
            position = min(last, end)
        edited.append((at, b"".join([*kept, data[position - start :]])))
        start = end
    return edited if keeps_empty else [(at, data) for at, data in edited if data]


def _texts(value: Any, path: str) -> Iterator[tuple[str, Any, Any, str]]:
    """The texts in a JSON value: their path, and where they can be replaced."""
    places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, one in places:
        if isinstance(one, str):
            yield f"{path}.{place}", value, place, one
        elif isinstance(one, dict | list):
            yield from _texts(one, f"{path}.{place}")
