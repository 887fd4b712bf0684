"""The steps of the gateway law: what clients, upstreams and operators may do, as plain values, and how they are drawn.

A step says everything about itself, so a list of them can be cut down to the few that are needed, printed, and pasted back.
"""

from __future__ import annotations

from random import Random
from typing import Literal, TypeAlias

from msgspec import Struct

from antiphon.wire import FORMATS
from antiphon_gateway.state.continuing import PREVIOUS_FIELDS
from laws.gateway_simulation.fault_upstream import FAULTS

MODELS: dict[str, tuple[str, ...]] = {
    "to-openai-chat": ("chat/gpt-4o",),
    "to-openai-responses": ("responses/gpt-5",),
    "to-anthropic": ("anthropic/claude-sonnet-4-5",),
    "to-gemini": ("gemini/gemini-2.5-flash",),
    "to-gemini-interactions": ("interactions/gemini-3.6-flash",),
    "pair": ("anthropic/claude-sonnet-4-5", "spare/gpt-4o"),
    "trio": ("chat/gpt-4o", "gemini/gemini-2.5-flash", "spare/gpt-4o"),
    "gpt-4-*": ("chat/*",),
    "vectors": ("chat/text-embedding-3-small", "spare/text-embedding-3-small"),
}
"""The routes of every configuration."""

GOOD_NAMES = (*[name for name in MODELS if name not in ("gpt-4-*", "vectors")], "gpt-4-turbo")
BAD_NAMES = {
    "unlisted": "chat/gpt-4o-mini",
    "dots": "gpt-4-/../secret-deployment",
    "dot": "gpt-4-x/./y",
    "control": "gpt-4-a\r\nx-injected: 1",
    "null": "gpt-4-\x00",
    "overlong": "gpt-4-" + "a" * 300,
    "nothing": "no-such-model",
}
"""Names that must be refused, whatever the key may use."""


