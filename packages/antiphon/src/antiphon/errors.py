"""The exceptions Antiphon raises, in one small tree.

Each message says what failed, where (file, line, conversation, entry) and what to do. Catch `AntiphonError` to catch them
all; a bare `ValueError` or `sqlite3.Error` reaching a caller is a bug.
"""

from __future__ import annotations


class AntiphonError(Exception):
    """Base class: something Antiphon refuses or cannot do."""


class ExtraMissing(AntiphonError):
    """A feature of an optional extra that is not installed. The message names the extra."""


class HistoryError(AntiphonError):
    """An operation that would break a history; it was not done."""


class InvalidEntry(HistoryError):
    """The value is not an entry of the log (a decorated one, for example), or cannot be stored."""


class SequenceError(HistoryError):
    """A version or sequence number that does not fit the log."""


class WriterConflict(HistoryError):
    """Another process writes this history. Reopen it, read the new entries, and append again."""


class LeaseHeld(WriterConflict):
    """Another process holds the lease of this conversation; writing is possible after it is released or expires."""


class LeaseLost(WriterConflict):
    """Another process claimed the conversation and continues it. Stop: no further write will succeed."""


class StoreError(AntiphonError):
    """The store cannot do what was asked. Stored data is unchanged."""


class UnknownConversation(StoreError):
    """No conversation has that id."""


class ConversationExists(StoreError):
    """A conversation with that id already exists."""


class StoreLocked(StoreError):
    """Another process kept the file locked for longer than the timeout."""


class StoreBusy(StoreError):
    """Too many calls wait for the store. This one was not begun."""


class StoreReadOnly(StoreError):
    """The file or its folder is not writable."""


class StoreFull(StoreError):
    """The disk, or the limit set on the file, is full. The entry was not written."""


class StoreDamaged(StoreError):
    """The file is corrupt, or not an Antiphon store."""


class TapeError(StoreError):
    """A tape (recorded requests and answers) that cannot be read or written, or has no such exchange."""


class UnknownResponse(StoreError):
    """No stored response, or item of one, has that id. `code` and `param` are the fields OpenAI's clients read."""

    def __init__(self, message: str, *, status: int = 404, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class StoreUnreachable(StoreError):
    """The database server does not answer, or the connection broke. Acknowledged writes are safe."""


class SharedStoreUnavailable(AntiphonError):
    """The store that gateways share does not answer. Each process works on its own until it is reachable again."""


class UnknownRun(StoreError):
    """No run has that id."""


class RunStateError(StoreError):
    """The run is not in a state that allows this; nothing was changed."""


class TooManyRuns(RunStateError):
    """The queue of waiting runs is full. Try again later."""


class RunConfigError(AntiphonError):
    """The registry of runs cannot be used: not found, two kinds with one name, or a kind that returns no loop."""


class ImportFormatError(StoreError):
    """The export cannot be imported; nothing was written."""


class SessionError(AntiphonError):
    """A session of another program cannot be found, read or written. The message names the file."""


class ContextError(AntiphonError):
    """The live context cannot be rendered with these options."""


class WireError(AntiphonError):
    """A body that is not valid in the stated format."""


class ScriptError(AntiphonError):
    """A scripted model was given something it cannot replay."""


class ScriptExhausted(ScriptError):
    """A scripted model was called more often than its script has turns."""


class RoutingError(AntiphonError):
    """A model name without a provider, or a route without a target."""


class InvalidModelName(RoutingError):
    """A name that no model can have: too long, with control characters, or with dot segments."""


class PlanError(StoreError):
    """A plan, or a change to one, that cannot be stored; nothing was changed."""


class UnknownPlan(PlanError):
    """No plan has that id."""


class PlanChanged(PlanError):
    """Another writer changed the plan since it was read."""


class DocumentFolderError(AntiphonError):
    """A folder of documents that cannot be searched."""


class InvalidSetting(AntiphonError, ValueError):
    """A setting whose value cannot be used. The message names it, the value and what is allowed."""


class InvalidTool(AntiphonError):
    """A tool that cannot be offered: a signature without a JSON Schema, contradicting settings, a duplicate name."""


class ToolError(AntiphonError):
    """Raised by a tool to report a failure to the model. With `retry=False` the call is not retried."""

    def __init__(self, message: str, *, retry: bool = True) -> None:
        super().__init__(message)
        self.retry = retry


class InvalidArguments(ToolError):
    """Arguments a tool does not accept. The message is written for the model; `problems` are its lines."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, retry=False)
        self.problems = problems


class ToolWarning(UserWarning):
    """A tool that works but is described badly: it has no description, or a parameter without a type."""


class McpUnavailable(AntiphonError):
    """An MCP server that cannot be started, reached or understood."""


class ConversationError(AntiphonError):
    """An operation the conversation cannot do in its present state."""


class CallRefused(ConversationError):
    """A hook, or a limit of the run, refused a model call; the message is the reason."""


class ContextLimitReached(CallRefused):
    """The next request is larger than the limit, and nothing more can be left out; the message names the largest piece."""


class InvalidOutput(ConversationError):
    """The model's answer does not have the type that was asked for. The message is what is wrong with it."""


class ApprovalPending(ConversationError):
    """Calls that need a person were not run; all others were. Decide each of `tool_call_ids`, then run the calls again."""

    def __init__(self, message: str, tool_call_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.tool_call_ids = tool_call_ids


class GraphError(AntiphonError):
    """A graph step that cannot run in this state; nothing was written."""


class StaleRunError(GraphError):
    """Another run of this thread continued the conversation after this one started. Invoke the graph again."""


class TurnLimitReached(GraphError):
    """The turn reached a limit and the graph routed to the model again. The log names the limit."""


class ProviderSetupError(AntiphonError):
    """A provider that cannot be configured as requested."""


class UnknownProvider(ProviderSetupError):
    """No provider has that name."""


class CredentialError(AntiphonError):
    """A credential that cannot be read or used. The message never contains it.

    `retry_after`: seconds until it may be tried again.
    """

    kind: str = "authentication"
    retry_after: float | None = None


class NoUsableCredential(CredentialError):
    """Every key is cooling down, rejected or disabled."""

    def __init__(self, message: str, retry_after: float | None = None, kind: str = "permission") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.kind = kind


class TransportError(AntiphonError):
    """An HTTP exchange that did not complete. `code` is a machine-readable reason."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class MediaFetchError(AntiphonError):
    """Media at a URL that was not fetched. The message is safe to show to clients."""


class GatewayStartError(AntiphonError):
    """The gateway cannot start."""
