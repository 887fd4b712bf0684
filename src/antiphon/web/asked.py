"""`Asked`: a request to the chat's API with who asks, and its body read as what it should be."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from antiphon.gateway.access.client_keys import ClientKey
from antiphon.gateway.http.messages import ClientRequest
from antiphon.web.refusal import Refused

T = TypeVar("T")

_LARGEST = 2**53


class Asked(Struct, frozen=True):
    """A request, the key it came with, and the id in its path, if it has one."""

    request: ClientRequest
    key: ClientKey
    id: str = ""
    name: str = ""

    @property
    def owner(self) -> str:
        """Whose conversations are meant."""
        return self.key.name

    def read(self, kind: type[T]) -> T:
        """The body. Raises `Refused`, saying what is wrong with it and where."""
        try:
            return msgspec.json.decode(self.request.body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(f"the body cannot be read: {error}") from error

    def number(self, name: str, default: Any = None, *, most: int = _LARGEST) -> Any:
        """A number in the query."""
        written = self.request.query.get(name)
        return default if written is None else number_of(written, name, most)


def number_of(written: str, name: str, most: int = _LARGEST) -> int:
    """A number that was written down, from 0 to `most`."""
    if not (written.isascii() and written.isdigit() and len(written) <= 16) or int(written) > most:
        raise Refused(f"{name} is a number from 0 to {most}, not {written[:40]!r}")
    return int(written)
