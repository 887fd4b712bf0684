"""`DocumentIndex`: what of a folder is indexed, how the index follows it, and how results are chosen and shown."""

from __future__ import annotations

import os
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import DocumentFolderError, ToolError
from antiphon.tools.builtin import document_index, search_tool
from antiphon.tools.builtin.document_index import (
    READ_BYTES,
    DocumentIndex,
    DocumentText,
    marked_excerpt,
    query_terms,
    read_document,
)
from tools.builtin.searching import ask

FOUND = [
    ("rain", "rain.md", "**Rain** in Oslo", "Rain in Oslo"),
    ("raining OSLO", "rain.md", "It **rains**", "Rain in Oslo"),
    ("plan walks", "deep/er/weather.txt", "**planning** a **walk**", "weather"),
    ("下雨", "计划.md", "今天**下雨**，", "学习计划"),
    ("今天下雨怎么复习", "计划.md", "**今天下雨**，所以在家**复习**单词", "学习计划"),
    ("题", "计划.md", "真**题**", "学习计划"),
    ("cake teacup", "page.html", "Green **teacup** at four o'clock", "Tea & cake"),
    ("茶叶", "old.txt", "**茶叶**和咖啡", "old"),
    ("Baume", "wide.txt", "über Bäume", "wide"),
    ("café", "west.txt", "Un **café**", "west"),
]


@pytest.mark.parametrize(("query", "path", "excerpt", "title"), FOUND)
def test_local_documents_are_found(folder: Path, query: str, path: str, excerpt: str, title: str) -> None:
    text = ask(search_tool(folder), query, max_results=1)
    first, _, result = text.partition("\n\n")
    is_chinese = any(letter > "\u3400" for letter in query)
    assert first.startswith(
        "本地文档（7 篇）" if is_chinese else "Local documents, not the web: 7 documents, searched for "
    )
    number, source, message = result.split("\n")
    assert number == f"1. **{title}**"
    assert source == f"   {'来源：' if is_chinese else 'Source: '}{path}"
    assert excerpt in message


def test_scripts_and_styles_are_not_indexed(folder: Path) -> None:
    assert [found.path for found in DocumentIndex(folder).search("coat").found] == ["rain.md"]


def test_documents_with_all_the_words_come_first(folder: Path) -> None:
    text = ask(search_tool(folder), "snow rain forecast Bergen")
    assert "None has all the words" in text
    assert text.index("weather.txt") < text.index("rain.md")
    assert "None has all" not in ask(search_tool(folder), "snow Bergen")
    assert "Nothing was found. Try other words" in ask(search_tool(folder), "zebra")


@given(st.text(st.sampled_from("\"'()*:^-+{}[]~ ANDORNOTNEAR雨下rain_\\/\0é１"), max_size=30) | st.text(max_size=30))
def test_no_query_breaks_the_index(query: str) -> None:
    found = GUIDE.search(query).found
    assert all(document.title for document in found)


GUIDE = DocumentIndex(Path(search_tool.__code__.co_filename).with_name("guide"))


def test_the_index_follows_the_folder(folder: Path) -> None:
    tool = search_tool(folder)
    assert "1. **学习计划**" in ask(tool, "单词")
    (folder / "计划.md").write_text("# 学习计划\n\n今天去看电影。")
    assert "没有找到" in ask(tool, "单词")
    assert "1. **学习计划**" in ask(tool, "电影")
    (folder / "new.md").write_text("A zebra.")
    assert "Source: new.md" in ask(tool, "zebras")
    (folder / "new.md").unlink()
    assert "Nothing was found" in ask(tool, "zebra")
    for path in (folder / "deep").rglob("*.txt"):
        path.rename(folder / "moved.txt")
    assert "Source: moved.txt" in ask(tool, "Bergen")


def test_a_kept_index_reads_only_what_changed(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "index.db"
    DocumentIndex(folder, kept).search("rain")
    file = folder / "rain.md"
    about = file.stat()
    with open(file, "r+b") as same:
        same.write(b"x" * about.st_size)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))  # as if nothing had happened
    assert DocumentIndex(folder, kept).search("Oslo").found
    (folder / "new.md").write_text("A zebra.")
    index = DocumentIndex(folder, kept)
    assert index.search("zebra").found
    assert index.search("Oslo").found
    os.utime(file)
    assert not index.search("Oslo").found


