"""The loop, in a minute: rounds of real tools with no key and no network; a process killed in mid-tool, another that continues;
a call that waits for a person; and the same history as each provider would be sent it.

The model is the offline provider: a guided tour, not a language model. Everything else is what a real one gets. Run it with
`make demo`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import antiphon as ap
from antiphon.conversation import TextDelta, ToolCallFailed, ToolCallFinished, ToolCallStarted
from antiphon.history import Origin
from antiphon.providers import ProviderCallOptions
from antiphon.providers.rendering import render_call
from antiphon.tools.builtin import builtin_tools
from antiphon.wire import formats
from antiphon_chat.offline import OfflineModel

MODELS = {
    "openai-chat": "gpt-5.5",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-sonnet-5",
    "gemini": "gemini-3-pro",
    "gemini-interactions": "gemini-3-pro",
}


def heading(text: str) -> None:
    print(f"\n\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else f"\n{text}")


async def say(loop: ap.ToolLoop, *words: str) -> None:
    """Play a turn and print it as it happens."""
    if words:
        print("you:", *words)
    async for event in loop.stream(*words):
        match event:
            case TextDelta(text):
                print(text, end="", flush=True)
            case ToolCallStarted(asked):
                print(f"\n  → {asked.tool_name} {asked.arguments[:90]}")
            case ToolCallFinished(_, result) | ToolCallFailed(_, result):
                print(f"  ← {result.status}: {result.result_markdown.splitlines()[0][:90]}")
            case ap.LoopFinished(reason):
                print(f"\n({reason})")


@ap.tool(effect="once")
def send_mail(to: str, text: str) -> str:
    "Send a mail."
    os.kill(os.getpid(), signal.SIGKILL)  # the power goes out
    return f"sent {text!r} to {to}"


@ap.tool(needs_approval=True)
def book_flight(to: str) -> str:
    "Book a flight."
    return f"booked: {to}"


def asks_for_mail() -> ap.ScriptedModel:
    return ap.ScriptedModel(["I write to Ada.", ap.call("send_mail", to="ada@example.org", text="Hello")])


def main(file: Path) -> None:
    heading("1. Search, then a plan: several rounds of real tools.")
    chat = ap.Conversation(OfflineModel(), tools=builtin_tools(), store=file, title="IELTS")
    asyncio.run(say(ap.ToolLoop(chat), "Find out what IELTS 7 needs, then make me a 3 month plan."))

    heading("2. A process is killed with kill -9 while a tool runs that must not run twice.")
    ap.Conversation(asks_for_mail(), store=file, title="Mail")
    killed = subprocess.run([sys.executable, __file__, "killed", file], check=False)
    print(f"it ended with signal {-killed.returncode}; another process resumes the turn:")
    mails = ap.Conversation(
        ap.ScriptedModel("I do not know whether Ada got it."), tools=[send_mail], store=file, resume="last"
    )
    asyncio.run(say(ap.ToolLoop(mails)))

    heading("3. A call that needs a person; the decision could come days later.")
    model = ap.ScriptedModel(ap.call("book_flight", to="Oslo"), "Your flight is booked.")
    trip = ap.Conversation(model, tools=[book_flight], store=file, title="Trip")
    asyncio.run(say(ap.ToolLoop(trip), "Fly me to Oslo."))
    loop = ap.ToolLoop(trip)
    print(f"waiting: {[waiting.tool_name for waiting in loop.pending]}; approved:")
    loop.approve(loop.pending[0].tool_call_id)
    asyncio.run(say(loop))

    heading("4. One history, every model: what each provider would be sent now.")
    for name, target in MODELS.items():
        rendered = render_call(chat.context(), ProviderCallOptions(), Origin("", name, target))
        body = b"".join(rendered.chunks)
        broken = formats[name].check_request(body)
        print(f"{name:17} {len(body):6} bytes, {len(broken)} rules broken, {len(rendered.losses)} losses")


if __name__ == "__main__":
    if sys.argv[1:2] == ["killed"]:
        doomed = ap.Conversation(asks_for_mail(), tools=[send_mail], store=sys.argv[2], resume="last")
        ap.ToolLoop(doomed).run_sync("Say hello to Ada.")
    else:
        with tempfile.TemporaryDirectory(prefix="antiphon-demo-") as folder:
            main(Path(folder) / "chats.db")