class Ask(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A client asks for an answer."""

    client: str = "openai-chat"
    model: str = "to-openai-chat"
    key: str = "open"
    streams: bool = False
    has_usage: bool = False
    """Whether a chat client asks for `include_usage`."""
    shape: Literal["small", "large", "tools", "broken"] = "small"
    faults: tuple[tuple[str, str], ...] = ()
    """Provider and name of a fault, in the order in which each provider plays its own."""
    leaves: Literal["", "before the head", "in mid-stream"] = ""
    is_reloaded: bool = False
    """Whether the configuration is reloaded while the answer comes."""
    is_kept: bool = False
    """Whether the connection of the last such request is used again."""
    reads_slowly: bool = False
    long_answer: bool = False
    continues: bool = False
    """Whether the client names a response to continue from; it does not exist. Without effect where a format cannot."""

    @property
    def previous_field(self) -> str:
        """The field that names what the request continues; empty if it continues nothing."""
        return PREVIOUS_FIELDS.get(self.client, "") if self.continues else ""


class Embed(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A client asks for embeddings."""

    model: str = "vectors"
    key: str = "open"
    faults: tuple[tuple[str, str], ...] = ()


class Count(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A client asks how many tokens a request takes."""

    client: Literal["anthropic", "gemini"] = "anthropic"
    model: str = "to-anthropic"
    key: str = "open"


class Read(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A look at the gateway."""

    path: str = "/status?format=json"
    key: str = "open"


class Foreign(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A foreign web page makes the user's browser ask."""

    how: Literal["host", "origin", "cross-site", "text/plain"] = "host"
    path: Literal["generate", "/v1/models", "/status", "/metrics"] = "generate"


class HeadOnly(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A request without a good key that announces a large body and sends none of it."""

    client: str = "openai-chat"
    key: str = "wrong"


class Reload(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The configuration is saved again, with a change, and the gateway is sent SIGHUP."""

    change: Literal["nothing", "add client", "remove client", "halve limits", "add upstream key", "bad file"] = (
        "nothing"
    )


class Revoke(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A provider stops to accept one of the gateway's keys, or accepts it again."""

    provider: Literal["chat", "anthropic"] = "chat"
    is_restored: bool = False


class Pause(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Nothing happens for a little longer than the shortest cooldown."""


class DamageState(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The tables in the file of stored responses are dropped by another process."""


Step: TypeAlias = Ask | Embed | Count | Read | Foreign | HeadOnly | Reload | Revoke | Pause | DamageState

KEYS = ("open", "globbed", "few", "thrifty", "added", "wrong", "")
"""Names of clients; `wrong` sends an unknown key, and the empty one none at all."""
_PATHS = ("/status?format=json", "/status", "/metrics", "/readyz", "/healthz", "/v1/models", "/v1beta/models")
_SLOW = frozenset({"stall", "stall in half", "429 for 1 s"})


def drawn(random: Random, count: int, *, has_keys: bool) -> list[Step]:
    """So many steps. Those that take long by their nature are few."""
    return [_step(random, has_keys=has_keys) for _ in range(count)]


def _step(random: Random, *, has_keys: bool) -> Step:
    kind = random.choices(
        ["ask", "embed", "count", "read", "foreign", "head", "reload", "revoke", "pause", "damage"],
        [70, 5, 3, 7, 4 if not has_keys else 1, 3 if has_keys else 0, 3, 3, 1, 0.5],
    )[0]
    if kind == "embed":
        return Embed(model=_model(random, "vectors"), key=_key(random), faults=_faults(random, ["chat", "spare"]))
    if kind == "count":
        client = random.choice(["anthropic", "gemini"])
        return Count(client=client, model=_model(random, random.choice(GOOD_NAMES)), key=_key(random))  # type: ignore[arg-type]
    if kind == "read":
        return Read(path=random.choice(_PATHS), key=_key(random))
    if kind == "foreign":
        how = random.choice(["host", "origin", "cross-site", "text/plain"])
        path = random.choice(["generate", "generate", "/v1/models", "/status", "/metrics"])
        return Foreign(how=how, path="generate" if how == "text/plain" else path)  # type: ignore[arg-type]
    if kind == "head":
        return HeadOnly(client=random.choice(FORMATS), key=random.choice(["wrong", ""]))
    if kind == "reload":
        changes = ["nothing", "add client", "remove client", "halve limits", "add upstream key", "bad file"]
        return Reload(change=random.choice(changes))  # type: ignore[arg-type]
    if kind == "revoke":
        return Revoke(provider=random.choice(["chat", "anthropic"]), is_restored=random.random() < 0.5)
    if kind in ("pause", "damage"):
        return Pause() if kind == "pause" else DamageState()
    return _ask(random)


def _ask(random: Random) -> Ask:
    client, streams = random.choice(FORMATS), random.random() < 0.6
    model = _model(random, random.choice(GOOD_NAMES))
    providers = [target.partition("/")[0] for target in targets_of(model)]
    long_answer = streams and random.random() < 0.012
    is_reloaded = streams and random.random() < 0.04
    leaves = random.choice(["before the head", "in mid-stream"]) if streams and random.random() < 0.08 else ""
    return Ask(
        client=client,
        model=model,
        key=_key(random),
        streams=streams,
        has_usage=random.random() < 0.5,
        shape=random.choices(["small", "large", "tools", "broken"], [5, 2, 2, 2])[0],  # type: ignore[arg-type]
        faults=() if leaves or is_reloaded else _faults(random, providers),
        is_reloaded=is_reloaded and not leaves,
        leaves=leaves,  # type: ignore[arg-type]
        is_kept=not long_answer and random.random() < 0.5,
        reads_slowly=long_answer and not leaves,
        long_answer=long_answer and not leaves,
        continues=client in PREVIOUS_FIELDS and random.random() < 0.15,
    )


def targets_of(model: str) -> tuple[str, ...]:
    """The targets of a model that is listed; none for any other name."""
    if model in MODELS and "*" not in model:
        return MODELS[model]
    is_listed = model.startswith("gpt-4-") and model not in BAD_NAMES.values()
    return (f"chat/{model}",) if is_listed else ()


def _model(random: Random, usual: str) -> str:
    return random.choice(list(BAD_NAMES.values())) if random.random() < 0.1 else usual


def _key(random: Random) -> str:
    return random.choices(KEYS, [50, 10, 8, 12, 4, 4, 3])[0]


def _faults(random: Random, providers: list[str]) -> tuple[tuple[str, str], ...]:
    if not providers or random.random() < 0.45:
        return ()
    names = [name for name in FAULTS if name and name not in _SLOW]
    if random.random() < 0.12:
        names = sorted(_SLOW)
    count = random.choices([1, 2, 3], [6, 3, 1])[0]
    return tuple((random.choice(providers), random.choice(names)) for _ in range(count))
