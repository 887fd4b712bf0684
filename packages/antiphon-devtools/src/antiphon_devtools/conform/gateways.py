"""The gateways that the suite knows: how to point each at the mock providers, and how each wants to be addressed.

Every configured model is called `conform-FORMAT` or `conform-FORMAT-newer` and is routed to the mock provider of that format
under the name of a real model, so that a gateway applies what it knows of that model.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from antiphon_devtools.conform.case import Case

PORTS = {"openai-chat": 4711, "openai-responses": 4712, "anthropic": 4713, "gemini": 4714, "gemini-interactions": 4715}
PEER_FORMATS = ("openai-chat", "openai-responses", "anthropic", "gemini")
"""The formats that the other gateways translate; the tables that compare gateways have these."""
MODELS = {
    "openai-chat": ("gpt-4o", "gpt-5"),
    "openai-responses": ("gpt-4o", "gpt-5"),
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-7"),
    "gemini": ("gemini-2.5-flash", "gemini-3-pro-preview"),
    "gemini-interactions": ("gemini-2.5-flash", "gemini-3-pro-preview"),
}
"""The models at each provider: the usual one, and the newer one of the group `models`."""

KEY = "sk-conform"


class Gateway(Struct, frozen=True, kw_only=True):
    """How a gateway is addressed. The default is one that takes the configured model names at the usual paths."""

    name: str = ""
    prefix: str = ""
    """What comes before the paths of its endpoints."""
    model_prefix: str = ""
    models: Mapping[str, str] = {}
    """Names of models by provider format, instead of `conform-FORMAT`."""
    clients: tuple[str, ...] | None = None
    upstreams: tuple[str, ...] | None = None
    lacks: str = ""
    """Why other formats are not supported; comes after the name of the format."""
    uses_headers: bool = False
    """Whether the provider is chosen by headers of each request (Portkey)."""

    @property
    def has_newer(self) -> bool:
        return not self.models

    def missing(self, client: str, upstream: str) -> str:
        """Why the gateway has no such endpoint or provider; empty if it has."""
        if self.clients is not None and client not in self.clients:
            return f"no endpoint of the format {client}{self.lacks}"
        if self.upstreams is not None and upstream and upstream not in self.upstreams:
            return f"no provider of the format {upstream} at another address{self.lacks}"
        return ""

    def upstream_model(self, upstream: str, case: Case) -> str:
        return MODELS[upstream][case.model == "newer"]

    def client_model(self, upstream: str, case: Case) -> str:
        """The model that a client names."""
        if upstream in self.models or not upstream:
            return self.models.get(upstream) or next(iter(self.models.values()), "")
        if self.uses_headers:
            return self.upstream_model(upstream, case)
        return f"{self.model_prefix}conform-{upstream}{'-newer' if case.model == 'newer' else ''}"

    def headers(self, upstream: str, ports: Mapping[str, int]) -> dict[str, str]:
        """Headers that choose the provider."""
        if not self.uses_headers:
            return {}
        provider = {"anthropic": "anthropic", "gemini": "google"}.get(upstream, "openai")
        version = "v1beta" if upstream == "gemini" else "v1"
        return {
            "x-portkey-provider": provider,
            "x-portkey-custom-host": f"http://127.0.0.1:{ports[upstream]}/{version}",
            "authorization": f"Bearer {KEY}",
        }


GATEWAYS: dict[str, Gateway] = {
    "antiphon": Gateway(name="antiphon"),
    "litellm": Gateway(name="litellm", clients=PEER_FORMATS, upstreams=PEER_FORMATS),
    "llm-rosetta": Gateway(name="llm-rosetta", clients=PEER_FORMATS, upstreams=PEER_FORMATS),
    "portkey": Gateway(
        name="portkey",
        uses_headers=True,
        clients=("openai-chat", "openai-responses", "anthropic"),
        upstreams=PEER_FORMATS,
    ),
    "tensorzero": Gateway(
        name="tensorzero",
        prefix="/openai",
        model_prefix="tensorzero::model_name::",
        clients=("openai-chat",),
        upstreams=("openai-chat", "openai-responses", "anthropic"),
    ),
    "bifrost": Gateway(name="bifrost", clients=PEER_FORMATS, upstreams=PEER_FORMATS),
}


def setup(name: str, ports: Mapping[str, int]) -> str:
    """The configuration that points a gateway at the mock providers, and the commands that run it and the suite."""
    return _SETUPS[name](ports)


def names(upstream: str) -> list[tuple[str, str]]:
    """The model names of a provider format, each with the model that the provider is asked for."""
    usual, newer = MODELS[upstream]
    return [(f"conform-{upstream}", usual), (f"conform-{upstream}-newer", newer)]


def _antiphon(ports: Mapping[str, int]) -> str:
    lines = [
        "# conform.toml",
        "[gateway]",
        "port = 8000",
        "format_port = 0",
        'client_keys = ["env:CONFORM_KEY"]',
        "",
    ]
    for name, port in ports.items():
        path = "v1beta" if name.startswith("gemini") else "v1"
        lines += [
            "[[providers]]",
            f'name = "{name}"',
            f'format = "{name}"',
            f'base_url = "http://127.0.0.1:{port}/{path}"',
        ]
        lines += ['keys = ["env:CONFORM_KEY"]', "retries = 0", ""]
    for name in ports:
        for model, target in names(name):
            lines += ["[[models]]", f'name = "{model}"', f'targets = ["{name}/{target}"]', ""]
    lines += [f"# CONFORM_KEY={KEY} antiphon serve --config conform.toml"]
    lines += [f"# antiphon conform http://127.0.0.1:8000 --key {KEY}"]
    return "\n".join(lines)


def _litellm(ports: Mapping[str, int]) -> str:
    prefixes = {"openai-chat": "openai/", "openai-responses": "openai/responses/"}
    prefixes |= {"anthropic": "anthropic/", "gemini": "gemini/"}
    lines = ["# conform.yaml", "model_list:"]
    for name in PEER_FORMATS:
        port = ports[name]
        base = f"http://127.0.0.1:{port}" + ("" if name == "anthropic" else "/v1beta" if name == "gemini" else "/v1")
        for model, target in names(name):
            lines += [f"  - model_name: {model}", "    litellm_params:", f"      model: {prefixes[name]}{target}"]
            lines += [f"      api_base: {base}", f"      api_key: {KEY}"]
            lines += ["      use_chat_completions_api: true"] if name == "openai-chat" else []
    lines += ["litellm_settings:", "  drop_params: true", "  modify_params: true", "  num_retries: 0"]
    lines += ["router_settings:", "  num_retries: 0", "  disable_cooldowns: true"]
    lines += ["general_settings:", f"  master_key: {KEY}", ""]
    lines += ["# export LITELLM_LOCAL_MODEL_COST_MAP=true LITELLM_USE_CHAT_COMPLETIONS_URL_FOR_ANTHROPIC_MESSAGES=true"]
    lines += ["# litellm --config conform.yaml --port 4000"]
    lines += [f"# antiphon conform http://127.0.0.1:4000 --gateway litellm --key {KEY}"]
    return "\n".join(lines)


def _rosetta(ports: Mapping[str, int]) -> str:
    kinds = {"openai-chat": "openai_chat", "openai-responses": "openai_responses"}
    kinds |= {"anthropic": "anthropic", "gemini": "google"}
    can = '"capabilities": ["text", "vision", "tools"]'
    providers, models = [], []
    for name in PEER_FORMATS:
        port = ports[name]
        base = f"http://127.0.0.1:{port}" + ("" if name in ("anthropic", "gemini") else "/v1")
        providers.append(f'    "{name}": {{"api_key": "{KEY}", "base_url": "{base}", "type": "{kinds[name]}"}}')
        models += [
            f'    "{model}": {{"provider": "{name}", "upstream_model": "{target}", {can}}}'
            for model, target in names(name)
        ]
    lines = ["// conform.jsonc", "{", '  "providers": {', ",\n".join(providers), "  },", '  "models": {']
    lines += [
        ",\n".join(models),
        "  },",
        '  "server": {"host": "127.0.0.1", "port": 8765, "open_on_no_keys": true}',
        "}",
    ]
    lines += ["// llm-rosetta-gateway --config conform.jsonc"]
    lines += [f"// antiphon conform http://127.0.0.1:8765 --gateway llm-rosetta --key {KEY}"]
    return "\n".join(lines)


def _portkey(ports: Mapping[str, int]) -> str:
    del ports  # they are in the headers
    return "\n".join(
        [
            "# Portkey takes the provider from headers of each request; the suite sends them.",
            "# TRUSTED_CUSTOM_HOSTS=127.0.0.1 npx @portkey-ai/gateway --headless --port=8787",
            f"# antiphon conform http://127.0.0.1:8787 --gateway portkey --key {KEY}",
        ]
    )


def _tensorzero(ports: Mapping[str, int]) -> str:
    lines = [
        "# conform.toml",
        "[gateway]",
        "observability.enabled = false",
        "",
        "[object_storage]",
        'type = "disabled"',
        "",
    ]
    for name in ("openai-chat", "openai-responses", "anthropic"):
        kind = "anthropic" if name == "anthropic" else "openai"
        base = f"http://127.0.0.1:{ports[name]}/v1/" + ("messages" if name == "anthropic" else "")
        for model, target in names(name):
            lines += [f'[models."{model}"]', 'routing = ["mock"]', "", f'[models."{model}".providers.mock]']
            lines += [f'type = "{kind}"', f'model_name = "{target}"', f'api_base = "{base}"']
            lines += ['api_type = "responses"'] if name == "openai-responses" else []
            lines += ['api_key_location = "env::CONFORM_KEY"', ""]
    lines += [f"# CONFORM_KEY={KEY} tensorzero gateway --config-file conform.toml"]
    lines += ["# antiphon conform http://127.0.0.1:3000 --gateway tensorzero"]
    return "\n".join(lines)


def _bifrost(ports: Mapping[str, int]) -> str:
    kinds = {"openai-chat": "openai", "anthropic": "anthropic", "gemini": "gemini"}
    rows = []
    for name, provider in kinds.items():
        models = ", ".join(f'"{target}"' for _, target in names(name))
        rows.append(
            f'    "{provider}": {{"keys": [{{"value": "{KEY}", "models": [{models}], "weight": 1}}],\n'
            f'      "network_config": {{"base_url": "http://127.0.0.1:{ports[name]}", "max_retries": 0}}}}'
        )
    lines = [
        "// config.json",
        "{",
        '  "providers": {',
        ",\n".join(rows),
        "  }",
        "}",
        "// npx @maximhq/bifrost -app-dir .",
    ]
    given = " ".join(f"--model {name}={provider}/{MODELS[name][0]}" for name, provider in kinds.items())
    lines += [f"// antiphon conform http://127.0.0.1:8080 --gateway bifrost {given}"]
    return "\n".join(lines)


_SETUPS = {
    "antiphon": _antiphon,
    "litellm": _litellm,
    "llm-rosetta": _rosetta,
    "portkey": _portkey,
    "tensorzero": _tensorzero,
    "bifrost": _bifrost,
}
