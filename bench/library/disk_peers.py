"""How other libraries store a conversation in SQLite, each as its documentation shows: 400 turns into one file, and read back.

`python -m bench.library.disk_peers NAME FILE TURNS`, run by the interpreter of `.venv-loop-peers`, prints as JSON the version,
the CPU time at the end of each turn and that of reading the conversation back with a new connection, which is checked. Some
libraries write only while they run an agent or a graph: their scripted model costs nothing, but the framework around it is in
their times.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from bench.workload.chat_turns import turn

ReadBack = Callable[[], list[str]]


def openai_agents(path: str, turns: int) -> tuple[list[float], ReadBack]:
    session_of = import_module("agents").SQLiteSession

    async def write() -> list[float]:
        session, timestamps = session_of("bench", path), [time.process_time()]
        for number in range(turns):
            question, answer = turn(number)
            items: list[Any] = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            await session.add_items(items)
            timestamps.append(time.process_time())
        session.close()
        return timestamps

    async def read() -> list[str]:
        session = session_of("bench", path)
        items = await session.get_items()
        session.close()
        return [str(item["content"]) for item in items]

    return asyncio.run(write()), lambda: asyncio.run(read())


def llm(path: str, turns: int) -> tuple[list[float], ReadBack]:
    database_of = import_module("sqlite_utils").Database
    log_of, migrate = import_module("llm.logs").LogStore, import_module("llm.migrations").migrate

    class Scripted(import_module("llm").Model):  # type: ignore[misc]
        model_id = "scripted"
        can_stream = False
        answer = ""

        def execute(self, *_: Any, **__: Any) -> Any:
            yield self.answer

    model = Scripted()
    conversation = model.conversation()
    database = database_of(path)
    migrate(database)
    timestamps = [time.process_time()]
    for number in range(turns):
        question, model.answer = turn(number)
        response = conversation.prompt(question)
        response.text()
        response.log_to_db(database)
        timestamps.append(time.process_time())
    database.close()

    def read() -> list[str]:
        database = database_of(path)
        messages = log_of(database).thread_messages(conversation.id)
        database.close()
        return [part.text for message in messages for part in message.parts]

    return timestamps, read


def agno(path: str, turns: int) -> tuple[list[float], ReadBack]:
    agent_of, database_of = import_module("agno.agent").Agent, import_module("agno.db.sqlite").SqliteDb
    response_of = import_module("agno.models.response").ModelResponse

    @dataclass
    class Scripted(import_module("agno.models.base").Model):  # type: ignore[misc]
        id: str = "scripted"
        answer: str = ""

        def invoke(self, *_: Any, **__: Any) -> Any:
            return response_of(role="assistant", content=self.answer)

        async def ainvoke(self, *_: Any, **__: Any) -> Any:
            return self.invoke()

        def invoke_stream(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        def ainvoke_stream(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        def _parse_provider_response(self, response: Any, **_: Any) -> Any:
            return response_of()

        def _parse_provider_response_delta(self, response: Any) -> Any:
            return response_of()

    def agent(model: Scripted) -> Any:
        return agent_of(model=model, db=database_of(db_file=path), session_id="bench", telemetry=False)

    model = Scripted()
    writer, timestamps = agent(model), [time.process_time()]
    for number in range(turns):
        question, model.answer = turn(number)
        writer.run(question)
        timestamps.append(time.process_time())
    writer.db.db_engine.dispose()
    return timestamps, lambda: [str(message.content) for message in agent(Scripted()).get_chat_history()]


def langgraph(path: str, turns: int) -> tuple[list[float], ReadBack]:
    message_of = import_module("langchain_core.messages").AIMessage
    saver_of = import_module("langgraph.checkpoint.sqlite").SqliteSaver.from_conn_string
    delta_of = import_module("langgraph.channels.delta").DeltaChannel
    graphs = import_module("langgraph.graph")
    reducer = import_module("langgraph.graph.message")._messages_delta_reducer
    answers: list[str] = []

    def node(_: Any) -> Any:
        return {"messages": [message_of(answers[-1])]}

    # A checkpoint then has what a step added, and every hundredth the whole list.
    builder = graphs.StateGraph(make_dataclass("State", [("messages", Annotated[list[Any], delta_of(reducer)])]))
    builder.add_node("model", node)
    builder.add_edge(graphs.START, "model")
    thread: Any = {"configurable": {"thread_id": "bench"}}
    with saver_of(path) as saver:
        graph, timestamps = builder.compile(checkpointer=saver), [time.process_time()]
        for number in range(turns):
            question, answer = turn(number)
            answers.append(answer)
            graph.invoke({"messages": [("user", question)]}, thread)
            timestamps.append(time.process_time())

    def read() -> list[str]:
        with saver_of(path) as saver:
            state = builder.compile(checkpointer=saver).get_state(thread)
            return [str(message.content) for message in state.values["messages"]]

    return timestamps, read


PEERS: dict[str, Callable[[str, int], tuple[list[float], ReadBack]]] = {
    "openai-agents": openai_agents,
    "llm": llm,
    "agno": agno,
    "langgraph": langgraph,
}


def main(name: str, path: str, turns: int) -> dict[str, Any]:
    timestamps, read_back = PEERS[name](path, turns)
    size = sum(file.stat().st_size for file in Path(path).parent.iterdir())
    started = time.process_time()
    texts = read_back()
    read_seconds = time.process_time() - started
    expected = [text for number in range(turns) for text in turn(number)]
    if texts != expected:
        raise ValueError(f"{len(expected)} texts were written, and {len(texts)} read back are not all of them")
    return {"version": version(name), "timestamps": timestamps, "read_seconds": read_seconds, "bytes": size}


if __name__ == "__main__":
    try:
        print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
    except Exception as error:  # the report shows it
        print(f"{type(error).__name__}: {error}"[:300], file=sys.stderr)
        sys.exit(1)
