"""What a body is written for: the model and the version of the API, and what these refuse.

Each question names the rule behind it. Where a model's name does not tell its generation, the answer is the one that `rules`
gives: nothing is known against it.
"""

from __future__ import annotations

from antiphon.wire.anthropic.parameters import read_model

VERSION = "2023-06-01"
NEW_VERSION = "2026-10-21"

_THINKERS = ("opus", "sonnet", "fable", "mythos")


class Target:
    """A model and an API version, asked what they take."""

    __slots__ = ("_family", "_version", "is_known", "is_new", "is_on_bedrock")

    def __init__(self, model: str, version: str = VERSION, host: object = None) -> None:
        known = read_model(model)
        self.is_known = known is not None
        self._family = known.family if known else ""
        self._version = known.version if known else (0, 0)
        self.is_new = version.startswith("20") and version >= NEW_VERSION
        self.is_on_bedrock = isinstance(host, str) and host.startswith("bedrock-")

    def _is_at_least(self, major: int, minor: int, families: tuple[str, ...] = ()) -> bool:
        return self.is_known and self._version >= (major, minor) and (not families or self._family in families)

    def takes_system_role(self, is_native: bool) -> bool:
        """Whether system messages may stand among the others (AN-03); of unknown models only a native body knows."""
        return self._is_at_least(4, 8) if self.is_known else is_native

    @property
    def takes_prefill(self) -> bool:
        """Whether the conversation may end with the model's own words (AN-07)."""
        return not self._is_at_least(4, 6)

    @property
    def takes_adaptive(self) -> bool:
        """Whether the model may decide by itself how much it thinks (AN-19)."""
        return not self.is_known or self._is_at_least(4, 6)

    @property
    def takes_budget(self) -> bool:
        """Whether thinking may be enabled with a number of tokens (AN-19)."""
        return not self._is_at_least(4, 7, _THINKERS)

    @property
    def takes_disabled(self) -> bool:
        """Whether thinking can be switched off (AN-19)."""
        return not (self._is_at_least(5, 0, ("fable", "mythos")) or self._is_at_least(5, 5, _THINKERS))

    @property
    def takes_effort(self) -> bool:
        """Whether it is certain that an effort may be stated (AN-32)."""
        return self._is_at_least(4, 6)

    @property
    def takes_xhigh(self) -> bool:
        """Whether the effort may be `xhigh` (AN-32)."""
        return not self.is_known or self._is_at_least(4, 7)

    @property
    def takes_forced_choice(self) -> bool:
        """Whether a tool call may be demanded (AN-17)."""
        return not (self._is_at_least(5, 1, ("fable", "mythos")) or self._is_at_least(5, 5, _THINKERS))

    @property
    def takes_sampling(self) -> bool:
        """Whether temperature, top_p and top_k still mean anything to the model (AN-21)."""
        return not self._is_at_least(4, 7)
