"""The slash commands of the terminal: names, arguments, help and output. `shared/conversations/` has what the page shares.

A command is a method of `Commands` with its name. It shows its result through the chat, and raises an error if it fails.
"""

from __future__ import annotations

import difflib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.cli.formats.bodies import atomic_write
from antiphon.cli.terminal import format_time
from antiphon.context.view import segment_text
from antiphon.conversation.compaction import compact
from antiphon.conversation.replay import Replay, compare
from antiphon.errors import AntiphonError, ConversationError, StoreError
from antiphon.tools.builtin import Plan
from antiphon_chat.language import current_language, translate, translated
from antiphon_chat.shared.conversations.branches import question_before
from antiphon_chat.shared.conversations.changes import roll_back, set_texts, set_title
from antiphon_chat.shared.conversations.export import ENDINGS, ExportFormat, export
from antiphon_chat.shared.setup.model_setup import check_provider, providers_with_keys
from antiphon_chat.shared.spending import spending_of
from antiphon_chat.terminal.comparison_table import comparison_lines
from antiphon_chat.terminal.mcp_command import McpCommand
from antiphon_chat.terminal.render import cost_lines, history_table, rounds_table, usage_line

if TYPE_CHECKING:
    from antiphon_chat.terminal.app import TerminalChat

_LISTED = 15
_EXPORTS: Mapping[str, ExportFormat] = MappingProxyType({ending: kind for kind, ending in ENDINGS.items()})


class Command(Struct, frozen=True):
    """How a command is called, and what it does."""

    takes: str
    about: str


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "help": Command("", "list the commands"),
        "model": Command("[NAME]", "list the models; switch to one"),
        "key": Command("PROVIDER [forget]", "paste an API key of a provider, or remove it"),
        "history": Command("[N|all|rounds]", "show the log: versions, kinds, rounds, usage"),
        "tokens": Command("", "show the context size, the tokens used and their cost"),
        "compact": Command("", "replace earlier turns by a summary"),
        "rollback": Command("[VERSION]", "undo the last message, or return to a version"),
        "fork": Command("[VERSION]", "continue in a copy, from here or from a version"),
        "regenerate": Command("[MODEL]", "answer the last message again in a branch"),
        "compare": Command("MODEL", "let another model answer the last message too, and show both"),
        "retry": Command("", "resume a turn that failed, stopped or is pending approval"),
        "memory": Command("[edit|add TEXT|set TEXT|clear]", "show or change the notebook the model always sees"),
        "system": Command("[TEXT|edit|clear]", "show or change the system instruction"),
        "tools": Command("", "list the tools"),
        "mcp": Command("[add|remove|test|…]", "list or change the MCP servers"),
        "plans": Command("[ID]", "list the plans and their progress"),
        "expand": Command("[N]", "expand a collapsed block: the last, or the Nth last"),
        "title": Command("[TEXT|auto]", "show or set the title, or let the model write it"),
        "new": Command("", "start a new conversation"),
        "resume": Command("[N|ID]", "list the conversations; resume one"),
        "export": Command("[FILE]", "save this conversation: .jsonl, .md, .json, or .html to share"),
        "quit": Command("", "quit (Ctrl-D)"),
    }
)
"""Every command by name."""


