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
_ANTHROPIC_HEADERS = (("anthropic-version", "2023-06-01"),)
_ENTRA_VARIABLES = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "IDENTITY_ENDPOINT")
_AWS_REGION = PresetSetting("region", ("AWS_REGION", "AWS_DEFAULT_REGION"), "us-east-1")
_VERTEX_URLS = (
    ("^global$", "https://aiplatform.googleapis.com"),
    ("^(us|eu)$", "https://aiplatform.{region}.rep.googleapis.com"),
    ("", "https://{region}-aiplatform.googleapis.com"),
)
_VERTEX_PATH = "/v1/projects/{project}/locations/{region}/publishers"
_DEPLOYMENT = "/deployments/{model}/chat/completions?api-version={api_version}"


def _chat_host(name: str, base_url: str, variables: str, **more: Any) -> Preset:
    """A host of Chat Completions with a dialect of its name, and variables that begin with `variables`: `…_API_KEY` and
    `…_BASE_URL`."""
    keys, urls = (f"{variables}_API_KEY",), (f"{variables}_BASE_URL",)
    return Preset(name=name, base_url=base_url, dialect=name, key_variables=keys, base_url_variables=urls, **more)


_ROWS = (
    _chat_host(
        "openai",
        "https://api.openai.com/v1",
        "OPENAI",
        header_variables=_OPENAI_HEADERS,
        models=("gpt-*", "chatgpt-*", "o1*", "o3*", "o4*"),
        completions=("gpt-3.5-turbo-instruct*", "davinci-002", "babbage-002"),
    ),
    Preset(
        name="openai-responses",
        format="openai-responses",
        base_url="https://api.openai.com/v1",
        path="/responses",
        key_variables=("OPENAI_API_KEY",),
        base_url_variables=("OPENAI_BASE_URL",),
        header_variables=_OPENAI_HEADERS,
        models=("codex-*", "*-codex", "*-deep-research"),
    ),
    Preset(
        name="anthropic",
        format="anthropic",
        base_url="https://api.anthropic.com",
        path="/v1/messages",
        auth="x-api-key",
        headers=_ANTHROPIC_HEADERS,
        key_variables=("ANTHROPIC_API_KEY",),
        bearer_variables=("ANTHROPIC_AUTH_TOKEN",),
        base_url_variables=("ANTHROPIC_BASE_URL",),
        models=("claude-*",),
    ),
    Preset(
        name="gemini",
        format="gemini",
        base_url="https://generativelanguage.googleapis.com",
        path="/v1beta/models/{model}:streamGenerateContent?alt=sse",
        auth="x-goog-api-key",
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        base_url_variables=("GOOGLE_GEMINI_BASE_URL",),
        models=("gemini-*", "gemma-*"),
    ),
    Preset(
        name="gemini-interactions",
        format="gemini-interactions",
        base_url="https://generativelanguage.googleapis.com",
        path="/v1beta/interactions",
        auth="x-goog-api-key",
        headers=(("api-revision", "2026-05-20"),),
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        base_url_variables=("GOOGLE_GEMINI_BASE_URL",),
        models=("deep-research-*", "antigravity-*"),
    ),
    Preset(
        name="azure-openai",
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
        key_variables=("AZURE_OPENAI_API_KEY",),
        bearer_variables=("AZURE_OPENAI_AD_TOKEN",),
        base_url_variables=("AZURE_OPENAI_ENDPOINT",),
        api_version="2024-10-21",
        api_version_variables=("OPENAI_API_VERSION",),
        token_source="entra:",
        token_variables=_ENTRA_VARIABLES,
        token_scope="https://cognitiveservices.azure.com/.default",
    ),
    _chat_host("vllm", "http://localhost:8000/v1", "VLLM", completions=("*",), needs_key=False),
    Preset(
        name="ollama",
        base_url="http://localhost:11434",
        path="/v1/chat/completions",
        dialect="ollama",
        key_variables=("OLLAMA_API_KEY",),
        base_url_variables=("OLLAMA_HOST",),
        completions=("*",),
        needs_key=False,
    ),
    _chat_host("lmstudio", "http://localhost:1234/v1", "LMSTUDIO", completions=("*",), needs_key=False),
    Preset(
        name="llamacpp",
        base_url="http://localhost:8080",
        path="/v1/chat/completions",
        dialect="llamacpp",
        key_variables=("LLAMA_API_KEY",),
        base_url_variables=("LLAMACPP_BASE_URL",),
        completions=("*",),
        needs_key=False,
    ),
    _chat_host("volcengine", "https://ark.cn-beijing.volces.com/api/v3", "ARK", models=("doubao-*",)),
    Preset(
        name="codebuddy",
        base_url="https://www.codebuddy.ai",
        path="/v2/chat/completions",
        headers=(("X-Requested-With", "XMLHttpRequest"), ("X-Product", "SaaS")),
        dialect="codebuddy",
        key_variables=("CODEBUDDY_API_KEY",),
        base_url_variables=("CODEBUDDY_BASE_URL",),
        streams_only=True,  # else {"code": 11101, "msg": "Non-stream chat request is currently not supported"}
        models_path="/v3/config",
        known_models=("auto-chat",),  # the name that its own clients send; the host chooses the model
    ),
    _chat_host("deepseek", "https://api.deepseek.com", "DEEPSEEK", models=("deepseek-*",)),
    _chat_host(
        "mistral",
        "https://api.mistral.ai",
        "MISTRAL",
        path="/v1/chat/completions",
        models=("mistral-*", "ministral-*", "magistral-*", "codestral-*", "devstral-*", "pixtral-*"),
    ),
    _chat_host("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER"),
    _chat_host("groq", "https://api.groq.com", "GROQ", path="/openai/v1/chat/completions"),
    _chat_host("xai", "https://api.x.ai/v1", "XAI", models=("grok-*",)),
    _chat_host("zai", "https://api.z.ai/api/paas/v4", "ZAI", models=("glm-*",)),
    _chat_host("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT", models=("kimi-*", "moonshot-*")),
    _chat_host(
        "alibaba",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE",
        models=("qwen-*", "qwen2*", "qwen3*", "qwq-*"),
    ),
    Preset(
        name="gemini-openai",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        dialect="google",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    _chat_host("together", "https://api.together.xyz/v1", "TOGETHER"),
    _chat_host("cerebras", "https://api.cerebras.ai", "CEREBRAS", path="/v1/chat/completions"),
    Preset(
        name="perplexity",
        base_url="https://api.perplexity.ai",
        dialect="perplexity",
        key_variables=("PERPLEXITY_API_KEY", "PPLX_API_KEY"),
        base_url_variables=("PERPLEXITY_BASE_URL",),
        models=("sonar", "sonar-*"),
    ),
    Preset(
        name="huggingface",
        base_url="https://router.huggingface.co/v1",
        dialect="huggingface",
        key_variables=("HF_TOKEN",),
    ),
    Preset(
        name="copilot",
        base_url="https://api.githubcopilot.com",
        dialect="copilot",
        key_variables=("GITHUB_COPILOT_TOKEN",),
    ),
    Preset(
        name="deepseek-anthropic",
        format="anthropic",
        base_url="https://api.deepseek.com/anthropic",
        path="/v1/messages",
        auth="x-api-key",
        headers=_ANTHROPIC_HEADERS,
        dialect="deepseek",
        key_variables=("DEEPSEEK_API_KEY",),
        is_alternative=True,
    ),
    Preset(
        name="moonshot-anthropic",
        format="anthropic",
        base_url="https://api.moonshot.ai/anthropic",
        path="/v1/messages",
        headers=_ANTHROPIC_HEADERS,
        dialect="moonshot",
        key_variables=("MOONSHOT_API_KEY",),
        is_alternative=True,
    ),
    Preset(
        name="zai-anthropic",
        format="anthropic",
        base_url="https://api.z.ai/api/anthropic",
        path="/v1/messages",
        headers=_ANTHROPIC_HEADERS,
        key_variables=("ZAI_API_KEY",),
        is_alternative=True,
    ),
    Preset(
        name="minimax",
        format="anthropic",
        base_url="https://api.minimax.io/anthropic",
        path="/v1/messages",
        headers=_ANTHROPIC_HEADERS,
        dialect="minimax",
        key_variables=("MINIMAX_API_KEY",),
        base_url_variables=("MINIMAX_BASE_URL",),
        models=("MiniMax-*",),
    ),
    Preset(
        name="azure-anthropic",
        format="anthropic",
        base_urls=(("", "https://{resource}.services.ai.azure.com/anthropic"),),
        settings=(PresetSetting("resource", ("ANTHROPIC_FOUNDRY_RESOURCE",), "my-resource"),),
        path="/v1/messages",
        auth="x-api-key",
        headers=_ANTHROPIC_HEADERS,
        key_variables=("ANTHROPIC_FOUNDRY_API_KEY",),
        base_url_variables=("ANTHROPIC_FOUNDRY_BASE_URL",),
        token_source="entra:",
        token_variables=_ENTRA_VARIABLES,
        token_scope="https://ai.azure.com/.default",
        is_alternative=True,
    ),
    Preset(
        name="vertex",
        format="gemini",
        base_urls=_VERTEX_URLS,
        settings=(
            PresetSetting("project", ("GOOGLE_CLOUD_PROJECT",), "my-project"),
            PresetSetting("region", ("GOOGLE_CLOUD_LOCATION", "CLOUD_ML_REGION"), "us-central1", "global"),
        ),
        path=_VERTEX_PATH + "/google/models/{model}:streamGenerateContent?alt=sse",
        other_presets=(("claude*", "vertex-anthropic"),),
        base_url_variables=("GOOGLE_VERTEX_BASE_URL",),
        token_source="google:",
        is_alternative=True,
        serves_only_generation=True,
    ),
    Preset(
        name="vertex-anthropic",
        format="anthropic",
        base_urls=_VERTEX_URLS,
        settings=(
            PresetSetting("project", ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"), "my-project"),
            PresetSetting("region", ("CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION"), "us-east5", "global"),
        ),
        path=_VERTEX_PATH + "/anthropic/models/{model}:streamRawPredict",
        other_presets=(("gemini*", "vertex"),),
        whole_call=(":streamRawPredict", ":rawPredict"),
        base_url_variables=("ANTHROPIC_VERTEX_BASE_URL",),
        token_source="google:",
        host="vertex",
        is_alternative=True,
        serves_only_generation=True,
    ),
    Preset(
        name="bedrock",
        format="anthropic",
        base_urls=(
            ("^cn-", "https://bedrock-runtime.{region}.amazonaws.com.cn"),
            ("", "https://bedrock-runtime.{region}.amazonaws.com"),
        ),
        settings=(_AWS_REGION,),
        path="/model/{model}/invoke-with-response-stream",
        whole_call=("/invoke-with-response-stream", "/invoke"),
        key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
        base_url_variables=("ANTHROPIC_BEDROCK_BASE_URL",),
        token_source="aws:",
        service="bedrock",
        host="bedrock",
        is_alternative=True,
        serves_only_generation=True,
    ),
    Preset(
        name="bedrock-mantle",
        format="anthropic",
        base_urls=(("", "https://bedrock-mantle.{region}.api.aws/anthropic"),),
        settings=(_AWS_REGION,),
        path="/v1/messages",
        headers=_ANTHROPIC_HEADERS,
        key_variables=("AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_AWS_API_KEY"),
        base_url_variables=("ANTHROPIC_BEDROCK_MANTLE_BASE_URL",),
        token_source="aws:",
        service="bedrock-mantle",
        is_alternative=True,
    ),
    Preset(
        name="anthropic-aws",
        format="anthropic",
        base_urls=(("", "https://aws-external-anthropic.{region}.api.aws"),),
        settings=(_AWS_REGION, PresetSetting("workspace", ("ANTHROPIC_AWS_WORKSPACE_ID",), "wrkspc_…")),
        path="/v1/messages",
        auth="x-api-key",
        headers=(*_ANTHROPIC_HEADERS, ("anthropic-workspace-id", "{workspace}")),
        key_variables=("ANTHROPIC_AWS_API_KEY",),
        base_url_variables=("ANTHROPIC_AWS_BASE_URL",),
        token_source="aws:",
        service="aws-external-anthropic",
        is_alternative=True,
    ),
    Preset(name="compatible", dialect="compatible", needs_key=False),
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
