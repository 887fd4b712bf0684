"""The `py` blocks of the guide, which need the other libraries, run too (`make integrations`)."""

from __future__ import annotations

import asyncio
import inspect
import re
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from pathlib import Path
from typing import Any

import pytest

from support.repository import ROOT

pytest.importorskip("langchain", reason="make integrations installs the libraries")
pytest.importorskip("pydantic_ai")
pytest.importorskip("agents")

from agents import Model, ModelResponse, Usage, set_tracing_disabled
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from pydantic_ai.models.test import TestModel

PAGES = [ROOT / "docs" / "library" / "integrations.md", ROOT / "docs" / "zh" / "integrations.md"]
BLOCK = re.compile(r"^```(python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class LangChainAnswer(GenericFakeChatModel):
    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self


class OpenAiAnswer(Model):  # type: ignore[misc]  # not installed where types are checked
    async def get_response(self, *_: Any, **__: Any) -> Any:
        content = ResponseOutputText(text="ok", type="output_text", annotations=[])
        message = ResponseOutputMessage(id="m", content=[content], role="assistant", status="completed", type="message")
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_guide_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    set_tracing_disabled(True)
    names: dict[str, Any] = {"__name__": "guide", "messages": [HumanMessage("Hi")]}
    for language, code in BLOCK.findall(page.read_text()):
        if language == "py":
            names["model"] = (
                OpenAiAnswer()
                if "agents import" in code and "Runner" in code
                else LangChainAnswer(messages=iter([AIMessage("ok")]))
                if "langchain" in code
                else TestModel()
            )
        compiled = compile(code, page.name, "exec", flags=PyCF_ALLOW_TOP_LEVEL_AWAIT)
        ran = eval(compiled, names)
        if inspect.isawaitable(ran):
            asyncio.run(ran)  # type: ignore[arg-type]
    assert names["result"].final_output == "ok"
    names["session"].close()