class Commands:
    """Runs the commands of a chat."""

    def __init__(self, chat: TerminalChat) -> None:
        self._chat = chat

    async def run(self, line: str) -> None:
        """Run a line that starts with a slash."""
        name, _, argument = line[1:].partition(" ")
        if name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, n=3)
            names = translate(" or ").join(f"/{each}" for each in near)
            advice = translate("did you mean {names}?", names=names) if near else translate("/help lists them")
            raise translated(
                ConversationError,
                "unknown command /{name}; {advice} (Start a message with // to send it as text.)",
                name=name,
                advice=advice,
            )
        await getattr(self, name)(argument.strip())

    async def help(self, _: str) -> None:
        rows = [(_usage(name).rstrip(), translate(each.about)) for name, each in COMMANDS.items()]
        heads = (translate("COMMAND"), translate("DOES"))
        self._chat.show(self._chat.renderer.table(heads, rows, wraps=True))
        self._chat.say(
            "Enter sends; Alt-Enter, or Enter after a backslash, starts a new line. @file attaches a file. Messages "
            "sent while a turn runs are queued; Ctrl-C stops the turn and returns queued messages to the input. "
            "Ctrl-O expands collapsed blocks. Tab completes.",
            "dim",
        )

    async def model(self, wanted: str) -> None:
        session = self._chat.session
        if wanted:
            self._chat.say("Model set to {model}", "green", model=session.set_model(wanted))
            return
        await self._chat.show_models(is_long=True)
        self._chat.say("/model NAME switches; NAME may be part of a name, or any provider/model.", "dim")

    async def key(self, argument: str) -> None:
        session = self._chat.session
        name, _, rest = argument.partition(" ")
        if not name:
            names = ", ".join(providers_with_keys())
            raise translated(
                ConversationError, "usage: /key PROVIDER [forget]; PROVIDER is one of: {names}", names=names
            )
        if rest == "forget":
            if not session.setup.forget_key(name):
                raise translated(ConversationError, "no key of {provider} was pasted or stored here", provider=name)
            self._chat.say("Key of {provider} removed.", "green", provider=name)
            return
        if rest:  # it would be in the scrollback and in the list of typed lines
            raise translated(
                ConversationError,
                "do not type a key after the command; send /key {provider} and paste it",
                provider=name,
            )
        check_provider(name)
        key = await self._chat.ask_secret("key of {provider} (not shown) › ", provider=name)
        keep = (await self._chat.ask("store it on this machine? y/n › ")).strip().lower()
        model = session.setup.add_key(name, key, is_stored=keep in ("y", "yes", "是"))
        self._chat.say("Key of {provider} set.", "green", provider=name)
        if model:
            self._chat.say("Model set to {model}", "green", model=session.set_model(model))
        else:
            await self._chat.show_models(is_long=True)

    async def history(self, which: str) -> None:
        snapshot = self._chat.session.history.snapshot()
        if which == "rounds":
            self._chat.show(rounds_table(self._chat.renderer, snapshot))
            return
        last = None if which == "all" else _number(which, "history") if which else 30
        self._chat.show(history_table(self._chat.renderer, snapshot, last))
        usage = self._chat.session.chat.usage
        self._chat.say("version {version}, {usage}", "dim", version=snapshot.version, usage=usage_line(usage))

    async def tokens(self, _: str) -> None:
        chat = self._chat.session.chat
        self._chat.say("Context: {tokens:,} tokens.", tokens=chat.tokens)
        self._chat.say("Used so far: {usage}.", usage=usage_line(chat.usage))
        for line in cost_lines(spending_of(chat.history.entries)):
            self._chat.say(line)

    async def compact(self, _: str) -> None:
        session = self._chat.session
        before = session.chat.tokens
        entry = await compact(session.chat)
        self._chat.show(self._chat.renderer.markdown(segment_text(entry)))
        self._chat.say(
            "Summarized entries {since} to {to}: {before:,} tokens before, {after:,} after. Undo with /rollback {version}.",
            "dim",
            since=max(1, entry.since),
            to=entry.up_to,
            before=before,
            after=session.chat.tokens,
            version=entry.sequence_number - 1,
        )

    async def rollback(self, to: str) -> None:
        history = self._chat.session.history
        done = roll_back(history, _number(to, "rollback") if to else None)
        self._chat.say(
            "Rolled back to version {version}. Undo with /rollback {previous}.",
            "green",
            version=done.version,
            previous=done.previous,
        )
        if done.message:
            self._chat.editor.prefill(done.message)

    async def fork(self, at: str) -> None:
        session = self._chat.session
        session.fork(_number(at, "fork") if at else None)
        info = session.info
        self._chat.say(
            "Now in {id}, forked from {parent} at version {version}.",
            "green",
            id=info.id,
            parent=info.parent,
            version=info.forked_at,
        )

    async def regenerate(self, model: str) -> None:
        session = self._chat.session
        before = session.chat.id
        at = question_before(session.history)
        if model:
            session.find_model(model)
        session.branch(at)
        if model:
            session.set_model(model)
        self._chat.say(
            "Answering again in {id}; the first answer stays in {parent}.", "green", id=session.chat.id, parent=before
        )
        await self._chat.play()

    async def compare(self, wanted: str) -> None:
        session = self._chat.session
        if not wanted:
            raise translated(ConversationError, "usage: /compare MODEL; /model lists the models")
        model = session.find_model(wanted)
        original, before = session.history, session.chat.model
        replay = Replay(original, f"entry:{question_before(original)}", calls="ask")
        session.start_replay(replay, model)
        try:
            await self._chat.play()
        finally:
            session.leave_branch(original.id, before)
        lines = comparison_lines(compare(original, replay.branch), self._chat.renderer.columns)
        self._chat.show("\n".join(lines))
        self._chat.say(
            "Still in {id} with {model}; /resume {other} continues the other answer.",
            "dim",
            id=original.id,
            model=before,
            other=replay.branch.id,
        )

    async def retry(self, _: str) -> None:
        turn = self._chat.session.chat.turn
        if not (turn.open_calls or turn.needs_model):
            raise translated(ConversationError, "the last turn is finished; send a new message")
        await self._chat.play()

    async def memory(self, argument: str) -> None:
        history = self._chat.session.history
        verb, _, text = argument.partition(" ")
        match verb:
            case "":
                self._chat.show(
                    self._chat.renderer.markdown(history.memory_notebook) or translate("The notebook is empty.")
                )
                return
            case "edit":
                text = await self._edited(history.memory_notebook, translate("notebook › "))
            case "add" if text.strip():
                text = f"{history.memory_notebook}\n{text}".strip()
            case "set" if text.strip():
                pass
            case "clear":
                text = ""
            case "add" | "set":
                raise translated(ConversationError, "usage: {usage}", usage=_usage("memory"))
            case _:
                raise translated(
                    ConversationError,
                    "unknown subcommand {name!r}; usage: {usage}",
                    name=verb[:40],
                    usage=_usage("memory"),
                )
        set_texts(history, memory=text)
        self._chat.say("Notebook saved (version {version}).", "green", version=history.version)

    async def system(self, argument: str) -> None:
        history = self._chat.session.history
        if not argument:
            self._chat.show(
                self._chat.renderer.markdown(history.system_instruction) or translate("No system instruction.")
            )
            return
        text = "" if argument == "clear" else argument
        if argument == "edit":
            text = await self._edited(history.system_instruction, translate("system › "))
        set_texts(history, system=text)
        self._chat.say("System instruction saved (version {version}).", "green", version=history.version)

    async def mcp(self, argument: str) -> None:
        await McpCommand(self._chat).run(argument)

    async def tools(self, _: str) -> None:
        session = self._chat.session
        await session.open_tools()
        tools = session.tools
        if not tools:
            self._chat.say("Tools are disabled (--no-tools).")
            return
        rows = [
            (
                tool.name,
                tool.effect,
                translate("approval") if session.needs_approval(tool) else "",
                tool.description.split("\n")[0],
            )
            for tool in tools
        ]
        self._chat.show(
            self._chat.renderer.table((translate("TOOL"), translate("EFFECT"), "", translate("DESCRIPTION")), rows)
        )

    async def plans(self, which: str) -> None:
        store = self._chat.session.plans
        if which:
            self._chat.show(self._chat.renderer.plan(store.get(which)))
            return
        plans = store.list()
        if not plans:
            self._chat.say("No plans yet; ask for one.")
            return
        rows = [(plan.id, translate(plan.status), _progress(plan), plan.title) for plan in plans]
        heads = (translate("PLAN"), translate("STATUS"), translate("DONE"), translate("TITLE"))
        self._chat.show(self._chat.renderer.table(heads, rows))
        self._chat.show(self._chat.renderer.plan(plans[-1]))

    async def expand(self, which: str) -> None:
        self._chat.expand(_number(which, "expand") if which else 1)

    async def title(self, text: str) -> None:
        session = self._chat.session
        if text == "auto":
            text = await session.written_title()
            if not text:
                raise translated(ConversationError, "no title was written; send a message to a model first")
        if text:
            set_title(session.store, session.chat.id, text)
        self._chat.show(self._chat.renderer.line(session.info.title or translate("(no title yet)")))

    async def new(self, _: str) -> None:
        self._chat.session.new()
        self._chat.say("New conversation with {model}.", "green", model=self._chat.session.chat.model)

    async def resume(self, which: str) -> None:
        session = self._chat.session
        here = session.chat.id
        listed = [info for info in session.store.list(limit=_LISTED + 1) if info.id != here and info.version]
        if not which:
            rows = [
                (str(number), format_time(info.updated), info.id[-6:], info.title)
                for number, info in enumerate(listed[:_LISTED], 1)
            ]
            heads = ("", translate("CHANGED"), "ID", translate("TITLE"))
            self._chat.show(self._chat.renderer.table(heads, rows) if rows else translate("No other conversations."))
            return
        if which.isdecimal() and len(which) < 3:
            if not 1 <= int(which) <= len(listed):
                raise translated(
                    ConversationError, "no conversation {number} in the list; /resume shows the list", number=which
                )
            which = listed[int(which) - 1].id
        session.open(which)
        self._chat.say(f"{session.info.title or translate('(no title)')} · {session.chat.id}", "green")
        self._chat.show_last()

    async def export(self, name: str) -> None:
        session = self._chat.session
        path = Path(name or f"{session.chat.id}.jsonl").expanduser()
        if path.exists():
            raise translated(StoreError, "{path} already exists; give another name", path=path)
        kind = _EXPORTS.get(path.suffix.lower())
        with atomic_write(path) as file:
            if kind is None:
                file.writelines(session.store.export_lines(session.chat.id))
            else:
                file.write(export(kind, session.info, session.history.snapshot(), current_language()))
        if kind is None:
            self._chat.say("Exported to {path}. Import it with `antiphon history import`.", "green", path=path)
        else:
            self._chat.say("Saved as {path}.", "green", path=path)

    async def quit(self, _: str) -> None:
        self._chat.leave()

    async def _edited(self, text: str, prompt: str) -> str:
        """The text as edited by the user: in their editor if one is set, else in the input line."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            return (await self._chat.ask(prompt, text)).strip()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "text.md"
            file.write_text(text, encoding="utf-8")
            codes: list[int] = []
            await self._chat.editor.run_suspended(lambda: codes.append(_ran([*shlex.split(editor), str(file)])))
            if codes[0]:
                raise translated(
                    AntiphonError, "{editor} exited with {code}; nothing was changed", editor=editor, code=codes[0]
                )
            return file.read_text(encoding="utf-8").strip()


def _ran(command: list[str]) -> int:
    try:
        return subprocess.run(command, check=False).returncode
    except OSError as error:
        reason = error.strerror or error
        raise translated(
            AntiphonError, "cannot start the editor {editor}: {error}", editor=command[0], error=reason
        ) from error


def _usage(command: str) -> str:
    return f"/{command} {COMMANDS[command].takes}"


def _number(text: str, command: str) -> int:
    """The number that was given to a command."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise translated(
            ConversationError, "invalid number {text!r}; usage: {usage}", text=text[:40], usage=_usage(command)
        )
    return int(text)


def _progress(plan: Plan) -> str:
    return f"{plan.tasks_done}/{len(plan.tasks)}"
