"""The coding agents and command lines, and the few lines each of them needs. `docs/gateway/clients.md` says the same in words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from clients.program import ANTHROPIC, ANY_MODEL, CHAT, GEMINI, PROMPT, RESPONSES, Place, Program


def _claude_code(place: Place) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_AUTH_TOKEN": place.key,
        "ANTHROPIC_MODEL": place.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": place.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _codex(place: Place, *, is_websocket: bool) -> Mapping[str, Any]:
    return {
        ".codex/config.toml": f"""
model = "{place.model}"
model_provider = "antiphon"
[model_providers.antiphon]
name = "Antiphon"
base_url = "{place.url}/v1"
env_key = "ANTIPHON_CLIENT_KEY"
wire_api = "responses"
supports_websockets = {"true" if is_websocket else "false"}
[analytics]
enabled = false
""",
    }


def _codex_command(place: Place) -> list[str]:
    return ["codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", PROMPT]


def _gemini_cli(place: Place) -> Mapping[str, Any]:
    return {
        ".gemini/settings.json": {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False},
        }
    }


def _copilot(place: Place, kind: str, wire: str) -> Mapping[str, str]:
    return {
        "COPILOT_PROVIDER_BASE_URL": place.url + ("" if kind == "anthropic" else "/v1"),
        "COPILOT_PROVIDER_TYPE": kind,
        "COPILOT_PROVIDER_WIRE_API": wire,
        "COPILOT_PROVIDER_API_KEY": place.key,
        "COPILOT_MODEL": place.model,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }


def _copilot_command(place: Place) -> list[str]:
    return ["copilot", "-p", PROMPT, "--allow-all-tools", "--allow-all-paths"]


def _opencode(place: Place, package: str, path: str) -> Mapping[str, Any]:
    return {
        ".config/opencode/opencode.json": {
            "$schema": "https://opencode.ai/config.json",
            "autoupdate": False,
            "share": "disabled",
            "provider": {
                "antiphon": {
                    "npm": package,
                    "options": {"baseURL": place.url + path, "apiKey": "{env:ANTIPHON_CLIENT_KEY}"},
                    "models": {place.model: {}},
                }
            },
        }
    }


def _pi(place: Place, api: str, path: str) -> Mapping[str, Any]:
    return {
        ".pi/agent/models.json": {
            "providers": {
                "antiphon": {
                    "baseUrl": place.url + path,
                    "api": api,
                    "apiKey": "$ANTIPHON_CLIENT_KEY",
                    "models": [{"id": place.model}],
                }
            }
        }
    }


def _qwen(place: Place, kind: str) -> Mapping[str, str]:
    base = place.url + ("/v1" if kind == "OPENAI" else "")
    named = {f"{kind}_BASE_URL": base, f"{kind}_API_KEY": place.key, f"{kind}_MODEL": place.model}
    return {**named, "GOOGLE_GEMINI_BASE_URL": base} if kind == "GEMINI" else named


def _qwen_command(place: Place, kind: str) -> list[str]:
    return ["qwen", "--auth-type", kind, "-m", place.model, "--yolo", "-p", PROMPT]


def _continue(place: Place, provider: str, path: str, responses: bool) -> Mapping[str, Any]:
    return {
        "config.yaml": f"""
name: antiphon
version: 1.0.0
schema: v1
models:
  - name: antiphon
    provider: {provider}
    model: {place.model}
    apiKey: ${{{{ secrets.ANTIPHON_CLIENT_KEY }}}}
    apiBase: {place.url}{path}
    useResponsesApi: {str(responses).lower()}
    capabilities: [tool_use]
    roles: [chat]
