"""One step of a graph: which task it is, what the log contains that the graph has not seen, and its stream.

LangGraph derives a task's id from the checkpoint its step started with and from the node. So a step that runs again, after a
crash or a retry, is the same task, and a run sent back to an earlier checkpoint has new tasks. Before a step writes anything it
leaves a mark in the log: its task, checkpoint, thread, run, and the version its graph had seen. `replay_status` reads those
marks; no model sees them.

Whether another run continued the thread meanwhile follows from the log: a bound graph notes the version of the log when a run
starts (`RunTracker`), and marks of other runs after that version are newer than this run. Checkpoint ids sort by time, and clocks
differ; they are the only evidence where a graph is not bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from time import monotonic
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.conversation import Conversation, LoopEvent, RoundStarted, RunLimits, TextDelta, ThinkingDelta
from antiphon.conversation.turn import INTERRUPTED
from antiphon.conversation.turn_runner import Participants, TurnRunner
from antiphon.errors import GraphError, StaleRunError, TurnLimitReached
from antiphon.history import (
    AgentHistory,
    DebugLogEntry,
    EntryMetadata,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
)
from antiphon.history.snapshot import SETTING_KINDS
from antiphon.ids import new_id
from antiphon.integrations.langchain_messages import to_langchain

MISSING_EXTRA = 'LangGraph is not installed; install the extra: pip install "antiphon[graph]"'
CATEGORY = "graph"
_CHECKPOINT_SECONDS = 2.0

ReplayStatus: TypeAlias = Literal["fresh", "resumed", "kept"]


class TaskInfo(Struct, frozen=True, kw_only=True):
    """A running node. Outside of a graph it has a task id of its own and no thread."""

    task: str
    checkpoint: str = ""
    thread: str = ""
    node: str = ""
    run: str = ""
    """The run of the graph, if its start and end are reported (`Conversations.bind`)."""
    write: Callable[[Any], None] | None = None
    """Writes to `stream_mode="custom"`."""


def current_task(config: Mapping[str, Any], run: str = "") -> TaskInfo:
    """The task of the node that was called with `config`."""
    try:
        from langgraph.runtime import get_runtime
    except ImportError as error:
        raise GraphError(MISSING_EXTRA) from error
    metadata = config.get("metadata") or {}
    try:
        runtime = get_runtime()
    except RuntimeError:  # called outside of a graph
        return TaskInfo(task=new_id(), run=run)
    info = runtime.execution_info
    if info is None:
        return TaskInfo(task=new_id(), run=run, write=runtime.stream_writer)
    return TaskInfo(
        task=info.task_id,
        checkpoint=info.checkpoint_id,
        thread=str(info.thread_id or ""),
        node=str(metadata.get("langgraph_node", "")),
        run=run,
        write=runtime.stream_writer,
    )


class StepMark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that started. `number` is the mark's sequence number, `state` the version its graph had seen."""

    task: str
    checkpoint: str = ""
    thread: str = ""
    node: str = ""
    run: str = ""
    state: int = 0
    number: int = 0


def record_step(history: AgentHistory, task: TaskInfo, state: int) -> StepMark:
    """Append the mark of a step."""
    mark = StepMark(
        task=task.task, checkpoint=task.checkpoint, thread=task.thread, node=task.node, run=task.run, state=state
    )
    metadata = EntryMetadata(source=f"graph:{task.node}", extra={CATEGORY: msgspec.to_builtins(mark)})
    text = f"Node {task.node or '(none)'} started."
    entry = history.append(DebugLogEntry(CATEGORY, text, metadata=metadata))
    return msgspec.structs.replace(mark, number=entry.sequence_number)


def steps_since(history: AgentHistory, version: int) -> list[StepMark]:
    """The steps that started after `version`, rolled back or not, the oldest first."""
    return list(_marks(history.entries.since(version)))


def last_mark(history: AgentHistory) -> StepMark | None:
    """The last step that started, if any."""
    entries = history.entries
    return next(_marks(entries[index] for index in range(len(entries) - 1, -1, -1)), None)


