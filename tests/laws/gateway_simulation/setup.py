"""What every world of the gateway law is made of: clients and providers with their keys, the configuration, request bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from msgspec import structs

from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.wire import formats
from antiphon.wire.request import Message, ModelRequest, ToolDefinition
from antiphon_gateway.access.client_keys import hash_key
from laws.gateway_simulation.fault_upstream import Attempt, FaultUpstream
from laws.gateway_simulation.model import CIRCUIT_FAILURES, CIRCUIT_SECONDS, Client, GatewayModel
from laws.gateway_simulation.process import GatewayProcess
from laws.gateway_simulation.steps import MODELS, Ask
from providers.sample_answers import PRESET_OF

PROVIDERS = {
    "chat": ("openai-chat", 3),
    "responses": ("openai-responses", 1),
    "anthropic": ("anthropic", 2),
    "gemini": ("gemini", 1),
    "interactions": ("gemini-interactions", 2),
    "spare": ("openai-chat", 0),
}
"""Each provider's format, and how many keys there are for it. The last of `chat` is configured by a reload only."""
CLIENT_KEYS = {name: f"sk-client-{name}-0123456789abcdef" for name in ("open", "globbed", "few", "thrifty", "added")}
OPERATOR = "sk-client-operator-0123456789abcdef"
WRONG = "sk-client-unknown-key-0123456789abcdef"
_KEY_HEADERS = {"anthropic": "x-api-key", "gemini": "x-goog-api-key", "gemini-interactions": "x-goog-api-key"}
TOKEN = "team-token-7f3a9c51e2"
NOTE = "note-of-the-team-5b1d8e"
CLIENTS = {
    "open": Client(name="open"),
    "globbed": Client(name="globbed", models=("gpt-4-*", "to-*")),
    "few": Client(name="few", requests_per_minute=4),
    "thrifty": Client(name="thrifty", tokens_per_minute=60),
    "added": Client(name="added"),
}
ANSWER = "It rains in Oslo, es regnet, 在下雨. " * 12
LONG_ANSWER = "A long answer of many words. " * 180_000
READ_SECONDS, KEEP_ALIVE_SECONDS = 0.6, 0.25
PATIENCE = 8.0
_WEATHER = ToolDefinition("weather", "The weather.", {"type": "object", "properties": {"city": {"type": "string"}}})


def upstream_key(provider: str, number: int) -> str:
    """A credential of a provider."""
    return f"sk-upstream-{provider}-{number}-fedcba9876543210"


def environment() -> dict[str, str]:
    """What the gateway's process has in its environment."""
    keys = {
        f"UP_{name.upper()}_{number}": upstream_key(name, number)
        for name, (_, count) in PROVIDERS.items()
        for number in range(count)
    }
    return {**keys, "OPERATOR_KEY": OPERATOR, "TEAM_TOKEN": TOKEN}


SECRETS = (*CLIENT_KEYS.values(), OPERATOR, WRONG, TOKEN, NOTE, *environment().values())


def fresh_model(*, has_keys: bool) -> GatewayModel:
    """The model of a gateway that has seen nothing yet."""
    clients = {name: client for name, client in CLIENTS.items() if name != "added"}
    keys = {
        name: [upstream_key(name, number) for number in range(count - (name == "chat"))]
        for name, (_, count) in PROVIDERS.items()
        if count
    }
    return GatewayModel(clients, keys, has_keys)


