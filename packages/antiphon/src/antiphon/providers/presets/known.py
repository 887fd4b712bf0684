"""`PRESETS`: the known providers by name. A new host is a new row, or the row `compatible` with a base URL.

`Preset` explains the fields. No I/O here, and the environment is not read.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from antiphon.errors import UnknownProvider
from antiphon.providers.presets.preset import Preset, PresetSetting

_OPENAI_HEADERS = (("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID"))
_GEMINI_URL = "https://generativelanguage.googleapis.com"
_DASHSCOPE_URL = "https://dashscope.aliyuncs.com/compatible-mode/v1"
_V1 = "/v1/chat/completions"
_ANTHROPIC_HEADERS = (("anthropic-version", "2023-06-01"),)
_ENTRA_VARIABLES = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "IDENTITY_ENDPOINT")
_AWS_REGION = PresetSetting("region", ("AWS_REGION", "AWS_DEFAULT_REGION"), "us-east-1")
_AWS: dict[str, Any] = {"settings": (_AWS_REGION,), "token_source": "aws:"}
_VERTEX: dict[str, Any] = {
    "base_urls": (
        ("^global$", "https://aiplatform.googleapis.com"),
        ("^(us|eu)$", "https://aiplatform.{region}.rep.googleapis.com"),
        ("", "https://{region}-aiplatform.googleapis.com"),
    ),
    "token_source": "google:",
    "serves_only_generation": True,
}
_VERTEX_PATH = "/v1/projects/{project}/locations/{region}/publishers"
_DEPLOYMENT = "/deployments/{model}/chat/completions?api-version={api_version}"


def _row(
    name: str,
    base_url: str = "",
    *,
    keys: str = "",
    urls: str = "",
    models: str = "",
    completions: str = "",
    **more: Any,
) -> Preset:
    """A row. Several variables, or globs of models, are separated by spaces."""
    return Preset(
        name=name,
        base_url=base_url,
        key_variables=tuple(keys.split()),
        base_url_variables=tuple(urls.split()),
        models=tuple(models.split()),
        completions=tuple(completions.split()),
        **more,
    )


def _chat(name: str, base_url: str, variables: str, **more: Any) -> Preset:
    """A host of Chat Completions with a dialect of its name; its variables begin with `variables`."""
    usual = {"keys": f"{variables}_API_KEY", "urls": f"{variables}_BASE_URL", "dialect": name}
    return _row(name, base_url, **{**usual, **more})


def _claude(name: str, base_url: str = "", **more: Any) -> Preset:
    """A host of the Messages API, beside another preset for the same host or cloud."""
    usual = {"format": "anthropic", "path": "/v1/messages", "headers": _ANTHROPIC_HEADERS, "is_alternative": True}
    return _row(name, base_url, **{**usual, **more})


_ROWS = (
    _chat(
        "openai",
        "https://api.openai.com/v1",
        "OPENAI",
        header_variables=_OPENAI_HEADERS,
        models="gpt-* chatgpt-* o1* o3* o4*",
        completions="gpt-3.5-turbo-instruct* davinci-002 babbage-002",
    ),
    _row(
        "openai-responses",
        "https://api.openai.com/v1",
        format="openai-responses",
        path="/responses",
        keys="OPENAI_API_KEY",
        urls="OPENAI_BASE_URL",
        header_variables=_OPENAI_HEADERS,
        models="codex-* *-codex *-deep-research",
    ),
    _claude(
        "anthropic",
        "https://api.anthropic.com",
        auth="x-api-key",
        keys="ANTHROPIC_API_KEY",
        bearer_variables=("ANTHROPIC_AUTH_TOKEN",),
        urls="ANTHROPIC_BASE_URL",
        models="claude-*",
        is_alternative=False,
    ),
    _row(
        "gemini",
        _GEMINI_URL,
        format="gemini",
        path="/v1beta/models/{model}:streamGenerateContent?alt=sse",
        auth="x-goog-api-key",
        keys="GOOGLE_API_KEY GEMINI_API_KEY",
        urls="GOOGLE_GEMINI_BASE_URL",
        models="gemini-* gemma-*",
    ),
    _row(
        "gemini-interactions",
        _GEMINI_URL,
        format="gemini-interactions",
        path="/v1beta/interactions",
        auth="x-goog-api-key",
        headers=(("api-revision", "2026-05-20"),),
        keys="GOOGLE_API_KEY GEMINI_API_KEY",
        urls="GOOGLE_GEMINI_BASE_URL",
        models="deep-research-* antigravity-*",
    ),
    _row(
        "azure-openai",
        base_urls=(("", "https://{resource}.openai.azure.com"),),
        settings=(PresetSetting("resource", ("AZURE_OPENAI_RESOURCE",), "my-resource"),),
        path=f"/openai{_DEPLOYMENT}",
        paths=(
            (r"/openai/v1$", "/chat/completions"),
            (r"/openai/deployments/[^/]+$", "/chat/completions?api-version={api_version}"),
            (r"/openai$", _DEPLOYMENT),
        ),
        auth="api-key",
        dialect="azure",
        keys="AZURE_OPENAI_API_KEY",
        bearer_variables=("AZURE_OPENAI_AD_TOKEN",),
        urls="AZURE_OPENAI_ENDPOINT",
        api_version="2024-10-21",
        api_version_variables=("OPENAI_API_VERSION",),
        token_source="entra:",
        token_variables=_ENTRA_VARIABLES,
        token_scope="https://cognitiveservices.azure.com/.default",
    ),
    _chat("vllm", "http://localhost:8000/v1", "VLLM", completions="*", needs_key=False),
    _chat("ollama", "http://localhost:11434", "OLLAMA", urls="OLLAMA_HOST", path=_V1, completions="*", needs_key=False),
    _chat("lmstudio", "http://localhost:1234/v1", "LMSTUDIO", completions="*", needs_key=False),
    _chat(
        "llamacpp",
        "http://localhost:8080",
        "LLAMACPP",
        keys="LLAMA_API_KEY",
        path=_V1,
        completions="*",
        needs_key=False,
    ),
    _chat("volcengine", "https://ark.cn-beijing.volces.com/api/v3", "ARK", models="doubao-*"),
    _chat(
        "codebuddy",
        "https://www.codebuddy.ai",
        "CODEBUDDY",
        path="/v2/chat/completions",
        headers=(("X-Requested-With", "XMLHttpRequest"), ("X-Product", "SaaS")),
        streams_only=True,  # else {"code": 11101, "msg": "Non-stream chat request is currently not supported"}
        models_path="/v3/config",
        known_models=("auto-chat",),  # the name that its own clients send; the host chooses the model
    ),
    _chat("deepseek", "https://api.deepseek.com", "DEEPSEEK", models="deepseek-*"),
    _chat(
        "mistral",
        "https://api.mistral.ai",
        "MISTRAL",
        path=_V1,
        models="mistral-* ministral-* magistral-* codestral-* devstral-* pixtral-*",
    ),
    _chat("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER"),
    _chat("groq", "https://api.groq.com", "GROQ", path="/openai/v1/chat/completions"),
    _chat("xai", "https://api.x.ai/v1", "XAI", models="grok-*"),
    _chat("zai", "https://api.z.ai/api/paas/v4", "ZAI", models="glm-*"),
    _chat("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT", models="kimi-* moonshot-*"),
    _chat("alibaba", _DASHSCOPE_URL, "DASHSCOPE", models="qwen-* qwen2* qwen3* qwq-*"),
    _row("gemini-openai", f"{_GEMINI_URL}/v1beta/openai", dialect="google", keys="GEMINI_API_KEY GOOGLE_API_KEY"),
    _chat("together", "https://api.together.xyz/v1", "TOGETHER"),
    _chat("cerebras", "https://api.cerebras.ai", "CEREBRAS", path=_V1),
    _chat(
        "perplexity",
        "https://api.perplexity.ai",
        "PERPLEXITY",
        keys="PERPLEXITY_API_KEY PPLX_API_KEY",
        models="sonar sonar-*",
    ),
    _row("huggingface", "https://router.huggingface.co/v1", dialect="huggingface", keys="HF_TOKEN"),
    _row("copilot", "https://api.githubcopilot.com", dialect="copilot", keys="GITHUB_COPILOT_TOKEN"),
    _claude(
        "deepseek-anthropic",
        "https://api.deepseek.com/anthropic",
        auth="x-api-key",
        dialect="deepseek",
        keys="DEEPSEEK_API_KEY",
    ),
    _claude("moonshot-anthropic", "https://api.moonshot.ai/anthropic", dialect="moonshot", keys="MOONSHOT_API_KEY"),
    _claude("zai-anthropic", "https://api.z.ai/api/anthropic", keys="ZAI_API_KEY"),
    _claude(
        "minimax",
        "https://api.minimax.io/anthropic",
        dialect="minimax",
        keys="MINIMAX_API_KEY",
        urls="MINIMAX_BASE_URL",
        models="MiniMax-*",
        is_alternative=False,
    ),
    _claude(
        "azure-anthropic",
        base_urls=(("", "https://{resource}.services.ai.azure.com/anthropic"),),
        settings=(PresetSetting("resource", ("ANTHROPIC_FOUNDRY_RESOURCE",), "my-resource"),),
        auth="x-api-key",
        keys="ANTHROPIC_FOUNDRY_API_KEY",
        urls="ANTHROPIC_FOUNDRY_BASE_URL",
        token_source="entra:",
        token_variables=_ENTRA_VARIABLES,
        token_scope="https://ai.azure.com/.default",
    ),
    _row(
        "vertex",
        format="gemini",
        settings=(
            PresetSetting("project", ("GOOGLE_CLOUD_PROJECT",), "my-project"),
            PresetSetting("region", ("GOOGLE_CLOUD_LOCATION", "CLOUD_ML_REGION"), "us-central1", "global"),
        ),
        path=_VERTEX_PATH + "/google/models/{model}:streamGenerateContent?alt=sse",
        other_presets=(("claude*", "vertex-anthropic"),),
        urls="GOOGLE_VERTEX_BASE_URL",
        is_alternative=True,
        **_VERTEX,
    ),
    _claude(
        "vertex-anthropic",
        settings=(
            PresetSetting("project", ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"), "my-project"),
            PresetSetting("region", ("CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION"), "us-east5", "global"),
        ),
        path=_VERTEX_PATH + "/anthropic/models/{model}:streamRawPredict",
        headers=(),
        other_presets=(("gemini*", "vertex"),),
        whole_call=(":streamRawPredict", ":rawPredict"),
        urls="ANTHROPIC_VERTEX_BASE_URL",
        host="vertex",
        **_VERTEX,
    ),
    _claude(
        "bedrock",
        base_urls=(
            ("^cn-", "https://bedrock-runtime.{region}.amazonaws.com.cn"),
            ("", "https://bedrock-runtime.{region}.amazonaws.com"),
        ),
        path="/model/{model}/invoke-with-response-stream",
        headers=(),
        whole_call=("/invoke-with-response-stream", "/invoke"),
        keys="AWS_BEARER_TOKEN_BEDROCK",
        urls="ANTHROPIC_BEDROCK_BASE_URL",
        service="bedrock",
        host="bedrock",
        serves_only_generation=True,
        **_AWS,
    ),
    _claude(
        "bedrock-mantle",
        base_urls=(("", "https://bedrock-mantle.{region}.api.aws/anthropic"),),
        keys="AWS_BEARER_TOKEN_BEDROCK ANTHROPIC_AWS_API_KEY",
        urls="ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
        service="bedrock-mantle",
        **_AWS,
    ),
    _claude(
        "anthropic-aws",
        base_urls=(("", "https://aws-external-anthropic.{region}.api.aws"),),
        settings=(_AWS_REGION, PresetSetting("workspace", ("ANTHROPIC_AWS_WORKSPACE_ID",), "wrkspc_…")),
        auth="x-api-key",
        headers=(*_ANTHROPIC_HEADERS, ("anthropic-workspace-id", "{workspace}")),
        keys="ANTHROPIC_AWS_API_KEY",
        urls="ANTHROPIC_AWS_BASE_URL",
        token_source="aws:",
        service="aws-external-anthropic",
    ),
    _row("compatible", dialect="compatible", needs_key=False),
)

_by_name = {preset.name: preset for preset in _ROWS}
PRESETS: Mapping[str, Preset] = MappingProxyType(_by_name)
"""Every known provider by name."""


def add_preset(preset: Preset) -> None:
    """Make a host of your own known by its name, as those in the list are: to the library, and in antiphon.toml."""
    _by_name[preset.name] = preset


def remove_preset(name: str) -> None:
    """Forget a host that was made known."""
    del _by_name[name]


def enabled_presets(environ: Mapping[str, str]) -> dict[str, str]:
    """The providers that an environment sets up, each with the variable that says so."""
    enabled: dict[str, str] = {}
    for name, preset in PRESETS.items():
        has_address = preset.base_url or preset.read_variables(environ).base_url
        if has_address and not preset.is_alternative and (variable := preset.enabling_variable(environ)):
            enabled[name] = variable
    return enabled


def get_preset(name: str) -> Preset:
    """The preset of that name."""
    try:
        return PRESETS[name]
    except KeyError:
        near = difflib.get_close_matches(name, [known for known, row in PRESETS.items() if not row.is_alternative], n=3)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UnknownProvider(
            f"unknown provider {name!r}.{meant} Known: {', '.join(PRESETS)}; "
            "for any other host with Chat Completions use 'compatible' and a base_url"
        ) from None
