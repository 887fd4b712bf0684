"""DSPy's language model on the wire named by WIRE. Its agents read fields from text, so files are asked for in words."""

from __future__ import annotations

import os
from pathlib import Path

import dspy  # type: ignore[import-not-found]

URL, KEY, MODEL, WIRE = (os.environ[name] for name in ("GATEWAY_URL", "GATEWAY_KEY", "GATEWAY_MODEL", "GATEWAY_WIRE"))
KINDS = {"openai-chat": "chat", "openai-responses": "responses", "openai-completions": "text"}

kind = KINDS.get(WIRE, "chat")
prefix = {"anthropic": "anthropic", "gemini": "gemini"}.get(WIRE, "openai")
base = URL if prefix != "openai" else f"{URL}/v1"
if kind == "text":
    prefix = "text-completion-openai"
model = dspy.LM(f"{prefix}/{MODEL}", model_type=kind, api_base=base, api_key=KEY, cache=False, max_tokens=1000)
print(model("Read note.txt."))
print("--\n", model(f"note.txt:\n{Path('note.txt').read_text()}"))