def test_a_search_of_an_unchanged_folder_waits_for_no_writer(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "index.db"
    index = DocumentIndex(folder, kept)
    index.search("rain")
    other = sqlite3.connect(kept, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert index.search("rain").found  # a search that wrote would find the file locked
    other.close()


def test_concurrent_searches_share_an_index(folder: Path, tmp_path: Path) -> None:
    def look(path: Path) -> int:
        index = DocumentIndex(folder, path)
        found = len(index.search("rain").found)
        index.close()
        return found

    with ThreadPoolExecutor(8) as pool:
        for number in range(10):  # one of them creates the file while the others look at it
            path = tmp_path / f"index-{number}.db"
            assert list(pool.map(look, [path] * 8)) == [1] * 8


def test_links_hidden_and_binary_files_are_left_out(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "passwords.txt").write_text("zebra password")
    (folder / "link.txt").symlink_to(secret / "passwords.txt")
    (folder / "linked").symlink_to(secret)
    (folder / "circle").symlink_to(folder)
    (folder / ".hidden.md").write_text("zebra")
    (folder / ".git").mkdir()
    (folder / ".git" / "notes.md").write_text("zebra")
    (folder / "photo.md").write_bytes(b"zebra \0\1\2" * 100)
    (folder / "binary.bin").write_text("zebra")
    os.mkfifo(folder / "pipe.txt")
    with open(os.fsencode(folder) + b"/bad-\xff.txt", "w") as file:
        file.write("zebra")
    found = DocumentIndex(folder).search("zebra")
    assert (found.found, found.searched) == ((), 7)
    for came_since in ("link.txt", "pipe.txt", "linked", "gone.txt"):
        assert read_document(folder, came_since).text == ""


def test_of_a_huge_file_the_beginning_is_read(folder: Path) -> None:
    (folder / "huge.txt").write_text("zebra " + "斑" * READ_BYTES + " giraffe")
    index = DocumentIndex(folder)
    assert [found.path for found in index.search("zebra").found] == ["huge.txt"]
    assert not index.search("giraffe").found


def test_a_folder_that_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DocumentFolderError, match="there is no folder"):
        search_tool(tmp_path / "nowhere")
    with pytest.raises(DocumentFolderError, match="there is no folder"):
        search_tool(folder / "rain.md")
    tool = search_tool(folder)
    folder.rename(tmp_path / "gone")
    with pytest.raises(ToolError, match=r"the folder of documents .* cannot be read: No such file"):
        ask(tool, "rain")


def test_an_empty_folder_is_reported_as_empty(tmp_path: Path) -> None:
    text = ask(search_tool(tmp_path), "rain")
    assert "0 documents" in text
    assert "Nothing was found" in text


def test_a_thousand_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        folder = tmp_path / f"{number % 10}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.md").write_text(
            f"# Note {number}\n\nword{number} " + "rain and snow in Oslo, 今天下雨。" * 40
        )
    read: list[str] = []

    def counted(folder: Path, path: str) -> DocumentText:
        read.append(path)
        return read_document(folder, path)

    monkeypatch.setattr(document_index, "read_document", counted)
    index = DocumentIndex(tmp_path)
    assert [found.title for found in index.search("word777").found] == ["Note 777"]
    assert len(read) == 1000
    assert index.search("rain 下雨 word5").found[0].title == "Note 5"
    assert len(read) == 1000, "a search must not read the documents again"


@given(
    st.text(st.sampled_from("ab 雨下天\n"), max_size=1500),
    st.lists(st.sampled_from(["ab", "a", "下雨", "雨"]), max_size=3),
)
def test_an_excerpt_is_a_piece_of_the_text_with_words_marked(text: str, words: list[str]) -> None:
    excerpt = marked_excerpt(text, words)
    line = " ".join(text.split())
    assert excerpt.replace("**", "").strip("…") in line
    assert excerpt.count("**") % 2 == 0
    assert len(excerpt.replace("**", "")) <= 502
    assert not re.search(r"\*\*\*", excerpt)


@pytest.mark.parametrize(
    ("text", "words", "excerpt"),
    [
        ("今天下雨天", ["今天", "天下", "下雨"], "**今天下雨**天"),
        ("大雨小雨雨", ["雨"], "大**雨**小**雨雨**"),
        ("Planned plans, PLAN; airplane", ["plan"], "**Planned** **plans**, **PLAN**; airplane"),
        ("# A *cat*\n\n> and `a` **dog**\n- a cow", ["dog", "cow"], "A *cat* and a **dog** a **cow**"),
        ("x " * 600 + "cat", ["cat"], "…" + "x " * 248 + "**cat**"),
        ("x " * 600 + "cat " + "x " * 600, ["cat"], "…" + "x " * 30 + "**cat** " + "x " * 217 + "x…"),
        ("cat " + "x" * 900, ["cat"], "**cat** " + "x" * 496 + "…"),
        ("cat " + "x " * 300 + "cat cat", ["cat"], "…" + "x " * 246 + "**cat** **cat**"),
        ("no word of it", ["zebra"], "no word of it"),
        ("", ["zebra"], ""),
    ],
)
def test_an_excerpt_is_where_most_of_the_words_are(text: str, words: list[str], excerpt: str) -> None:
    assert marked_excerpt(text, words) == excerpt


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("今天下雨吗", ["今天", "天下", "下雨", "雨吗"]),
        ("雨", ["雨"]),
        ("How do I plan a TRIP?", ["plan", "trip"]),
        ("what is it", ["what", "is", "it"]),
        ("IELTS雅思7分 ielts", ["ielts", "雅思", "7", "分"]),
        ("怎么 学习", ["学习"]),
        ("?!", []),
    ],
)
def test_the_search_terms_of_a_query(query: str, words: list[str]) -> None:
    assert query_terms(query) == words