def _marks(entries: Iterator[HistoryEntry] | Sequence[HistoryEntry]) -> Iterator[StepMark]:
    for entry in entries:
        if isinstance(fields := entry.extra(CATEGORY), dict):
            yield msgspec.convert({**fields, "number": entry.sequence_number}, StepMark)


class Checkpoint(Struct, frozen=True):
    """One checkpoint. `version` is the conversation's version in it, or 0 if it names another conversation or none."""

    id: str
    parent: str
    source: str
    version: int


class CheckpointHistory:
    """The checkpoints of a thread, seen from the checkpoint of one task."""

    def __init__(self, checkpoints: Iterable[Checkpoint], task: TaskInfo) -> None:
        self._all = {one.id: one for one in checkpoints}
        self.is_complete = task.checkpoint in self._all
        """Whether the checkpoint of the task is among them: it may still be on its way to the checkpointer."""
        self._ancestors = {task.checkpoint}
        self._run_start = task.checkpoint
        one = self._all.get(task.checkpoint)
        is_own_run = True
        while one is not None:
            self._ancestors.add(one.id)
            if is_own_run:
                self._run_start = one.id
            # A run starts with the checkpoint of its input, or with the fork LangGraph makes when it goes back.
            is_own_run = is_own_run and one.source == "loop"
            one = self._all.get(one.parent)

    @property
    def latest_version(self) -> int:
        """The latest version in any checkpoint."""
        return max((one.version for one in self._all.values()), default=0)

    def is_stale(self, version: int) -> bool:
        """Whether another run of the thread reached a later version after our run started."""
        return any(
            one.version > version and one.id > self._run_start and one.id not in self._ancestors
            for one in self._all.values()
        )


async def load_checkpoints(
    config: Mapping[str, Any], task: TaskInfo, conversation: str, is_async: bool
) -> CheckpointHistory | None:
    """The thread's checkpoints; None without a checkpointer. Reads the whole thread, so it is called only when needed.

    With `durability="async"` the checkpoint of the task itself may be late: it is waited for, for a moment.
    """
    # LangGraph passes the checkpointer to inner graphs under this key; it has no public name.
    saver: Any = (config.get("configurable") or {}).get("__pregel_checkpointer")
    if not task.thread or not hasattr(saver, "list"):
        return None
    thread: Any = {"configurable": {"thread_id": task.thread}}
    deadline = monotonic() + (0.0 if task.run else _CHECKPOINT_SECONDS)
    while True:
        stored = [one async for one in saver.alist(thread)] if is_async else list(saver.list(thread))
        found = CheckpointHistory((_read_checkpoint(one, conversation) for one in stored), task)
        if found.is_complete or monotonic() >= deadline:
            return found
        await asyncio.sleep(0.01)


def _read_checkpoint(stored: Any, conversation: str) -> Checkpoint:
    values = stored.checkpoint["channel_values"]
    # The first checkpoint of an inner graph has its parent in the outer graph.
    outer = next(iter((stored.metadata.get("parents") or {}).values()), "")
    parent = (stored.parent_config or {}).get("configurable", {}).get("checkpoint_id", "") or outer
    version = values.get("version", 0) if values.get("conversation") == conversation else 0
    return Checkpoint(stored.checkpoint["id"], parent, str(stored.metadata.get("source", "")), version)


def owned_by_other_thread(history: AgentHistory, task: TaskInfo, version: int | None) -> bool:
    """Whether the last mark is another thread's, so that this state is a copy. A state without a version takes over."""
    if version is None or not task.thread:
        return False
    mark = last_mark(history)
    return mark is not None and bool(mark.thread) and mark.thread != task.thread


