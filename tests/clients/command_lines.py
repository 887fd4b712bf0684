"""Command lines, most of them in Python and over LiteLLM, and the few lines each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from clients.program import ANTHROPIC, ANY_MODEL, CHAT, COMPLETIONS, GEMINI, OLLAMA, PROMPT, RESPONSES, Place, Program


def _aider(place: Place, prefix: str) -> list[str]:
    plain = (
        "--no-auto-commits",
        "--no-gitignore",
        "--no-check-update",
        "--analytics-disable",
        "--no-show-model-warnings",
        "--yes-always",
    )
    quiet = ("--no-pretty", "--no-fancy-input", "--map-tokens", "0", "--no-suggest-shell-commands")
    return [
        "aider",
        "--model",
        f"{prefix}/{place.model}",
        *plain,
        *quiet,
        "--message",
        "Say what the note in this folder holds.",
    ]


def _llm(place: Place) -> Mapping[str, Any]:
    return {
        ".config/io.datasette.llm/extra-openai-models.yaml": f"""
- model_id: antiphon
  model_name: {place.model}
  api_base: {place.url}/v1
  api_key_name: antiphon
  supports_tools: true
""",
        ".config/io.datasette.llm/keys.json": {"antiphon": place.key},
    }


def _llm_command(place: Place, model: str) -> list[str]:
    reader = f"def read_note() -> str:\n    'Read note.txt.'\n    return open({str(place.note)!r}).read()\n"
    return ["llm", "-m", model, "--functions", reader, PROMPT]


_PROMPTFOO = {
    CHAT: ("openai:chat", "/v1"),
    RESPONSES: ("openai:responses", "/v1"),
    COMPLETIONS: ("openai:completion", "/v1"),
    ANTHROPIC: ("anthropic:messages", ""),
    GEMINI: ("google", ""),
    OLLAMA: ("ollama:chat", ""),
}
"""promptfoo's name of each wire, and where its address ends."""


def _promptfoo(place: Place, wire: str) -> Mapping[str, Any]:
    kind, end = _PROMPTFOO[wire]
    settings = {"apiBaseUrl": place.url + end, "apiKey": place.key, "max_tokens": 1000}
    return {
        "promptfooconfig.json": {
            "prompts": ["Read note.txt.", f"file://{place.note}"],
            "providers": [{"id": f"{kind}:{place.model}", "config": settings}],
            "tests": [{"vars": {"subject": "note"}}],
        }
    }


def _promptfoo_command(place: Place) -> list[str]:
    evaluate = "promptfoo eval --no-cache --no-write --no-progress-bar --no-table -j 1"
    return [
        "sh",
        "-c",
        f"{evaluate} -c {place.home}/promptfooconfig.json -o out.json; code=$?; cat out.json; exit $code",
    ]


def _mini(place: Place, prefix: str, extra: tuple[str, ...]) -> list[str]:
    saved = ("-o", str(place.home / "trajectory.json"))
    return [
        "mini",
        "-m",
        f"{prefix}/{place.model}",
        "-t",
        PROMPT,
        "-y",
        "-l",
        "0",
        "--exit-immediately",
        *saved,
        *extra,
    ]


def _usual_names(place: Place) -> Mapping[str, str]:
    return {
        "OPENAI_API_BASE": place.url + "/v1",
        "OPENAI_API_KEY": place.key,
        "ANTHROPIC_API_BASE": place.url,
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_API_KEY": place.key,
        "GEMINI_API_BASE": place.url,
        "GEMINI_API_KEY": place.key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "1",
    }


_LAST = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo {marker}"

COMMAND_LINES: tuple[Program, ...] = (
    *(
        Program(
            name="aider",
            wire=wire,
            source="pypi",
            packages=("aider-chat",),
            command=partial(_aider, prefix=prefix),
            environment=_usual_names,
            asks_in_words=True,
        )
        for wire, prefix in ((CHAT, "openai"), (ANTHROPIC, "anthropic"), (GEMINI, "gemini"))
    ),
    *(
        Program(
            name="llm",
            wire=wire,
            source="pypi",
            packages=("llm", "llm-anthropic"),
            command=partial(_llm_command, model=model),
            environment=_usual_names,
            files=_llm,
        )
        for wire, model in ((CHAT, "antiphon"), (ANTHROPIC, "claude-sonnet-4.5"))
    ),
    *(
        Program(
            name="mini-swe-agent",
            wire=wire,
            source="pypi",
            packages=("mini-swe-agent", "mcp"),
            command=partial(_mini, prefix=prefix, extra=extra),
            environment=_usual_names,
            last_command=_LAST,
        )
        for wire, prefix, extra in (
            (CHAT, "openai", ()),
            (RESPONSES, "openai", ("--model-class", "litellm_response")),
            (ANTHROPIC, "anthropic", ()),
            (GEMINI, "gemini", ()),
        )
    ),
    Program(
        name="gptme",
        wire=CHAT,
        source="pypi",
        packages=("gptme",),
        command=lambda place: [
            *(
                "gptme",
                "-n",
                "--no-confirm",
                "--tool-format",
                "tool",
                "-t",
                "read",
                "-m",
                f"antiphon/{place.model}",
                PROMPT,
            )
        ],
        files=lambda place: {
            ".config/gptme/config.toml": f"""
[prompt]
[env]
[[providers]]
name = "antiphon"
base_url = "{place.url}/v1"
api_key_env = "ANTIPHON_CLIENT_KEY"
"""
        },
    ),
    *(
        Program(
            name="promptfoo",
            wire=wire,
            source="npm",
            packages=("promptfoo",),
            command=_promptfoo_command,
            environment=lambda place: {
                "PROMPTFOO_DISABLE_TELEMETRY": "1",
                "PROMPTFOO_DISABLE_UPDATE": "1",
                "OLLAMA_BASE_URL": place.url,
                "OLLAMA_API_KEY": place.key,
            },
            files=partial(_promptfoo, wire=wire),
            model="gemini-2.5-pro" if wire == GEMINI else ANY_MODEL,
            asks_in_words=True,
        )
        for wire in _PROMPTFOO
    ),
)