def change_model(model: GatewayModel, change: str) -> None:
    """Make the change of a reload. A gateway without client keys has no clients to change."""
    if change == "add client" and model.has_keys:
        model.clients["added"] = CLIENTS["added"]
    elif change == "remove client":
        model.clients.pop("added" if "added" in model.clients else "globbed", None)
    elif change == "halve limits":
        few, thrifty = model.clients["few"], model.clients["thrifty"]
        model.clients["few"] = structs.replace(few, requests_per_minute=max(1, (few.requests_per_minute or 0) // 2))
        tokens = max(1, (thrifty.tokens_per_minute or 0) // 2)
        model.clients["thrifty"] = structs.replace(thrifty, tokens_per_minute=tokens)
    elif change == "add upstream key":
        keys = model.upstream_keys["chat"]
        if len(keys) < PROVIDERS["chat"][1]:
            keys.append(upstream_key("chat", len(keys)))


def config_text(model: GatewayModel, upstreams: Mapping[str, FaultUpstream], state: Path) -> str:
    """The configuration that the model describes."""
    lines = [
        "[gateway]\nport = 0\nformat_port = 0\nlog = 'json'\nlog_level = 'debug'\nmax_body_bytes = 4000000",
        f"keep_alive_seconds = {KEEP_ALIVE_SECONDS}\nhold_seconds = 2\nrequest_seconds = 6\nbody_seconds = 3",
        "continue_streams = false",  # what a target adds to another one's text is beyond the model
        f"circuit_failures = {CIRCUIT_FAILURES}\ncircuit_seconds = {CIRCUIT_SECONDS}\nstate = '{state}'",
    ]
    if model.has_keys:
        lines.append("[[keys]]\nname = 'operator'\nkey = 'env:OPERATOR_KEY'\nadmin = true")
        for client in model.clients.values():
            lines.append(f"[[keys]]\nname = '{client.name}'\nkey = '{hash_key(CLIENT_KEYS[client.name])}'")
            lines.append(f"models = {list(client.models)}")
            limits = {field: getattr(client, field) for field in ("requests_per_minute", "tokens_per_minute")}
            lines += [f"{field} = {limit}" for field, limit in limits.items() if limit is not None]
    for name, upstream in upstreams.items():
        keys = [f"env:UP_{name.upper()}_{number}" for number in range(len(model.upstream_keys.get(name, ())))]
        lines.append(f"[[providers]]\nname = '{name}'\npreset = '{PRESET_OF[upstream.format]}'")
        lines.append(f"base_url = '{upstream.base_url}'\nkeys = {keys}\nread_seconds = {READ_SECONDS}")
        lines.append(f"retries = {1 if name == 'responses' else 0}")
        lines.append("headers = { x-team = 'env:TEAM_TOKEN', x-note = 'file:note.txt' }")
    for name, targets in MODELS.items():
        lines.append(f"[[models]]\nname = '{name}'\ntargets = {list(targets)}")
    return "\n".join(lines)


def request_body(step: Ask, mark: str) -> bytes:
    """A request as its client writes it, with a mark in its words."""
    words = f"Is it raining? {mark}" + (" and so on" * 30_000 if step.shape == "large" else "")
    messages = [Message("user", (Text(words),))]
    call = ToolCallRequest("weather", "call_0", '{"city": "Bergen"}')
    if step.shape == "tools":
        result = ToolCallResult.of(call, "rain")
        messages += [Message("assistant", (call,)), Message("tool", (result,))]
    elif step.shape == "broken":
        messages += [Message("assistant", (call,)), Message("user", (Text("Well?"),))]
    request = ModelRequest(
        messages=tuple(messages),
        model=step.model,
        max_output_tokens=500,
        stream=None if step.client == "gemini" else step.streams,
        tools=(_WEATHER,) if step.shape in ("tools", "broken") else (),
    )
    body = formats[step.client].write_request(request).body
    if step.client == "openai-chat" and step.streams:
        body.pop("stream_options", None)
        if step.has_usage:
            body["stream_options"] = {"include_usage": True}
    if step.previous_field:
        body[step.previous_field] = "resp_that_nobody_has"
    return msgspec.json.encode(body)


def credential(client: str, key: str) -> dict[str, str]:
    """The header with the key of a client, where clients of that format put it."""
    secret = CLIENT_KEYS.get(key) or (WRONG if key == "wrong" else "")
    if not secret:
        return {}
    header = _KEY_HEADERS.get(client)
    return {header: secret} if header else bearer(secret)


def bearer(secret: str) -> dict[str, str]:
    """A key as OpenAI's clients send it."""
    return {"authorization": f"Bearer {secret}"}


@contextmanager
def gateway_process(folder: Path) -> Iterator[tuple[GatewayProcess, dict[str, FaultUpstream]]]:
    """The process and the upstreams, for any number of worlds."""
    trace: list[Attempt] = []
    with ExitStack() as stack:
        upstreams = {
            name: FaultUpstream(name, format_name, [upstream_key(name, number) for number in range(count)], trace)
            for name, (format_name, count) in PROVIDERS.items()
        }
        for upstream in upstreams.values():
            stack.enter_context(upstream)
        yield stack.enter_context(GatewayProcess(folder, environment())), upstreams
