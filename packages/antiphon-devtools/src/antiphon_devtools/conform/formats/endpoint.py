"""How an API is reached: the path of a request for an answer, and the headers with the key."""

from __future__ import annotations

import re

from msgspec import Struct

_VERSION = re.compile(r"/v1(beta)?(?=/)")


class Endpoint(Struct, frozen=True):
    """The endpoint of an API that generates answers. `{model}` in a path is the name of the model."""

    path: str
    key_header: str = "authorization"
    streaming: str = ""
    """The path of a streamed request, where it is another one."""
    more_headers: dict[str, str] = {}

    def path_of(self, model: str, streams: bool) -> str:
        """Where a client sends a request."""
        return ((streams and self.streaming) or self.path).replace("{model}", model)

    def generates(self, path: str) -> bool:
        """Whether a request to the provider asks for an answer, whatever comes before the last part of its path."""
        ends = (_VERSION.sub("", one.partition("?")[0]).rpartition("{model}")[2] for one in (self.path, self.streaming))
        return path.partition("?")[0].endswith(tuple(filter(None, ends)))

    def headers(self, key: str) -> dict[str, str]:
        """How a client of this API presents its key."""
        return {self.key_header: f"Bearer {key}" if self.key_header == "authorization" else key, **self.more_headers}
