"""`Config`: every key of `antiphon.toml` as a typed value.

The structs are the only description of the file: keys, types, bounds and defaults. `schema` checks files against them and
`config_schema` turns them into a JSON Schema for editors. What types cannot express is in `checks`.

A configuration holds no secret (law L10), only a reference (`env:NAME`, `file:PATH`) or, for a client key, its hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, structs

from antiphon.http.server.application import Limits
from antiphon.prices.table import PriceOverride
from antiphon.providers.presets import PRESETS, Preset
from antiphon.providers.routes import TargetOrder
from antiphon.wire.capabilities import CapabilityOverride
from antiphon.wire.request import CachePrompt

ConfigPath: TypeAlias = tuple[str | int, ...]
"""A path in the file: names of keys, and indexes of list items."""

NO_OVERRIDES: Mapping[str, Any] = MappingProxyType({})
OFFLINE = "offline"
"""The provider that has no host: it answers inside this process."""

_MEBIBYTE = 1024 * 1024
_LIMITS = Limits()
_DAY = 86_400

Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=_DAY)]
SomeText: TypeAlias = Annotated[str, Meta(min_length=1)]
FilePath: TypeAlias = Annotated[str, Meta(extra={"holds": "path"})]
"""A path, from the folder of the configuration on. What a text `holds` tells `PathResolver` what to make of it."""
CertificateFile: TypeAlias = Annotated[str, Meta(extra={"holds": "certificate"})]
Reference: TypeAlias = Annotated[str, Meta(extra={"holds": "reference"})]
"""Where a secret is, if it begins with `env:` or `file:`."""
SecretReference: TypeAlias = Annotated[Reference, Meta(min_length=1)]
ClientSecret: TypeAlias = Annotated[
    SecretReference,
    Meta(description='"sha256:…" as `antiphon key new` prints it, or "env:NAME" or "file:PATH" where the key is read.'),
]


class GatewaySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the gateway listens, whom it serves, and its limits."""

    host: Annotated[SomeText, Meta(description="Address to listen on. 0.0.0.0 is every address.")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="Port of the main service. 0 is any free port.")] = 8000
    format_port: Annotated[Port, Meta(description="Port of the format proxy. 0 is any free port.")] = 8181
    tls_cert: Annotated[
        CertificateFile,
        Meta(description="PEM file with the certificate and its chain. Both ports then serve https only."),
    ] = ""
    tls_key: Annotated[
        CertificateFile, Meta(description="PEM file with the key of the certificate, without a password.")
    ] = ""
    client_keys: Annotated[
        tuple[ClientSecret, ...], Meta(description="Keys of clients that may use every model. None: loopback only.")
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
        int, Meta(ge=1024, le=1024 * _MEBIBYTE, description="Maximum size of a request body; above it 413.")
    ] = _LIMITS.max_body_bytes
    max_buffered_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=1024 * 1024 * _MEBIBYTE,
            description="Maximum size of everything that waits in memory: request bodies, WebSocket messages, background "
            "answers; above it 503. One of several clients may use half of it.",
        ),
    ] = _LIMITS.max_buffered_bytes
    max_connections: Annotated[int, Meta(ge=1, le=1_000_000, description="Maximum number of open connections.")] = (
        _LIMITS.max_connections
    )
    header_seconds: Annotated[Seconds, Meta(description="Timeout for the head of a request.")] = _LIMITS.header_seconds
    body_seconds: Annotated[Seconds, Meta(description="Timeout for the body of a request.")] = _LIMITS.body_seconds
    request_seconds: Annotated[Seconds, Meta(description="Timeout for a whole request.")] = _LIMITS.request_seconds
    write_seconds: Annotated[Seconds, Meta(description="Timeout for a client that takes no byte of its response.")] = (
        _LIMITS.write_seconds
    )
    hold_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=600,
            description="How long a client waits for the first visible output of a stream until it gets the head and "
            "keep-alives; a fallback is possible all the same. 0: a stream is passed on from its head on, without fallback.",
        ),
    ] = 10.0
    first_token_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Timeout for the headers and the first visible output of a stream, after which the next target "
            "is tried. Without another target, and for answers that are not streamed, read_seconds applies. Default: 10, "
            "60 where the model thinks before it answers, and a second more for each 10,000 tokens of the prompt."
        ),
    ] = None
    stall_seconds: Annotated[
        Seconds,
        Meta(
            description="Silence in the midst of a stream after which another target finishes it, if one can "
            "(continue_streams). Otherwise read_seconds applies."
        ),
    ] = 30.0
    continue_streams: Annotated[
        bool,
        Meta(
            description="Whether another target finishes a text whose stream broke after its first output: from the shown "
            "text on, if the model can continue it, or if its own answer begins with that text. Default true."
        ),
    ] = True
    circuit_failures: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Failures of a target in a row (errors 5xx, timeouts, broken connections) after which its "
            "circuit opens: requests skip it while they have another target. 0: never.",
        ),
    ] = 5
    circuit_seconds: Annotated[
        Seconds, Meta(description="How long a circuit stays open until one request probes the target.")
    ] = 5.0
    circuit_max_seconds: Annotated[
        Seconds, Meta(description="Each probe that fails doubles that time, up to this one.")
    ] = 20.0
    keep_alive_seconds: Annotated[Seconds, Meta(description="Silence after which a stream sends a keep-alive.")] = 15.0
    serve_unlisted_models: Annotated[
        bool,
        Meta(
            description="Whether `provider/model` names that no [[models]] entry matches are served too. Default false."
        ),
    ] = False
    log: Annotated[Literal["json", "console"], Meta(description="Format of log lines.")] = "console"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Lowest level that is logged.")
    ] = "info"
    state: Annotated[
        FilePath, Meta(description="File for stored responses (`previous_response_id`). Empty: memory.")
    ] = ""
    state_seconds: Annotated[int, Meta(ge=1, le=3650 * _DAY, description="Retention time of stored responses.")] = (
        30 * _DAY
    )
    state_limit: Annotated[int, Meta(ge=1, le=100_000_000, description="Maximum number of stored responses.")] = 10_000
    state_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=1024 * 1024 * _MEBIBYTE,
            description="Maximum size of stored responses and conversations; one of several clients may use half of it. "
            "0: any size in a file, half of max_buffered_bytes in memory.",
        ),
    ] = 0
    fetch_media: Annotated[
        bool, Meta(description="Whether media URLs are fetched for providers that need the data inline.")
    ] = True
    repair: Annotated[bool, Meta(description="Whether illegal sequences of calls and results are repaired.")] = True
    shared: Annotated[
        str,
        Meta(
            description="Redis or Valkey server through which workers and hosts share key health and rate limits: "
            "redis://host:port/0, rediss://… or unix:/path. Empty: each counts on its own."
        ),
    ] = ""
    shared_password: Annotated[Reference, Meta(description='Password of that server: "env:NAME" or "file:PATH".')] = ""

    @property
    def most_state_bytes(self) -> int:
        """The maximum size of what is stored; 0: any."""
        return self.state_bytes or (0 if self.state else self.max_buffered_bytes // 2)

    @property
    def limits(self) -> Limits:
        """The limits of the ports."""
        named = {name: getattr(self, name) for name in Limits.__struct_fields__ if name in self.__struct_fields__}
        return Limits(**named, ping_seconds=self.keep_alive_seconds)


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host that answers."""

    name: Annotated[SomeText, Meta(description="Name in targets: `name/model`.")]
    format: Annotated[
        Literal["", "openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions"],
        Meta(description="API format."),
    ] = ""
    preset: Annotated[str, Meta(description="Preset to start from. Default: the one of that name, else by format.")] = (
        ""
    )
    base_url: Annotated[
        str, Meta(description="Base URL as the provider's own SDK takes it. Default: the preset's.")
    ] = ""
    keys: Annotated[
        tuple[
            Annotated[
                SecretReference,
                Meta(description='"env:NAME", "file:PATH", "command:PROGRAM …", "entra:…", "google:…" or "aws:…".'),
            ],
            ...,
        ],
        Meta(description="API keys, used in turn. Default: the variable of the provider's own SDK."),
    ] = ()
    auth: Annotated[
        Literal["", "bearer", "x-api-key", "x-goog-api-key", "api-key"],
        Meta(description="Header that carries the key. Default: the preset's."),
    ] = ""
    dialect: Annotated[str, Meta(description="Dialect of openai-chat or anthropic.")] = ""
    api_version: Annotated[str, Meta(description="API version in the URL (Azure).")] = ""
    region: Annotated[str, Meta(description="Region of the host (AWS, Vertex AI).")] = ""
    project: Annotated[str, Meta(description="Project of Google Cloud (Vertex AI).")] = ""
    resource: Annotated[str, Meta(description="Name of the resource (Azure).")] = ""
    workspace: Annotated[str, Meta(description="Workspace of the Claude Platform on AWS.")] = ""
    headers: Annotated[
        dict[str, Reference],
        Meta(description='Headers sent with every request; secret values as "env:NAME" or "file:PATH".'),
    ] = {}
    embedded_calls: Annotated[
        tuple[SomeText, ...],
        Meta(description="Models, as globs, whose tool calls are also read from their text. Default: none."),
    ] = ()
    completions: Annotated[
        tuple[SomeText, ...],
        Meta(
            description="Models, as globs, that the host serves at /completions too: such requests pass unchanged. "
            "Default: the preset's."
        ),
    ] = ()
    pass_through: Annotated[
        tuple[
            Literal["*", "files", "uploads", "batches", "images", "audio", "moderations", "vector_stores", "rerank"],
            ...,
        ],
        Meta(
            description="Endpoints whose requests are passed on to this provider, where several could serve them. "
            "Default: none; the only provider with the client's API serves them."
        ),
    ] = ()
    streams_only: Annotated[
        bool, Meta(description="The host only streams; other clients get its answer assembled. Default: the preset's.")
    ] = False
    reasoning_as_text: Annotated[
        bool, Meta(description="Send readable reasoning of other providers as labelled text instead of dropping it.")
    ] = False
    cache_prompt: Annotated[
        CachePrompt,
        Meta(
            description="Whether requests that are translated to Anthropic's format get cache breakpoints, so that Claude's "
            'prompt cache works for clients of other APIs: true or "5m" (five minutes), "1h", false, or "auto" (five minutes, '
            "where the request has tools or more than one message). Requests in Anthropic's own format are never changed."
        ),
    ] = "auto"
    connect_seconds: Annotated[Seconds, Meta(description="Timeout for connecting.")] = 10.0
    read_seconds: Annotated[Seconds, Meta(description="Timeout between two reads.")] = 300.0
    first_token_seconds: Annotated[
        Seconds | None, Meta(description="As in [gateway], for this provider. Default: that of [gateway].")
    ] = None
    total_seconds: Annotated[Seconds | None, Meta(description="Timeout for a call including retries.")] = None
    retries: Annotated[int, Meta(ge=0, le=20, description="Maximum number of retries per call.")] = 2
    rotations: Annotated[int, Meta(ge=0, le=1000, description="Maximum number of key changes per call.")] = 8

    @property
    def preset_name(self) -> str:
        """The preset it is based on: the one it names, that of its own name, or that of its format; empty if there is none."""
        if self.preset:
            return self.preset
        if self.name == OFFLINE and not self.format:
            return OFFLINE
        row = PRESETS.get(self.name)
        if row is not None and self.format in ("", row.format):
            return self.name
        return "compatible" if self.format == "openai-chat" else self.format

    @property
    def is_offline(self) -> bool:
        """Whether it is the offline model, which needs no network."""
        return self.preset_name == OFFLINE

    @property
    def effective_preset(self) -> Preset:
        """The preset with the changes of these settings; the offline provider has none."""
        row = PRESETS[self.preset_name]
        auth = (self.auth or row.auth) if self.keys else "none"
        completions, streams_only = self.completions or row.completions, self.streams_only or row.streams_only
        changed = structs.replace(
            row, auth=auth, dialect=self.dialect or row.dialect, completions=completions, streams_only=streams_only
        )
        return changed.with_settings(self.host_settings) if row.settings else changed

    @property
    def host_settings(self) -> dict[str, str]:
        """What is set of the settings that only hosts in a cloud have."""
        given = {"region": self.region, "project": self.project, "resource": self.resource, "workspace": self.workspace}
        return {name: value for name, value in given.items() if value}


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name that clients ask for, and who answers."""

    name: Annotated[
        SomeText, Meta(description="Model name that clients request; `*`, `?` and `[…]` match as in file names.")
    ]
    targets: Annotated[
        tuple[Annotated[str, Meta(description="`provider/model`; `provider/*` keeps the requested name.")], ...],
        Meta(min_length=1, description="Targets, in order; each is used when the one before it failed."),
    ]
    order: Annotated[
        TargetOrder,
        Meta(
            description="Which target is asked first: the first one listed, one by its weight, or the fastest (by the "
            "time to the first output of its last answers). The others follow as fallbacks. Default: listed."
        ),
    ] = "listed"
    weights: Annotated[
        tuple[Annotated[float, Meta(ge=0, le=1_000_000)], ...],
        Meta(description='A weight for each target, for order = "weighted". Default: all the same.'),
    ] = ()
    cache_prompt: Annotated[
        CachePrompt | None, Meta(description="As in [[providers]], for this model. Default: that of the provider.")
    ] = None


Dollars: TypeAlias = Annotated[float, Meta(gt=0, le=1_000_000_000)]
TokenLimit: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]


class KeyRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client may do and use: the same for keys in the file and for keys that `/admin/keys` creates."""

    models: Annotated[
        tuple[SomeText, ...], Meta(min_length=1, description="Models it may use, as globs. Default: all.")
    ] = ("*",)
    requests_per_minute: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None, Meta(description="Requests per minute. Default: unlimited.")
    ] = None
    tokens_per_minute: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000_000)] | None,
        Meta(description="Prompt and completion tokens per minute. Default: unlimited."),
    ] = None
    tokens_per_day: Annotated[
        TokenLimit | None, Meta(description="Tokens per calendar day (UTC). Default: unlimited.")
    ] = None
    tokens_per_month: Annotated[
        TokenLimit | None, Meta(description="Tokens per calendar month (UTC). Default: unlimited.")
    ] = None
    budget_per_day: Annotated[
        Dollars | None, Meta(description="US dollars per calendar day (UTC). Default: unlimited.")
    ] = None
    budget_per_month: Annotated[
        Dollars | None, Meta(description="US dollars per calendar month (UTC). Default: unlimited.")
    ] = None
    expires: Annotated[
        datetime | None,
        Meta(
            description="When the key stops being accepted; without a zone it is UTC, a date is 00:00. Default: never."
        ),
    ] = None
    strict: Annotated[
        bool, Meta(description="Whether requests that would need repairs or lose fields are refused with 422.")
    ] = False
    admin: Annotated[
        bool,
        Meta(description="Whether it may use /admin/, /status, /metrics and the details of /readyz. Default false."),
    ] = False


class ClientKeySettings(KeyRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client's key with what it may do."""

    name: Annotated[SomeText, Meta(description="Name in logs, metrics and limits.")]
    key: ClientSecret


class ChatPageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chat page of the gateway."""

    max_rounds: Annotated[int, Meta(ge=1, le=1000, description="Rounds of tool calls in a turn.")] = 5
    max_errors: Annotated[
        int, Meta(ge=1, le=1000, description="Rounds in a row in which no tool call succeeds, after which a turn ends.")
    ] = 2
    max_seconds: Annotated[Seconds | None, Meta(description="Time limit of a turn. Default: none.")] = None
    embedded_calls: Annotated[
        str,
        Meta(
            description="Tool calls in the model's text: off, on, prompt, or auto (closed tags; prompt for models "
            "without tools); by model: 'ollama/*=prompt'."
        ),
    ] = "auto"
    token_limit: Annotated[
        int,
        Meta(
            ge=-1,
            description="Summarise earlier turns above so many tokens. 0: 80 % of the model's context window; -1: never.",
        ),
    ] = 0

    memory_tool: Annotated[
        bool, Meta(description="Whether the model may read and edit its notebook. Default false.")
    ] = False


class LedgerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The usage ledger: a row for each request to a provider."""

    enabled: Annotated[bool, Meta(description="Whether usage is recorded. Default true.")] = True
    address: Annotated[
        Annotated[str, Meta(extra={"holds": "address"})],
        Meta(
            description="Path of an SQLite file, postgresql://user@host/database without a password, or where it is read: "
            '"env:NAME" or "file:PATH". Default: ledger.db beside the file of gateway.state, else in the user\'s data folder.'
        ),
    ] = ""
    retention_days: Annotated[
        Annotated[int, Meta(ge=1, le=36_500)] | None,
        Meta(description="Days after which single rows are deleted; sums per day stay. Default: never."),
    ] = None


class CacheDoctorSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cache doctor: what breaks the prompt caches of providers."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether each request is compared with the one before it in its conversation; hashes of prompts "
            "are then kept in memory. Default false."
        ),
    ] = False
    normalise: Annotated[
        tuple[Literal["clock", "request-id", "billing-header"], ...],
        Meta(
            description="Kinds of lines in instructions that change with every request and are made stable before it is "
            "sent; each change is reported as a loss. Default: none."
        ),
    ] = ()


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of the Antiphon gateway."""

    gateway: GatewaySettings = GatewaySettings()
    chat: ChatPageSettings = ChatPageSettings()
    providers: tuple[ProviderSettings, ...] = ()
    models: tuple[ModelSettings, ...] = ()
    keys: tuple[ClientKeySettings, ...] = ()
    capabilities: tuple[CapabilityOverride, ...] = ()
    prices: tuple[PriceOverride, ...] = ()
    ledger: LedgerSettings = LedgerSettings()
    cache_doctor: CacheDoctorSettings = CacheDoctorSettings()


def config_schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "antiphon.toml",
        **msgspec.json.schema(Config),
    }