async def replay_status(
    history: AgentHistory,
    task: TaskInfo,
    version: int,
    run_start: int | None,
    load: Callable[[], Awaitable[CheckpointHistory | None]],
) -> ReplayStatus:
    """Why the log is ahead of a state at `version`, if it is. Rolls the log back if the graph went back.

    `run_start` is the version of the log when the run of this task started, if that is known.

    no mark after the version               fresh     continue; messages that people added meanwhile are included
    the last mark is this task's            resumed   the step ran before and its checkpoint was not saved
    another node's at this checkpoint       error     two nodes of one step cannot write to one conversation
    another run's, since this run started   error     it continued the thread meanwhile
    another run started at this checkpoint  error     the same
    work that no checkpoint contains        kept      a step crashed and something new was asked: its work stays
    anything else                           fresh     the graph went back to an earlier checkpoint: roll back to `version`
    """
    if version > history.version:
        raise GraphError(
            f"the state names version {version} of conversation {history.id}, which has only {history.version}: it is from "
            "another store or from a backup. Set the state's version to the one to continue from"
        )
    marks = steps_since(history, version)
    if not marks:
        return "fresh"
    last = marks[-1]
    if last.task == task.task:
        return "resumed"
    if task.checkpoint and last.checkpoint == task.checkpoint:
        raise concurrent_nodes_error(history.id, last.node, task.node)
    if _is_overtaken(marks, task, run_start):
        raise _stale_run_error(history, task, version)
    checkpoints = await load()
    if checkpoints is not None:
        if checkpoints.is_stale(version) or (run_start is None and not checkpoints.is_complete):
            raise _stale_run_error(history, task, version)
        if any(mark.state == version for mark in marks if mark.number > checkpoints.latest_version):
            return "kept"
    history.rollback(version, "the graph went back to here")
    record_step(history, task, version)  # so that the step does not roll back again when it is resumed
    return "fresh"


def _is_overtaken(marks: Sequence[StepMark], task: TaskInfo, run_start: int | None) -> bool:
    """Whether another run made one of these marks after our run started, or from the checkpoint where ours is."""
    if not task.checkpoint:
        return False
    if any(mark.checkpoint == task.checkpoint for mark in marks):
        return True
    if run_start is None:
        return marks[-1].checkpoint > task.checkpoint
    return any(mark.number > run_start and mark.run != task.run for mark in marks)


def concurrent_nodes_error(conversation: str, one: str, other: str) -> GraphError:
    return GraphError(
        f"two nodes of one step, {one} and {other}, use conversation {conversation}; a conversation has one writer. Run them "
        "one after the other, or give each its own fork: AskNode(…, fork=True)"
    )


def _stale_run_error(history: AgentHistory, task: TaskInfo, version: int) -> StaleRunError:
    return StaleRunError(
        f"another run of thread {task.thread or '(none)'} continued conversation {history.id} to version {history.version} "
        f"since this run started at version {version}. Nothing was written; invoke the graph again"
    )


class GraphStep:
    """One node working on a conversation: `chat`, the graph's `state`, and the `task`.

    `limits` limit what the graph can do before a person writes again.
    """

    def __init__(
        self,
        chat: Conversation,
        state: Mapping[str, Any],
        task: TaskInfo,
        status: ReplayStatus,
        stream: StreamForwarder,
        *,
        limits: RunLimits,
    ) -> None:
        self.chat = chat
        self.state = state
        self.task = task
        self.status = status
        self._stream = stream
        self._limits = limits
        mark = last_mark(chat.history)
        is_known = mark is None or mark.number <= int(state["version"])
        self._mark: StepMark | None = None if is_known else mark

    @property
    def has_unseen_work(self) -> bool:
        """Whether the log contains work the graph has not seen. Settings do not count."""
        return self.status == "kept" or any(type(entry) not in SETTING_KINDS for entry in self.earlier_entries)

    def mark(self) -> None:
        """Record that this step starts, unless that is recorded already. Call it before you write."""
        if self._mark is None or self._mark.task != self.task.task:
            self._mark = record_step(self.chat.history, self.task, int(self.state["version"]))

    @property
    def earlier_entries(self) -> list[HistoryEntry]:
        """The effective entries this step wrote when it ran before."""
        if self.status != "resumed" or self._mark is None:
            return []
        return self._entries_since(self._mark)

    def _entries_since(self, mark: StepMark) -> list[HistoryEntry]:
        new = takewhile(lambda entry: entry.sequence_number > mark.number, reversed(self.chat.history.effective))
        return list(new)[::-1]

    def discard_interrupted(self) -> None:
        """Roll back an answer that was cancelled, because the graph decides when a turn is over. Settings stay."""
        if self.has_unseen_work and self._mark is not None and self.chat.turn.ended == INTERRUPTED:
            kept = [entry.sequence_number for entry in self._entries_since(self._mark) if type(entry) in SETTING_KINDS]
            self.chat.history.rollback(self._mark.number, "the step was cancelled and runs again", kept=kept)

    def start_agent_turn(self, participants: Participants, question: ModelInputEntry) -> None:
        """Start a turn that no person asked for, at most `max_hand_offs` times in a row."""
        runner = self.runner(participants)
        if not runner.may_hand_off():
            raise TurnLimitReached(
                f"the graph handed off from model to model {self._limits.max_hand_offs} times without a person in conversation "
                f"{self.chat.id}. Route to END, or raise Conversations(max_hand_offs=…)"
            )
        runner.start(question)

    def runner(self, participants: Participants) -> TurnRunner:
        """Runs one step of the turn as the loop would: within the limits, repeating nothing that is finished."""
        return TurnRunner(participants, self._limits, self._stream.forward, steps=1)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Report the end of the model call inside this block to LangChain's callbacks."""
        try:
            yield
        except BaseException as error:
            self._stream.fail(error)
            raise
        self._stream.finish(self.chat.turn.output)


