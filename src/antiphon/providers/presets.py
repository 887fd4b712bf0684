"""`Preset`: the URL, authentication, format and dialect of a provider, as data; `PRESETS` has the known ones by name.

A new host is a new row, or the row `compatible` with a base URL. No I/O here, and the environment is not read.

URLs: `path` follows the base URL; `{model}` and `{api_version}` in it are filled in for each call. If the base URL already ends
with the start of the path (`…/v1` before `/v1/messages`), that part is not repeated. If the base URL decides the path (Azure),
the first of `paths` whose expression matches it is used instead.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import quote, urlsplit

from msgspec import Struct, structs

from antiphon.errors import ProviderSetupError, UnknownProvider
from antiphon.providers.model_name import quote_path

AuthStyle: TypeAlias = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none"]


class Preset(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One provider: address, authentication, format and dialect."""

    name: str
    format: str = "openai-chat"
    base_url: str = ""
    """As the provider's own SDK takes it. If empty, the user must set it."""
    path: str = "/chat/completions"
    paths: tuple[tuple[str, str], ...] = ()
    auth: AuthStyle = "bearer"
    headers: tuple[tuple[str, str], ...] = ()
    dialect: str | None = None
    key_variables: tuple[str, ...] = ()
    bearer_variables: tuple[str, ...] = ()
    """Variables whose key is sent as a bearer token, regardless of `auth`."""
    base_url_variables: tuple[str, ...] = ()
    header_variables: tuple[tuple[str, str], ...] = ()
    """Headers that are sent if a variable is set: (header, variable)."""
    api_version: str = ""
    api_version_variables: tuple[str, ...] = ()
    needs_key: bool = True
    models: tuple[str, ...] = ()
    """Globs of model names that belong to this provider without a prefix."""
    is_alternative: bool = False
    """Another API of a host that has a preset already: used where it is named, and not because its key is set."""
    known_models: tuple[str, ...] = ()
    """Models of a host that does not list them; `/v1/models` of the gateway shows these."""
    completions: tuple[str, ...] = ()
    """Globs of models that it serves at `/completions`, OpenAI's legacy API, too."""

    def url_beside(self, endpoint: str, base_url: str, model: str, api_version: str = "") -> str:
        """The URL of another endpoint of an OpenAI-like host, such as `/embeddings`, for a call of `model`."""
        paths = tuple((pattern, _replace_endpoint(path, endpoint)) for pattern, path in self.paths)
        beside = structs.replace(self, path=_replace_endpoint(self.path, endpoint), paths=paths)
        return beside.url_for(base_url, model, api_version)

    def url_of_verb(self, verb: str, base_url: str, model: str, api_version: str = "") -> str:
        """The URL of another call of a Gemini-like host, such as `countTokens`."""
        path = _GENERATE_VERB.sub(f":{verb}", self.path)
        return structs.replace(self, path=path, paths=()).url_for(base_url, model, api_version)

    def url_for(self, base_url: str, model: str, api_version: str = "") -> str:
        """The URL for a call of `model`."""
        base, _, query = base_url.partition("?")
        base = base.rstrip("/")
        path = next((path for pattern, path in self.paths if re.search(pattern, base)), self.path)
        path, _, own_query = path.partition("?")
        path = _without_overlap(base, path)
        if "{model}" in path:
            # If more path follows (Azure), a slash in the name would address another resource.
            name = quote_path(model.removeprefix("models/"), is_one_segment="{model}/" in path)
            path = path.replace("{model}", name)
        queries = [query, own_query.format(api_version=quote(api_version or self.api_version))]
        return base + path + "".join(sign + part for sign, part in zip("?&", filter(None, queries), strict=False))

    def credential_header(self, secret: str) -> dict[str, str]:
        """The header that carries a key; empty if the provider needs none."""
        if self.auth == "none":
            return {}
        header, scheme = _AUTH[self.auth]
        return {header: scheme + secret}


_AUTH: dict[str, tuple[str, str]] = {
    "bearer": ("authorization", "Bearer "),
    "x-api-key": ("x-api-key", ""),
    "x-goog-api-key": ("x-goog-api-key", ""),
    "api-key": ("api-key", ""),
}


_GENERATING = ("/chat/completions", "/responses")
_GENERATE_VERB = re.compile(r":(?:streamG|g)enerateContent(?:\?alt=sse)?")


def first_set_variable(variables: Iterable[str], environ: Mapping[str, str]) -> str:
    """The first of the variables that is set; empty if none is."""
    return next((variable for variable in variables if environ.get(variable, "").strip()), "")


def _replace_endpoint(path: str, endpoint: str) -> str:
    for generating in _GENERATING:
        path = path.replace(generating, endpoint)
    return path


def _without_overlap(base: str, path: str) -> str:
    """The path without the segments that the base URL already ends with."""
    segments = path.split("/")
    for count in range(len(segments) - 1, 1, -1):
        beginning = "/".join(segments[:count])
        if "{" not in beginning and base.endswith(beginning):
            return path[len(beginning) :]
    return path


