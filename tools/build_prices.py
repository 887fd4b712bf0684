"""Write the table `prices/prices.json`: what providers charge per million tokens, from the data of genai-prices (PyPI, MIT).

    python tools/build_prices.py

The package is installed in an environment of its own and asked for its data; only facts are taken: models, how their names are
matched, and prices with the dates, times of day, sizes and variants (batch, service tiers) that they apply to.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "packages" / "antiphon" / "src" / "antiphon" / "prices" / "prices.json"
GENAI_PRICES = "0.2.1"

_DUMP = """
import json, sys
from genai_prices import data

FIELDS = {
    "input": "input_mtok", "output": "output_mtok", "cache_read": "cache_read_mtok", "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok", "reasoning": "output_reasoning_mtok",
}
WORDS = {"equals": "equals", "starts_with": "starts", "ends_with": "ends", "contains": "contains", "regex": "regex"}

def clauses(match):
    if hasattr(match, "or_"):
        return [clause for part in match.or_ for clause in clauses(part)]
    if hasattr(match, "and_"):
        return [{name: value for part in match.and_ for clause in clauses(part) for name, value in clause.items()}]
    return [{word: getattr(match, name) for name, word in WORDS.items() if hasattr(match, name)}]

def amount(value):
    if hasattr(value, "tiers"):
        return {"base": str(value.base), "above": [[tier.start, str(tier.price)] for tier in value.tiers]}
    return str(value)

def period(prices, constraint, when):
    row = {short: amount(value) for short, name in FIELDS.items() if (value := getattr(prices, name, None)) is not None}
    if hasattr(constraint, "start_date"):
        row["since"] = constraint.start_date.isoformat()
    if hasattr(constraint, "start_time"):
        row["hours"] = [constraint.start_time.isoformat(), constraint.end_time.isoformat()]
    return {**row, **({"when": when} if when else {})}

def model(known):
    dated = known.prices if isinstance(known.prices, list) else None
    rows = [period(row.prices, row.constraint, {}) for row in dated] if dated else [period(known.prices, None, {})]
    rows += [period(row.prices, row.constraint, row.when) for row in known.price_variants or ()]
    rows = [row for row in rows if "input" in row or "output" in row]
    return rows and {"name": known.id, "match": clauses(known.match), "prices": rows}

providers = [
    {"name": provider.id, "models": models, **({"match": clauses(provider.model_match)} if provider.model_match else {}),
     **({"fallback": provider.fallback_model_providers} if provider.fallback_model_providers else {})}
    for provider in data.providers
    if (models := [row for row in map(model, provider.models) if row])
]
json.dump({"version": "genai-prices " + sys.argv[1], "providers": providers}, sys.stdout, separators=(",", ":"))
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"genai-prices=={GENAI_PRICES}"], check=True)
        table = subprocess.run([python, "-c", _DUMP, GENAI_PRICES], check=True, capture_output=True, text=True).stdout
    TABLE.write_text(table.replace('{"name":', '\n{"name":') + "\n", encoding="utf-8")
    print(f"{len(table):,} characters written to {TABLE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
