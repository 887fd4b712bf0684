"""Fixtures of the tests of built-in tools: no key of a search service, and a folder of documents."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "rain.md").write_text(
        "---\ntags: x\n---\n\n# Rain in **Oslo**\n\nIt rains on *many* days.\n\n- Take a coat.\n"
    )
    (folder / "deep" / "er" / "weather.txt").write_text("Snow is forecast for Bergen; planning a walk makes no sense.")
    (folder / "计划.md").write_text("# 学习计划\n\n今天下雨，所以在家复习单词，明天做一套真题。")
    (folder / "page.html").write_text(
        "<html><head><title>Tea &amp; cake</title><style>coat {}</style></head><body><h1>Not this</h1>"
        "<script>var coat = 1</script><p>Green tea<b>cup</b> at <i>four</i></p><p>o'clock</p></body></html>"
    )
    (folder / "old.txt").write_bytes("简体中文的旧文件：茶叶和咖啡".encode("gb18030"))
    (folder / "wide.txt").write_text("Ein breiter Text über Bäume", encoding="utf-16")
    (folder / "west.txt").write_bytes("Un café à Paris".encode("latin-1"))
    return folder
