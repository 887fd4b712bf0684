"""The exceptions Antiphon raises, in one small tree.

Each message says what was wrong, where (file, line, conversation, entry) and what to do. Catch `AntiphonError` to catch them
all; a bare `ValueError` or `sqlite3.Error` reaching a caller is a bug of ours.
"""

from __future__ import annotations


class AntiphonError(Exception):
    """Anything Antiphon refuses or cannot do."""


class ExtraMissing(AntiphonError):
    """Something that belongs to an extra which is not installed. The message names it."""


class HistoryError(AntiphonError):
    """An operation on a history that would break it, and was not done."""


class NotAppendable(HistoryError):
    """What was given is no entry of the log (a decorated one, say), or cannot be written down."""


class OutOfSequence(HistoryError):
    """A version or sequence number that does not fit the log."""


class WriterConflict(HistoryError):
    """Somebody else writes this history. Reopen it, look at what is new, and append again."""


class LeaseHeld(WriterConflict):
    """Somebody holds the conversation: nobody else writes until they are done, or their lease runs out."""


class LeaseLost(WriterConflict):
    """The conversation was claimed by somebody else, who goes on with it. Nothing more of ours is written: stop."""


class StoreError(AntiphonError):
    """The store cannot do what was asked; what it held, it still holds."""


class UnknownConversation(StoreError):
    """No conversation has that id."""


class ConversationExists(StoreError):
    """A conversation with that id is already there."""


class StoreLocked(StoreError):
    """Another process held the file for longer than we were willing to wait."""


class StoreReadOnly(StoreError):
    """The file or its folder cannot be written."""


class StoreFull(StoreError):
    """The disk, or the limit set on the file, is full. The entry was not written."""


class StoreDamaged(StoreError):
    """The file is damaged, or is not ours."""


class UnknownResponse(StoreError):
    """No kept response, or item of one, has that id. `code` and `param` are what OpenAI's clients look for."""

    def __init__(self, message: str, *, status: int = 404, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class StoreUnreachable(StoreError):
    """The server of the store does not answer, or broke off. What it acknowledged before, it has."""


class SharedStoreAway(AntiphonError):
    """The store that gateways share does not answer, or refuses; each of them goes on alone until it is back."""


class UnknownRun(StoreError):
    """No run has that id."""


class RunRefused(StoreError):
    """A run that cannot be had as things stand; nothing was changed."""


class TooManyRuns(RunRefused):
    """So many runs wait already that no more are taken. Try again later."""


class RunBookRefused(AntiphonError):
    """A book of runs that cannot be used: nowhere to be found, two kinds of one name, a kind that gives no loop."""


class ImportRefused(StoreError):
    """An export that cannot be imported; nothing of it was."""


class ContextError(AntiphonError):
    """A live context that cannot be rendered as asked."""


class WireError(AntiphonError):
    """A body that cannot be read in the format it was said to be in."""


class ScriptError(AntiphonError):
    """A scripted model was given something it cannot say."""


class ScriptExhausted(ScriptError):
    """A scripted model was called once more than it has turns."""


class RoutingError(AntiphonError):
    """The name of a model that leads to no provider, or routes that lead nowhere."""


class InvalidModelName(RoutingError):
    """A name that no model can have: too long, with control characters, or with dot segments."""


class PlanRefused(StoreError):
    """A plan, or a change of one, that cannot be kept; nothing was changed."""


class UnknownPlan(PlanRefused):
    """No plan has that id."""


class PlanChanged(PlanRefused):
    """Somebody else changed the plan since it was read."""


class DocumentsUnreadable(AntiphonError):
    """A folder of documents that cannot be searched."""


class InvalidTool(AntiphonError):
    """A tool that cannot be offered: a signature no schema can say, settings that contradict each other, a name taken twice."""


class ToolError(AntiphonError):
    """Raised by a tool to tell the model what went wrong. With `retry=False` it is not tried again."""

    def __init__(self, message: str, *, retry: bool = True) -> None:
        super().__init__(message)
        self.retry = retry


class InvalidArguments(ToolError):
    """Arguments a tool does not take. The message is written for the model that wrote them; `problems` are its single lines."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, retry=False)
        self.problems = problems


class McpUnavailable(AntiphonError):
    """An MCP server that cannot be started, reached or understood."""


class ConversationError(AntiphonError):
    """Something a conversation was asked for that it cannot do."""


class GraphError(AntiphonError):
    """A step of a graph that cannot be made as things stand; nothing was written."""


class RunOvertaken(GraphError):
    """Another run of the thread has gone on with the conversation since this one began. Invoke the graph again."""


class TurnOver(GraphError):
    """The turn has come to a bound, and the graph leads to the model once more. The log says which."""


class ProviderSetupError(AntiphonError):
    """A provider that cannot be set up as it was asked for."""


class UnknownProvider(ProviderSetupError):
    """No provider has that name."""


class CredentialError(AntiphonError):
    """A credential that cannot be read or used. The message never holds it."""


class NoUsableCredential(CredentialError):
    """Every credential rests, is refused or is switched off. `soonest` is in how many seconds one may be tried again."""

    def __init__(self, message: str, soonest: float | None = None, kind: str = "permission") -> None:
        super().__init__(message)
        self.soonest = soonest
        self.kind = kind


class TransportError(AntiphonError):
    """An exchange over the network that did not come to its end. `code` is a word for what happened."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class MediaRefused(AntiphonError):
    """Media behind an address that was not fetched. The message is for the client: it tells nothing of our own network."""


class ServeRefused(AntiphonError):
    """The gateway cannot begin to serve."""
