"""Other libraries beside ours: nothing here is imported until it is used, and none of those libraries is a dependency.

langchain           tools and chat models of LangChain accepted wherever ours are; `RepairMiddleware` for its agents
langchain_messages  `to_langchain`, `from_langchain`: a history as LangChain's messages, and back
langchain_blocks    parts as LangChain's content blocks
pydantic_ai         `repair_history`, a history processor
openai_agents       `AntiphonSession`: the log as a session of the OpenAI Agents SDK
sse                 events of a run as server-sent events, for Starlette, FastAPI and other ASGI frameworks
"""
