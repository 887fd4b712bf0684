"""`/mcp`: the MCP servers of the settings in the terminal. The page has the same list and rules (`chat/mcp/servers.py`)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.errors import ConversationError
from antiphon_chat.language import translate, translated
from antiphon_chat.shared.mcp.servers import McpServers, ServerReport, ServerView
from antiphon_chat.shared.mcp.settings import Approval, ServerChange

if TYPE_CHECKING:
    from antiphon_chat.terminal.app import TerminalChat

USAGE = (
    "/mcp · /mcp add NAME [--env VARIABLE]… [--header NAME]… [--folder DIR] COMMAND or ADDRESS · "
    "/mcp remove|enable|disable|test|show NAME · /mcp approval NAME[__TOOL] ask|allow|never"
)
SUBCOMMANDS = ("add ", "remove ", "enable ", "disable ", "test ", "show ", "approval ")


class NewServer(Struct, frozen=True):
    """What follows `/mcp add`."""

    name: str
    target: str
    folder: str | None
    variables: tuple[str, ...]
    headers: tuple[str, ...]


def read_new_server(words: list[str]) -> NewServer:
    """The server that these words describe. Raises `ConversationError`."""
    given: dict[str, list[str]] = {"--env": [], "--header": [], "--folder": []}
    rest = words[1:]
    while len(rest) > 1 and rest[0] in given:
        given[rest[0]].append(rest[1])
        rest = rest[2:]
    if not rest or rest[0] in given or any("=" in name for name in given["--env"] + given["--header"]):
        raise usage_error()
    target = rest[0] if len(rest) == 1 and rest[0].startswith(("http://", "https://")) else shlex.join(rest)
    folder = given["--folder"][-1] if given["--folder"] else None
    return NewServer(words[0], target, folder, tuple(given["--env"]), tuple(given["--header"]))


def usage_error() -> ConversationError:
    """The error for words that make no command."""
    return translated(ConversationError, "usage: {usage}", usage=USAGE)


class McpCommand:
    """Runs `/mcp` in a chat."""

    def __init__(self, chat: TerminalChat) -> None:
        self._chat = chat

    @property
    def _servers(self) -> McpServers:
        return self._chat.session.mcp

    async def run(self, argument: str) -> None:
        """Run what follows `/mcp`. Raises `ConversationError` or `InvalidTool`."""
        if not self._chat.session.settings.has_tools:
            raise translated(ConversationError, "Tools are disabled (--no-tools).")
        try:
            words = shlex.split(argument)
        except ValueError as error:
            raise ConversationError(f"/mcp: {error}") from None
        match words:
            case [] | ["list"]:
                self._list()
            case ["add", _, _, *_]:
                await self._add(read_new_server(words[1:]))
            case ["remove", name]:
                await self._servers.remove(name)
                self._chat.say("MCP server {name} removed.", "green", name=name)
            case ["enable", name]:
                if (digest := await self._confirmed(self._servers.view(name))) is not None:
                    self._show_state(await self._servers.change(name, ServerChange(enabled=True, confirm=digest)))
            case ["disable", name]:
                self._show_state(await self._servers.change(name, ServerChange(enabled=False)))
            case ["test", name]:
                if (digest := await self._confirmed(self._servers.view(name))) is not None:
                    self._show_report(name, await self._servers.test(name, digest))
            case ["show", name]:
                self._show_tools(self._servers.view(name))
            case ["approval", name, "ask" | "allow" | "never" as approval]:
                await self._set_approval(name, approval)
            case _:
                raise usage_error()

    def _list(self) -> None:
        views = self._servers.views()
        if not views:
            self._chat.say("No MCP servers. Add one: {usage}", usage="/mcp add NAME COMMAND")
            return
        rows = [(view.name, state_text(view), _approval_text(view), view.where) for view in views]
        heads = (translate("SERVER"), translate("STATE"), translate("APPROVAL"), translate("COMMAND OR ADDRESS"))
        self._chat.show(self._chat.renderer.table(heads, rows))
        for view in views:
            if view.error:
                self._chat.say(view.error, "red")

    async def _add(self, new: NewServer) -> None:
        variables: dict[str, str | None] = {name: await self._secret(name) for name in new.variables}
        headers: dict[str, str | None] = {name: await self._secret(name) for name in new.headers}
        change = ServerChange(
            command=new.target, folder=new.folder, variables=variables or None, headers=headers or None
        )
        view = await self._servers.add(new.name, change)
        digest = await self._confirmed(view)
        if digest is None:
            self._chat.say("Stored and switched off. Start it with /mcp enable {name}.", name=view.name)
            return
        self._show_state(await self._servers.change(view.name, ServerChange(enabled=True, confirm=digest)))

    async def _secret(self, name: str) -> str:
        return await self._chat.ask_secret("value of {name} (not shown) › ", name=name)

    async def _confirmed(self, view: ServerView) -> str | None:
        """Show the exact command before it is first run: its digest if it may run, None if not, empty if that is known."""
        if view.is_confirmed:
            return ""
        self._chat.say("MCP server {name} runs this command on your machine:", "yellow", name=view.name)
        self._chat.show(self._chat.renderer.line(f"  {view.where}", "bold"))
        if view.folder:
            self._chat.say("  " + translate("in the folder {folder}", folder=view.folder))
        if view.variables:
            self._chat.say("  " + translate("with the variables {names}", names=", ".join(view.variables)))
        answer = (await self._chat.ask("run it? y/n › ")).strip().lower()
        return view.digest if answer in ("y", "yes", "是") else None

    async def _set_approval(self, name: str, approval: Approval) -> None:
        server = name if name in self._servers.settings.servers else name.partition("__")[0]
        change = ServerChange(approval=approval) if server == name else ServerChange(tools={name: approval})
        await self._servers.change(server, change)
        text = translate("Calls of {name}: {approval}.", name=name, approval=translate(APPROVAL_TEXTS[approval]))
        self._chat.say(text, "green")

    def _show_state(self, view: ServerView) -> None:
        style = "green" if view.state in ("running", "off") else "red"
        self._chat.say(f"{view.name}: {state_text(view)}", style)
        if view.error:
            self._chat.say(view.error, "red")

    def _show_report(self, name: str, report: ServerReport) -> None:
        if report.error:
            self._chat.say(report.error, "red")
            return
        found = translate(
            "{name}: {tools} tools, {resources} resources, {prompts} prompts.",
            name=name,
            tools=len(report.tools),
            resources=len(report.resources),
            prompts=len(report.prompts),
        )
        self._chat.say(found, "green")
        self._show_tools(self._servers.view(name))
        for heading, names in ((translate("Resources"), report.resources), (translate("Prompts"), report.prompts)):
            if names:
                self._chat.say(f"{heading}: {', '.join(names)}")

    def _show_tools(self, view: ServerView) -> None:
        if not view.tools:
            self._chat.say("{name}: its tools are not known yet; /mcp test {name}", name=view.name)
            return
        rows = [
            (one.name, one.effect, translate(APPROVAL_TEXTS[one.approval or view.approval or "allow"]), one.description)
            for one in view.tools
        ]
        heads = (translate("TOOL"), translate("EFFECT"), translate("APPROVAL"), translate("DESCRIPTION"))
        self._chat.show(self._chat.renderer.table(heads, rows))


APPROVAL_TEXTS: dict[Approval, str] = {
    "ask": "ask each time",
    "allow": "always allow",
    "never": "never (not offered)",
}
STATE_TEXTS = {
    "off": "off",
    "unconfirmed": "not confirmed",
    "starting": "starting",
    "running": "running",
    "restarting": "restarting",
    "failed": "failed",
    "idle": "not started",
}


def state_text(view: ServerView) -> str:
    """The state of a server, and how many tools it has."""
    text = translate(STATE_TEXTS[view.state])
    if view.state == "running":
        text += " · " + translate("tools: {count}", count=len(view.tools))
    return text


def _approval_text(view: ServerView) -> str:
    if view.is_fixed:
        return translate("from the command line")
    return translate(APPROVAL_TEXTS[view.approval or "ask"])