class StreamForwarder:
    """Forwards loop events to `stream_mode="custom"`, and answers to LangChain's callbacks as those of a chat model.

    The callbacks get message chunks and then the whole message, all with one id. Async handlers are skipped, because events
    arrive in the middle of a stream, where nothing can be awaited.
    """

    def __init__(self, write: Callable[[Any], None] | None, callbacks: Any = None) -> None:
        self._write = write
        self._callbacks = callbacks
        self._run: Any = None

    def forward(self, event: LoopEvent) -> None:
        if self._write is not None:
            self._write(event)
        if isinstance(event, RoundStarted):
            self._run = _start_chat_model_run(self._callbacks, event.model)
        elif self._run is not None and isinstance(event, TextDelta | ThinkingDelta):
            self._forward_chunk(event)

    def finish(self, output: ModelOutputEntry | None) -> None:
        """Report the whole answer."""
        run, self._run = self._run, None
        if run is None:
            return
        from langchain_core.outputs import ChatGeneration, LLMResult

        messages = to_langchain([output]) if output is not None else []
        for message in messages:
            message.id = _message_id(run)
        run.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message) for message in messages]]))

    def fail(self, error: BaseException) -> None:
        """Report that there is no answer."""
        run, self._run = self._run, None
        if run is not None:
            run.on_llm_error(error)

    def _forward_chunk(self, event: TextDelta | ThinkingDelta) -> None:
        from langchain_core.messages import AIMessageChunk
        from langchain_core.outputs import ChatGenerationChunk

        is_text = isinstance(event, TextDelta)
        content: Any = event.text if is_text else [{"type": "reasoning", "reasoning": event.text}]
        chunk = ChatGenerationChunk(message=AIMessageChunk(content=content, id=_message_id(self._run)))
        self._run.on_llm_new_token(event.text if is_text else "", chunk=chunk)


def _start_chat_model_run(callbacks: Any, model: str) -> Any:
    """A chat model run for LangChain's handlers; None if no handler listens."""
    if callbacks is None or not getattr(callbacks, "handlers", None):
        return None
    from langchain_core.callbacks import AsyncCallbackHandler, CallbackManager

    handlers = [
        handler
        for handler in callbacks.handlers
        if not isinstance(handler, AsyncCallbackHandler) and not handler.ignore_chat_model
    ]
    if not handlers:
        return None
    manager = CallbackManager(
        handlers, parent_run_id=callbacks.parent_run_id, tags=callbacks.tags, metadata={**callbacks.metadata}
    )
    (run,) = manager.on_chat_model_start({"name": model}, [[]], name=model)
    return run


def _message_id(run: Any) -> str:
    return f"run-{run.run_id}"