def normalize_base_url(base_url: str, name: str) -> str:
    """A base URL that can be used and shown. Raises `ProviderSetupError`.

    Ollama's variable has `host:port` only; a server that listens on 0.0.0.0 is reached on 127.0.0.1.
    """
    text = base_url.strip()
    if text and "://" not in text:
        text = f"http://{text}"
    text = text.replace("://0.0.0.0", "://127.0.0.1", 1)
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ProviderSetupError(f"{name}: the base URL is not an http or https URL; use one like https://host/v1")
    if parts.username is not None or parts.password is not None:
        raise ProviderSetupError(
            f"{name}: the base URL contains a user name or password; pass it in headers or keys instead"
        )
    return text


_OPENAI_HEADERS = (("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID"))
_ANTHROPIC_HEADERS = (("anthropic-version", "2023-06-01"),)
_DEPLOYMENT = "/deployments/{model}/chat/completions?api-version={api_version}"

_ROWS = (
    Preset(
        name="openai",
        base_url="https://api.openai.com/v1",
        dialect="openai",
        key_variables=("OPENAI_API_KEY",),
        base_url_variables=("OPENAI_BASE_URL",),
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
    ),
    Preset(
        name="vllm",
        base_url="http://localhost:8000/v1",
        dialect="vllm",
        key_variables=("VLLM_API_KEY",),
        base_url_variables=("VLLM_BASE_URL",),
        completions=("*",),
        needs_key=False,
    ),
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
    Preset(
        name="lmstudio",
        base_url="http://localhost:1234/v1",
        dialect="lmstudio",
        key_variables=("LMSTUDIO_API_KEY",),
        base_url_variables=("LMSTUDIO_BASE_URL",),
        completions=("*",),
        needs_key=False,
    ),
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
    Preset(
        name="volcengine",
        base_url="https://ark.cn-beijing.volces.com/api/v3",
        dialect="volcengine",
        key_variables=("ARK_API_KEY",),
        base_url_variables=("ARK_BASE_URL",),
        models=("doubao-*",),
    ),
    Preset(
        name="codebuddy",
        base_url="https://www.codebuddy.ai/v2",
        headers=(("X-Requested-With", "XMLHttpRequest"), ("X-Product", "SaaS")),
        dialect="codebuddy",
        key_variables=("CODEBUDDY_API_KEY",),
        base_url_variables=("CODEBUDDY_BASE_URL",),
        known_models=("auto-chat",),  # the name that its own clients send; the host chooses the model
    ),
    Preset(
        name="deepseek",
        base_url="https://api.deepseek.com",
        dialect="deepseek",
        key_variables=("DEEPSEEK_API_KEY",),
        base_url_variables=("DEEPSEEK_BASE_URL",),
        models=("deepseek-*",),
    ),
    Preset(
        name="mistral",
        base_url="https://api.mistral.ai",
        path="/v1/chat/completions",
        dialect="mistral",
        key_variables=("MISTRAL_API_KEY",),
        base_url_variables=("MISTRAL_BASE_URL",),
        models=("mistral-*", "ministral-*", "magistral-*", "codestral-*", "devstral-*", "pixtral-*"),
    ),
    Preset(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        dialect="openrouter",
        key_variables=("OPENROUTER_API_KEY",),
        base_url_variables=("OPENROUTER_BASE_URL",),
    ),
    Preset(
        name="groq",
        base_url="https://api.groq.com",
        path="/openai/v1/chat/completions",
        dialect="groq",
        key_variables=("GROQ_API_KEY",),
        base_url_variables=("GROQ_BASE_URL",),
    ),
    Preset(
        name="xai",
        base_url="https://api.x.ai/v1",
        dialect="xai",
        key_variables=("XAI_API_KEY",),
        base_url_variables=("XAI_BASE_URL",),
        models=("grok-*",),
    ),
    Preset(
        name="zai",
        base_url="https://api.z.ai/api/paas/v4",
        dialect="zai",
        key_variables=("ZAI_API_KEY",),
        base_url_variables=("ZAI_BASE_URL",),
        models=("glm-*",),
    ),
    Preset(
        name="moonshot",
        base_url="https://api.moonshot.ai/v1",
        dialect="moonshot",
        key_variables=("MOONSHOT_API_KEY",),
        base_url_variables=("MOONSHOT_BASE_URL",),
        models=("kimi-*", "moonshot-*"),
    ),
    Preset(
        name="alibaba",
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        dialect="alibaba",
        key_variables=("DASHSCOPE_API_KEY",),
        base_url_variables=("DASHSCOPE_BASE_URL",),
        models=("qwen-*", "qwen2*", "qwen3*", "qwq-*"),
    ),
    Preset(
        name="gemini-openai",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        dialect="google",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    Preset(
        name="together",
        base_url="https://api.together.xyz/v1",
        dialect="together",
        key_variables=("TOGETHER_API_KEY",),
        base_url_variables=("TOGETHER_BASE_URL",),
    ),
    Preset(
        name="cerebras",
        base_url="https://api.cerebras.ai",
        path="/v1/chat/completions",
        dialect="cerebras",
        key_variables=("CEREBRAS_API_KEY",),
        base_url_variables=("CEREBRAS_BASE_URL",),
    ),
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
    Preset(name="compatible", dialect="compatible", needs_key=False),
)

PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ROWS})
"""Every known provider by name."""


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
