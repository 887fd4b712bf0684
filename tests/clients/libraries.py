"""The libraries: small programs in `snippets` that use them as their own documentation does, on each wire they speak."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from clients.program import (
    ANTHROPIC,
    CHAT,
    COMPLETIONS,
    GEMINI,
    INTERACTIONS,
    OLLAMA,
    RESPONSES,
    Place,
    Program,
)

_SNIPPETS = Path(__file__).parent / "snippets"
_OPENAI = (CHAT, RESPONSES)
_FOUR = (*_OPENAI, ANTHROPIC, GEMINI)


def _environment(place: Place, wire: str, folder: str) -> Mapping[str, str]:
    return {
        "GATEWAY_URL": place.url,
        "GATEWAY_KEY": place.key,
        "GATEWAY_MODEL": place.model,
        "GATEWAY_WIRE": wire,
        "GATEWAY_INSTALLED": str(place.installed / folder),
        "AI_SDK_LOG_WARNINGS": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _programs(
    name: str, wires: tuple[str, ...], snippet: str, *packages: str, in_words: tuple[str, ...] = ()
) -> list[Program]:
    """One for each wire. Those of `in_words` have no tools there."""
    is_javascript = snippet.endswith(".mjs")
    folder = name.replace(" ", "-").lower()
    return [
        Program(
            name=name,
            wire=wire,
            source="npm" if is_javascript else "pypi",
            packages=packages,
            command=lambda _: ["node" if is_javascript else "python", str(_SNIPPETS / snippet)],
            environment=partial(_environment, wire=wire, folder=folder),
            asks_in_words=wire in in_words,
        )
        for wire in wires
    ]


LIBRARIES: tuple[Program, ...] = (
    *_programs(
        *("LangChain", _FOUR, "langchain_agent.py", "langchain"),
        *("langchain-openai", "langchain-anthropic", "langchain-google-genai"),
    ),
    *_programs("pydantic-ai", _FOUR, "pydantic_ai_agent.py", "pydantic-ai"),
    *_programs("OpenAI Agents", _OPENAI, "openai_agents_agent.py", "openai-agents"),
    *_programs("OpenAI Agents JS", _OPENAI, "openai_agents.mjs", "@openai/agents", "openai", "zod"),
    *_programs(
        *("Vercel AI SDK", _FOUR, "vercel_ai.mjs", "ai"),
        *("@ai-sdk/openai", "@ai-sdk/anthropic", "@ai-sdk/google", "zod"),
    ),
    *_programs(
        *("LlamaIndex", (CHAT, COMPLETIONS), "llama_index_agent.py", "llama-index-llms-openai-like"),
        *("llama-index-core",),
        in_words=(COMPLETIONS,),
    ),
    *_programs("DSPy", (*_FOUR, COMPLETIONS), "dspy_calls.py", "dspy", in_words=(*_FOUR, COMPLETIONS)),
    *_programs("Haystack", (CHAT,), "haystack_agent.py", "haystack-ai"),
    *_programs("Semantic Kernel", (CHAT,), "semantic_kernel_agent.py", "semantic-kernel"),
    *_programs("LiteLLM", (*_FOUR, OLLAMA), "litellm_calls.py", "litellm", "mcp"),
    *_programs("Ollama Python", (OLLAMA,), "ollama_agent.py", "ollama"),
    *_programs("Ollama JS", (OLLAMA,), "ollama_agent.mjs", "ollama"),
    *_programs("JS SDKs", (*_FOUR, INTERACTIONS), "official_sdks.mjs", "openai", "@anthropic-ai/sdk", "@google/genai"),
)
