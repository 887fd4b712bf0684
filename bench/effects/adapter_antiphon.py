"""Antiphon: the conversation in an SQLite file; resumed with `run()` without a message."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import antiphon as ap
from bench.effects.payment import FOLDER, QUESTION, TOOL, decide, find, pay


def find_payment(_: ap.ToolCallRequest, context: ap.ToolContext) -> ap.Settled:
    receipt = find(context.idempotency_key)
    return ap.Settled.not_done() if receipt is None else ap.Settled.done(f"paid, receipt {receipt}")


def pay_invoice(cents: int, context: ap.ToolContext) -> str:
    "Pay an invoice."
    return pay(cents, context.idempotency_key)


def answer(context: Sequence[ap.ContextEntry], _: Any) -> Any:
    results = [entry for entry in context if isinstance(entry, ap.ToolCallResultsEntry)]
    call = decide(results[-1].results[-1].result_markdown if results else None)
    return ap.ToolCallRequest("pay_invoice", call, '{"cents": 500}') if call else "Done."


def main(step: str) -> None:
    settings: Any = {"reconcile": find_payment, "settle_seconds": 0.5} if TOOL == "reconcile" else {}
    # A ledger that knows keys makes the tool idempotent; without a key it must not run twice.
    effect: Any = "idempotent" if TOOL == "key" else "once"
    tool = ap.tool(effect=effect, **settings)(pay_invoice)
    resume = "last" if step == "resume" else None
    with ap.Conversation(ap.FunctionModel(answer), tools=[tool], store=FOLDER / "chats.db", resume=resume) as chat:
        ap.ToolLoop(chat).run_sync(*([QUESTION] if step == "start" else []))


if __name__ == "__main__":
    main(sys.argv[1])
