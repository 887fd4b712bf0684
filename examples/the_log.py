"""The log, in two minutes: a conversation is written, cut off by kill -9, reopened, rolled back, forked, searched, rendered.

Everything here is real: a real SQLite file, a real process that is really killed. Run it with
`python examples/the_log.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import antiphon as ap
from antiphon.context import ContextGauge, TokenLedger


def heading(text: str) -> None:
    print(f"\n\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else f"\n{text}")


def write_a_conversation_and_die(file: str, conversation: str) -> None:
    """What an agent does, up to the moment its machine goes down."""
    history = ap.SqliteStore(file).open(conversation)
    history.set_system_instruction("You are a travel helper. Be brief.")
    history.append(ap.ModelInputEntry.of("Is it raining in Oslo? 今天奥斯陆下雨吗？"))
    call = ap.ToolCallRequest("weather", "call_1", '{"city": "Oslo"}')
    history.append(ap.ModelOutputEntry.of("Let me look.", call))
    history.append(ap.ToolCallResultsEntry((ap.ToolCallResult.of(call, "Rain, 7 °C"),)))
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    file = Path(tempfile.mkdtemp(prefix="antiphon-demo-")) / "chats.db"
    store = ap.SqliteStore(file)

    heading("1. A process writes four entries and is killed with kill -9.")
    conversation = store.create("Rain in Oslo", tags=["demo"]).id
    died = subprocess.run([sys.executable, __file__, file, conversation], check=False)
    print(f"   it ended with signal {-died.returncode}; every append had returned, so every entry is here:")
    history = store.open(conversation)
    for entry in history.entries:
        print(f"   {entry.sequence_number}  {entry.kind}")

    heading("2. The model answers, badly. We roll back: nothing is erased, the log says what happened.")
    history.append(ap.ModelOutputEntry.of("No, it is sunny."))
    history.rollback(4, "the answer contradicts the tool")
    history.append(ap.ModelOutputEntry.of("Yes: rain, 7 °C. 带伞！"))
    print(f"   the log has {len(history.entries)} entries, {len(history.effective)} of them count")

    heading(
        "3. What a model sees now: instructions, the history that counts, and a LiveScreen on the last observation."
    )
    history.set_memory_notebook("The user lives in Oslo.")
    history.append(ap.ModelInputEntry.of("And tomorrow?"))
    ledger = TokenLedger()
    context = ap.render_live_context(
        history.snapshot(), ap.LiveContextOptions(live_screen="Sunday, 12:00. Battery 80%.", max_tokens=2_000)
    )
    for shown in context:
        words = " ".join(part.text for part in shown.content if isinstance(part, ap.Text)).replace("\n", " ")
        screen = f"   [LiveScreen: {shown.live_screen}]" if shown.live_screen else ""
        print(f"   {shown.role.value:13} {words or '(the tool’s result)'}{screen}")
    print(
        f"   about {ContextGauge(ledger).tokens(history.snapshot())} tokens; the log was not touched: version {history.version}"
    )

    heading("4. A fork goes its own way from any point; the search finds text in any language.")
    fork = history.fork(2)
    fork.append(ap.ModelOutputEntry.of("I would rather not look out of the window."))
    for query in ("下雨", "rain 7"):
        hits = store.search(query)
        print(
            f"   {query!r}: " + ", ".join(f"entry {hit.sequence_number} of …{hit.conversation.id[-6:]}" for hit in hits)
        )

    heading("5. An export is JSON Lines, and comes back byte for byte.")
    lines = list(store.export_lines(conversation))
    with ap.SqliteStore(":memory:") as elsewhere:
        elsewhere.import_lines(lines)
        print(f"   {len(lines)} lines; exported again, the same: {list(elsewhere.export_lines(conversation)) == lines}")
    store.close()

    heading("Look around yourself:")
    antiphon = Path(sys.executable).with_name("antiphon")
    antiphon = antiphon.relative_to(Path.cwd()) if antiphon.is_relative_to(Path.cwd()) else antiphon
    print(f"   {antiphon} history list --store {file}")
    print(f"   {antiphon} history show {conversation[-6:]} --store {file}")
    print(f"   {antiphon} history search 下雨 --store {file}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_a_conversation_and_die(*sys.argv[1:3])
    else:
        main()