"""
    }


def _continue_command(place: Place) -> list[str]:
    return ["cn", "--config", str(place.home / "config.yaml"), "--auto", "-p", PROMPT]


def _cline(place: Place, provider: str, path: str) -> Mapping[str, Any]:
    settings = {"provider": provider, "apiKey": place.key, "model": place.model, "baseUrl": place.url + path}
    return {
        ".cline/data/settings/providers.json": {
            "version": 1,
            "lastUsedProvider": provider,
            "modes": {},
            "providers": {
                provider: {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
            },
        }
    }


def _cline_command(place: Place, provider: str) -> list[str]:
    return ["cline", "-P", provider, "-m", place.model, "--auto-approve", "true", PROMPT]


AGENTS: tuple[Program, ...] = (
    Program(
        name="Claude Code",
        wire=ANTHROPIC,
        source="npm",
        packages=("@anthropic-ai/claude-code",),
        command=lambda place: ["claude", "-p", PROMPT, "--allowedTools", "Read"],
        environment=_claude_code,
    ),
    *(
        Program(
            name="Codex CLI",
            wire=RESPONSES,
            source="npm",
            packages=("@openai/codex",),
            command=_codex_command,
            files=partial(_codex, is_websocket=is_websocket),
            model=model,
            is_websocket=is_websocket,
        )
        for is_websocket in (False, True)
        for model in ("gpt-5.5", ANY_MODEL)
    ),
    Program(
        name="Gemini CLI",
        wire=GEMINI,
        source="npm",
        packages=("@google/gemini-cli",),
        command=lambda place: ["gemini", "-m", place.model, "--yolo", "-p", PROMPT],
        environment=lambda place: {"GOOGLE_GEMINI_BASE_URL": place.url, "GEMINI_API_KEY": place.key},
        files=_gemini_cli,
        model="gemini-2.5-pro",
    ),
    *(
        Program(
            name="Copilot CLI",
            wire=wire,
            source="npm",
            packages=("@github/copilot",),
            command=_copilot_command,
            environment=partial(_copilot, kind=kind, wire=api),
        )
        for wire, kind, api in (
            (CHAT, "openai", "completions"),
            (RESPONSES, "openai", "responses"),
            (ANTHROPIC, "anthropic", "completions"),
        )
    ),
    *(
        Program(
            name="opencode",
            wire=wire,
            source="npm",
            packages=("opencode-ai",),
            command=lambda place: ["opencode", "run", "--auto", "-m", f"antiphon/{place.model}", PROMPT],
            environment=lambda _: {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"},
            files=partial(_opencode, package=package, path=path),
        )
        for wire, package, path in (
            (CHAT, "@ai-sdk/openai-compatible", "/v1"),
            (RESPONSES, "@ai-sdk/openai", "/v1"),
            (ANTHROPIC, "@ai-sdk/anthropic", "/v1"),
            (GEMINI, "@ai-sdk/google", "/v1beta"),
        )
    ),
    *(
        Program(
            name="pi",
            wire=wire,
            source="npm",
            packages=("@earendil-works/pi-coding-agent@0",),
            command=lambda place: ["pi", "-p", "--provider", "antiphon", "--model", place.model, PROMPT],
            environment=lambda _: {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
            files=partial(_pi, api=api, path=path),
        )
        for wire, api, path in (
            (CHAT, "openai-completions", "/v1"),
            (RESPONSES, "openai-responses", "/v1"),
            (ANTHROPIC, "anthropic-messages", ""),
            (GEMINI, "google-generative-ai", "/v1beta"),
        )
    ),
    *(
        Program(
            name="Qwen Code",
            wire=wire,
            source="npm",
            packages=("@qwen-code/qwen-code",),
            command=partial(_qwen_command, kind=kind),
            environment=partial(_qwen, kind=kind.upper()),
            files=lambda _: {".qwen/settings.json": {"privacy": {"usageStatisticsEnabled": False}}},
        )
        for wire, kind in ((CHAT, "openai"), (ANTHROPIC, "anthropic"), (GEMINI, "gemini"))
    ),
    *(
        Program(
            name="Cline",
            wire=wire,
            source="npm",
            packages=("cline",),
            command=partial(_cline_command, provider=provider),
            environment=lambda _: {"CLINE_TELEMETRY_DISABLED": "1"},
            files=partial(_cline, provider=provider, path=path),
            model=model,
        )
        for wire, provider, path, model in (
            (CHAT, "openai-compatible", "/v1", ANY_MODEL),
            (RESPONSES, "openai-native", "/v1", ANY_MODEL),
            (ANTHROPIC, "anthropic", "/v1", ANY_MODEL),
            (GEMINI, "gemini", "/v1beta", "gemini-3-flash-preview"),  # it offers its tools to models it knows only
        )
    ),
    *(
        Program(
            name="Continue",
            wire=wire,
            source="npm",
            packages=("@continuedev/cli",),
            command=_continue_command,
            environment=lambda place: {"CONTINUE_TELEMETRY_ENABLED": "0", "GOOGLE_GEMINI_BASE_URL": place.url},
            files=partial(_continue, provider=provider, path=path, responses=wire == RESPONSES),
            model=model,
        )
        for wire, provider, path, model in (
            (CHAT, "openai", "/v1/", ANY_MODEL),
            (RESPONSES, "openai", "/v1/", "gpt-5"),
            (ANTHROPIC, "anthropic", "/v1/", ANY_MODEL),
            (GEMINI, "gemini", "/v1beta/", ANY_MODEL),
        )
    ),
)
