"""What every adapter shares, with the standard library alone: the payment, where the process dies, and what the model learned.

The process dies at one of four points (`EFFECTS_CRASH`): `asked`, when the model has decided to pay; `started`, when the tool has
begun; `committed`, when the ledger has booked and not answered (it kills the client); `acknowledged`, when the tool has the
receipt and has not returned.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
import uuid
from pathlib import Path

QUESTION = "Pay the invoice of 500 cents, once."
FOLDER = Path(os.environ.get("EFFECTS_FOLDER", "."))
TOOL = os.environ.get("EFFECTS_TOOL", "plain")
"""`plain`, `key` or `reconcile`."""
_URL = os.environ.get("EFFECTS_URL", "")
_CRASH = os.environ.get("EFFECTS_CRASH", "")


def die_at(point: str) -> None:
    """End the process as `kill -9` does, if it is to die here."""
    if point == _CRASH:
        os.kill(os.getpid(), signal.SIGKILL)


def pay(cents: int, key: str) -> str:
    """The tool: pay, with the key that the framework gives, unless the tool is to have none."""
    die_at("started")
    body = {"cents": cents, "key": "" if TOOL == "plain" else key, "pid": os.getpid()}
    request = urllib.request.Request(f"{_URL}/pay", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        receipt = json.load(answer)["receipt"]
    die_at("acknowledged")
    return f"paid {cents} cents, receipt {receipt}"


def find(key: str) -> int | None:
    """The receipt of a payment with this key, if there is one."""
    with urllib.request.urlopen(f"{_URL}/find?key={key}", timeout=10) as answer:
        receipt: int | None = json.load(answer)["receipt"]
        return receipt


def decide(result: str | None) -> str:
    """The model: without a result it pays, under an id that no other call has, as providers give one; with a result it is done.

    Returns the id of the call to make, or an empty text.
    """
    if result is not None:
        (FOLDER / "learned.txt").write_text(result)
        return ""
    die_at("asked")
    return f"call_{uuid.uuid4().hex[:12]}"
