"""`Config`: everything `antiphon.toml` can say, as values; and what is said of one that is refused.

The structs are the one description of the file: its keys, types, bounds and defaults are read off them, by `config_shape` to
check a file and by `config_schema` to help an editor. What no type can say (names that must exist, addresses that must differ)
is `config_checks`' business.

A configuration holds no secret (law L10): only where one is read, `env:NAME` or `file:PATH`, or of a client's key its hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from antiphon.errors import AntiphonError
from antiphon.providers.presets import PRESETS, Preset

Place: TypeAlias = tuple[str | int, ...]
"""Where something stands in the file: names of keys, and numbers of items in lists."""

NO_OVERRIDES: Mapping[str, Any] = MappingProxyType({})
OFFLINE = "offline"
"""The provider that is no host, but answers from within this process."""

_MEBIBYTE = 1024 * 1024
_DAY = 86_400

_BY_FORMAT: Mapping[str, str] = {
    "openai-chat": "compatible",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
"""The row that describes a host of which only the format is known."""

Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=_DAY)]
SomeText: TypeAlias = Annotated[str, Meta(min_length=1)]
ClientSecret: TypeAlias = Annotated[
    str,
    Meta(description='"sha256:…" as `antiphon key new` prints it, or "env:NAME" or "file:PATH" where the key is read.'),
]


class GatewaySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the gateway listens, whom it serves, and its limits."""

    host: Annotated[SomeText, Meta(description="The address it listens on. 0.0.0.0 is every address.")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="The main service. 0 is any free port.")] = 8000
    format_port: Annotated[Port, Meta(description="The format proxy. 0 is any free port.")] = 8181
    client_keys: Annotated[
        tuple[ClientSecret, ...], Meta(description="Keys of clients that may ask for everything. None: loopback only.")
    ] = ()
    allowed_hosts: Annotated[
        tuple[SomeText, ...],
        Meta(
            description="Without client keys: names besides localhost that requests may have in `Host`, without port."
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[SomeText, ...],
        Meta(description='Origins of web pages, such as "http://localhost:3000", that may send requests.'),
    ] = ()
    max_body_bytes: Annotated[
        int, Meta(ge=1024, le=1024 * _MEBIBYTE, description="A larger request is refused with 413.")
    ] = 64 * _MEBIBYTE
    max_buffered_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=1024 * 1024 * _MEBIBYTE,
            description="Request bodies in memory, all requests together. Above it a request is refused with 503.",
        ),
    ] = 512 * _MEBIBYTE
    max_connections: Annotated[int, Meta(ge=1, le=1_000_000, description="How many connections are held at once.")] = (
        2000
    )
    header_seconds: Annotated[Seconds, Meta(description="How long the head of a request may take.")] = 10.0
    body_seconds: Annotated[Seconds, Meta(description="How long the body of a request may take.")] = 60.0
    request_seconds: Annotated[Seconds, Meta(description="How long a request may take altogether.")] = 900.0
    write_seconds: Annotated[
        Seconds, Meta(description="How long a client may take no byte of its response before it is disconnected.")
    ] = 60.0
    hold_seconds: Annotated[
        float, Meta(ge=0, le=600, description="How long a stream waits for its first event before it is passed on.")
    ] = 10.0
    keep_alive_seconds: Annotated[
        Seconds, Meta(description="After so long a silence a stream sends a comment, so that nobody hangs up.")
    ] = 15.0
    serve_unlisted_models: Annotated[
        bool,
        Meta(
            description="Whether `provider/model` names that no [[models]] entry matches are served too. Default false."
        ),
    ] = False
    log: Annotated[Literal["json", "console"], Meta(description="How log lines are written.")] = "console"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Which are written.")] = "info"
    state: Annotated[
        str, Meta(description="The file that keeps stored responses (`previous_response_id`). Empty: memory.")
    ] = ""
    state_seconds: Annotated[int, Meta(ge=1, le=3650 * _DAY, description="How long a response is kept.")] = 30 * _DAY
    state_limit: Annotated[int, Meta(ge=1, le=100_000_000, description="How many responses are kept.")] = 10_000
    fetch_media: Annotated[
        bool, Meta(description="Whether media behind addresses is fetched for providers that want it inline.")
    ] = True
    repair: Annotated[bool, Meta(description="Whether illegal sequences of calls and results are repaired.")] = True
    shared: Annotated[
        str,
        Meta(
            description="The Redis or Valkey server through which workers and hosts share the states of keys and the limits "
            "of clients: redis://host:port/0, rediss://… or unix:/path. Empty: each counts for itself."
        ),
    ] = ""
    shared_password: Annotated[str, Meta(description='Its password: "env:NAME" or "file:PATH" where it is read.')] = ""


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host that answers."""

    name: Annotated[SomeText, Meta(description="What targets call it: `name/model`.")]
    format: Annotated[
        Literal["", "openai-chat", "openai-responses", "anthropic", "gemini"], Meta(description="What it speaks.")
    ] = ""
    preset: Annotated[
        str, Meta(description="The described provider it is like. By default the one of that name, else by the format.")
    ] = ""
    base_url: Annotated[str, Meta(description="As that provider's own SDK takes it. By default the preset's.")] = ""
    keys: Annotated[
        tuple[Annotated[str, Meta(description='"env:NAME" or "file:PATH".')], ...],
        Meta(description="Where its keys are read; they are used in turn. Without them: the variable of its own SDK."),
    ] = ()
    auth: Annotated[
        Literal["", "bearer", "x-api-key", "x-goog-api-key", "api-key"],
        Meta(description="The header that carries the key. By default the preset's."),
    ] = ""
    dialect: Annotated[str, Meta(description="How it differs from OpenAI (format openai-chat).")] = ""
    api_version: Annotated[str, Meta(description="The version in its addresses (Azure).")] = ""
    headers: Annotated[
        dict[str, str], Meta(description='Sent with every request; secret values as "env:NAME" or "file:PATH".')
    ] = {}
    connect_seconds: Annotated[Seconds, Meta(description="How long a connection may take.")] = 10.0
    read_seconds: Annotated[Seconds, Meta(description="How long it may say nothing.")] = 300.0
    total_seconds: Annotated[Seconds | None, Meta(description="How long a call may take, retries included.")] = None
    retries: Annotated[int, Meta(ge=0, le=20, description="How often a call is tried again.")] = 2
    rotations: Annotated[int, Meta(ge=0, le=1000, description="How often a call may change to another key.")] = 8

    @property
    def preset_name(self) -> str:
        """The preset it is like: the one it names, that of its own name, or that of its format; empty where none fits."""
        if self.preset:
            return self.preset
        if self.name == OFFLINE and not self.format:
            return OFFLINE
        row = PRESETS.get(self.name)
        if row is not None and self.format in ("", row.format):
            return self.name
        return _BY_FORMAT.get(self.format, "")

    @property
    def is_offline(self) -> bool:
        """Whether it is no host, but the model that needs no network."""
        return self.preset_name == OFFLINE

    @property
    def row(self) -> Preset:
        """The preset with what these settings change of it; the offline provider has none."""
        row = PRESETS[self.preset_name]
        auth = (self.auth or row.auth) if self.keys else "none"
        return structs.replace(row, auth=auth, dialect=self.dialect or row.dialect)


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name that clients ask for, and who answers."""

    name: Annotated[SomeText, Meta(description="What clients ask for; `*`, `?` and `[…]` match as in file names.")]
    targets: Annotated[
        tuple[Annotated[str, Meta(description="`provider/model`; `provider/*` keeps the name asked for.")], ...],
        Meta(min_length=1, description="Who is asked, each when the one before it failed."),
    ]


class ClientKeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client's key with what it may do."""

    name: Annotated[SomeText, Meta(description="What logs, metrics and limits call it.")]
    key: ClientSecret
    models: Annotated[
        tuple[SomeText, ...], Meta(min_length=1, description="The names it may ask for, as globs. By default all.")
    ] = ("*",)
    requests_per_minute: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None, Meta(description="By default without limit.")
    ] = None
    tokens_per_minute: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000_000)] | None,
        Meta(description="Prompt and answer together. By default without limit."),
    ] = None
    strict: Annotated[
        bool, Meta(description="Whether a request that would be repaired or lose something is refused with 422.")
    ] = False
    admin: Annotated[
        bool, Meta(description="Whether it may read /status, /metrics and the details of /readyz. Default false.")
    ] = False


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of the Antiphon gateway."""

    gateway: GatewaySettings = GatewaySettings()
    providers: tuple[ProviderSettings, ...] = ()
    models: tuple[ModelSettings, ...] = ()
    keys: tuple[ClientKeySettings, ...] = ()


class ConfigProblem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong. `line` and `column` count from 1; 0 is none in particular."""

    file: str
    line: int = 0
    column: int = 0
    key: str = ""
    reason: str

    def __str__(self) -> str:
        where = ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])
        return f"{where}: {self.key}{' ' if self.key else ''}{self.reason}"


class ConfigRefused(AntiphonError):
    """A configuration that cannot be served, with everything that is wrong with it."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = list(problems)
        count = len(self.problems)
        told = f"{count} problems in the configuration" if count > 1 else "the configuration is refused"
        super().__init__("\n  ".join([f"{told}:", *map(str, self.problems)]))


def config_schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "antiphon.toml",
        **msgspec.json.schema(Config),
    }
