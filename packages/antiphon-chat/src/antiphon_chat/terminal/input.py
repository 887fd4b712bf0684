"""`LineEditor`: the input line, always visible, with live output above it (built on prompt_toolkit).

It is also the `Screen` of a terminal chat. Committed text is written above it, live output is drawn between that and the input,
and the user can type while a turn runs. A sent message is erased here; the chat prints it when its turn starts.

Enter sends. Alt-Enter, or Enter after a backslash, starts a new line; pasted text keeps its lines. A long paste is shown as a
short mark in brackets and sent whole.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from getpass import getpass
from pathlib import Path
from typing import Any

from msgspec import Struct

from antiphon.cli.terminal import BIDI_CONTROLS, escape_control_chars, wrapped
from antiphon.errors import AntiphonError
from antiphon.private_files import create_private_file
from antiphon.threads import Threads
from antiphon_chat.language import translate
from antiphon_chat.terminal.render import Renderer

PROMPT = "› "
_FOLD_OVER_CHARS, _FOLD_OVER_LINES = 2_000, 12
_MENU_ROWS = 4
_TYPING_COLUMNS = 4
"""What a prompt leaves free in its line."""


class LineEditor:
    """Reads lines, and draws above them.

    `interrupt` is called for Ctrl-C, `expand` for Ctrl-O; `words` gives the arguments of commands for completion, `status` the
    line above the input, `placeholder` what the empty input shows.
    """

    def __init__(
        self,
        renderer: Renderer,
        commands: Mapping[str, str],
        *,
        words: Callable[[], Mapping[str, Sequence[str]]],
        status: Callable[[], str],
        placeholder: Callable[[], str],
        interrupt: Callable[[], None],
        expand: Callable[[], None],
        history: Path | None = None,
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.layout.screen import Char
        from prompt_toolkit.output import ColorDepth
        from prompt_toolkit.output.vt100 import Vt100_Output

        # prompt_toolkit shows the other control characters of the input by this table; arguments to edit come from a model.
        Char.display_mappings.update({char: escape_control_chars(char) for char in BIDI_CONTROLS})
        self.live: Callable[[], str] = str
        self.prompt = PROMPT
        self.is_secret = False
        """Whether what is typed is neither shown nor kept."""
        self._renderer = renderer
        self._status = status
        self._interrupt = interrupt
        self._expand = expand
        self._take: Callable[[str], None] = lambda _: None
        self._committed: list[str] = []
        self._pastes: dict[str, str] = {}
        self._paste_count = 0
        self._is_suspended = False
        output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
        output.enable_cpr = False  # otherwise each commit would query the cursor position
        self._session: Any = PromptSession(
            self._message,
            multiline=True,
            history=_history(history),
            completer=_completer(commands, words),
            complete_while_typing=True,
            complete_in_thread=True,
            key_bindings=self._bindings(),
            color_depth=None if renderer.use_color else ColorDepth.DEPTH_1_BIT,
            reserve_space_for_menu=_MENU_ROWS,
            erase_when_done=True,
            is_password=Condition(lambda: self.is_secret),
            output=output,
            placeholder=lambda: [("fg:ansibrightblack", placeholder())],
        )

    async def run(self, take: Callable[[str], None]) -> None:
        """Read until Ctrl-D; `take` gets each message that is sent."""
        self._take = take
        with suppress(EOFError):
            await self._session.prompt_async(handle_sigint=False, set_exception_handler=False)
        self._print()

    def stop(self) -> None:
        """Stop reading."""
        if self._session.app.is_running:
            self._session.app.exit(exception=EOFError)

    def prefill(self, text: str) -> None:
        """Put text before what is being typed."""
        buffer = self._session.default_buffer
        buffer.text = f"{text}\n{buffer.text}" if buffer.text else text
        buffer.cursor_position = len(buffer.text)

    def take(self) -> str:
        """Take the unsent text out of the input."""
        text: str = self._session.default_buffer.text
        self._session.default_buffer.reset()
        return text

    def commit(self, text: str) -> None:
        self._committed.append(text)

    async def flush(self) -> None:
        if not self._is_suspended:
            self._print()
            self._session.app.invalidate()

    async def run_suspended(self, work: Callable[[], None]) -> None:
        """Give the terminal to something else (an editor) for a while."""
        from prompt_toolkit.application import run_in_terminal

        self._is_suspended = True
        try:
            await run_in_terminal(work)
        finally:
            self._is_suspended = False

    def _print(self) -> None:
        """Write committed text above the input, which is erased before and redrawn after it.

        The terminal stays in raw mode meanwhile: otherwise keys typed in that moment would be echoed.
        """
        if not self._committed:
            return
        app = self._session.app
        if app.is_running:
            app.renderer.erase()
        app.output.write_raw("".join(f"{text}\n" for text in self._committed).replace("\n", "\r\n"))
        app.output.flush()
        self._committed.clear()

    def _message(self) -> Any:
        from prompt_toolkit.formatted_text import ANSI

        # prompt_toolkit shows nothing of a prompt that is wider than the terminal, so all but the end of it stands above.
        asked = list(wrapped(self.prompt.rstrip(), self._renderer.columns - _TYPING_COLUMNS))
        typed = self._session.default_buffer.document.line_count
        room = max(1, self._renderer.rows - _MENU_ROWS - 2 - len(asked) - typed)
        live = self.live()
        moving = live.split("\n")[-room:] if live else []
        return ANSI("\n".join([*moving, "", self._renderer.one_line(self._status(), "dim"), *asked]) + " ")

    def _send(self, buffer: Any) -> None:
        text: str = buffer.text
        for mark in [mark for mark in self._pastes if mark in text]:
            text = text.replace(mark, self._pastes.pop(mark))
        buffer.text = text  # so that the list of typed lines has the whole text
        if text.strip() and not self.is_secret and not text.startswith("/key "):  # a key may follow
            buffer.append_to_history()
        buffer.reset()
        self._take(text)

    def _bindings(self) -> Any:
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.keys import Keys

        bindings = KeyBindings()

        @bindings.add("enter")
        def _(event: Any) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                self._send(buffer)

        @bindings.add("escape", "enter")
        def _(event: Any) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("c-c")
        def _(_: Any) -> None:
            self._interrupt()

        @bindings.add("c-o")
        def _(_: Any) -> None:
            self._expand()

        @bindings.add(Keys.BracketedPaste)
        def _(event: Any) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            if is_long_paste(text) and not self.is_secret:
                self._paste_count += 1
                mark = translate("[pasted {number}: {count:,} characters]", number=self._paste_count, count=len(text))
                self._pastes[mark] = text
                text = mark
            event.current_buffer.insert_text(text)

        return bindings


_TYPED = Threads("terminal", workers=1, waiting=1)


class PlainInput:
    """Reads lines on a terminal that can only print. It draws nothing, and reads only while `is_free` is set (no turn runs)."""

    def __init__(self, is_free: asyncio.Event) -> None:
        self.live: Callable[[], str] = str
        self.prompt = PROMPT
        self.is_secret = False
        self._is_free = is_free
        self._is_stopped = False

    async def run(self, take: Callable[[str], None]) -> None:
        """Read until Ctrl-D; `take` gets each message."""
        await self._is_free.wait()
        while not self._is_stopped and (text := await _TYPED.run(self._read)) is not None:
            take(text)
            await self._is_free.wait()

    def stop(self) -> None:
        """Stop reading."""
        self._is_stopped = True

    def _read(self) -> str | None:
        if self.is_secret:
            return getpass(self.prompt.replace("›", ">"))
        _write(self.prompt.replace("›", ">"))
        lines: list[str] = []
        while line := sys.stdin.readline():
            lines.append(line.rstrip("\n"))
            if not line.endswith("\\\n"):
                return "\n".join([*(each.removesuffix("\\") for each in lines[:-1]), lines[-1]])
        return None

    def prefill(self, text: str) -> None:
        """Nothing can be typed ahead here, so it is shown."""
        _write(f"{escape_control_chars(text)}\n")

    def take(self) -> str:
        """Nothing is being typed."""
        return ""

    def commit(self, text: str) -> None:
        _write(f"{text}\n")

    async def flush(self) -> None:
        sys.stdout.flush()

    async def run_suspended(self, work: Callable[[], None]) -> None:
        """Let something else have the terminal."""
        work()


def is_long_paste(text: str) -> bool:
    """Whether pasted text is shown as a mark."""
    return len(text) > _FOLD_OVER_CHARS or text.count("\n") >= _FOLD_OVER_LINES


def require_extra() -> None:
    """Raise an error with the install command if packages of the extra `chat` are missing."""
    try:
        import prompt_toolkit  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        raise AntiphonError(
            f"the chat on a terminal needs the package {error.name}: pip install 'antiphon[chat]'; "
            'without it there is `antiphon chat -p "…" | cat`'
        ) from error


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _history(path: Path | None) -> Any:
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    if path is None:
        return InMemoryHistory()
    try:
        create_private_file(path)
    except OSError:
        return InMemoryHistory()

    class LenientHistory(FileHistory):
        """A full disk must not end the chat."""

        def store_string(self, string: str) -> None:
            with suppress(OSError):
                super().store_string(string)

    return LenientHistory(str(path))


def _completer(commands: Mapping[str, str], words: Callable[[], Mapping[str, Sequence[str]]]) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class ChatCompleter(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Any:  # noqa: ARG002
            for each in completions(document.text_before_cursor, commands, words()):
                yield Completion(each.text, start_position=-each.length, display_meta=each.about)

    return ChatCompleter()


_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]*)|([^"\s]*))$')
_MOST_FILES = 50


class Completion(Struct, frozen=True):
    """A completion that replaces the last `length` characters, with a short description."""

    text: str
    length: int
    about: str = ""


def completions(typed: str, commands: Mapping[str, str], words: Mapping[str, Sequence[str]]) -> Iterator[Completion]:
    """The completions of `typed`. `words` are the arguments of each command, by name."""
    if typed.startswith("/") and "\n" not in typed:
        name, space, argument = typed.partition(" ")
        if not space:
            yield from (Completion(each, len(name), about) for each, about in commands.items() if each.startswith(name))
            return
        fitting = (word for word in words.get(name, ()) if argument.lower() in word.lower())
        yield from (Completion(word, len(argument)) for word in fitting)
    if mention := _MENTION.search(typed):
        yield from _files(mention[2] if mention[1] is None else mention[1], is_quoted=mention[1] is not None)


def _files(begun: str, *, is_quoted: bool) -> Iterator[Completion]:
    folder, slash, beginning = begun.rpartition("/")
    place = Path(f"{folder}{slash}" or ".").expanduser()
    try:
        found = sorted(os.scandir(place), key=lambda each: each.name)
    except OSError:
        return
    fitting = (
        each
        for each in found
        if each.name.startswith(beginning) and (beginning.startswith(".") or not each.name.startswith("."))
    )
    for number, each in enumerate(fitting):
        if number >= _MOST_FILES:
            return
        is_folder = each.is_dir()
        name = each.name + "/" * is_folder
        about = translate("folder") if is_folder else ""
        if " " in name and not is_quoted:
            yield Completion(f'"{folder}{slash}{name}' + '"' * (not is_folder), len(begun), about)
        else:
            yield Completion(name + '"' * (is_quoted and not is_folder), len(beginning), about)
