"""The files of a page: many modules as one script, compressed, kept by their digest, and nothing outside the folder."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from antiphon.errors import AntiphonError
from antiphon.http.messages import ClientRequest, Response
from antiphon.page import bundle
from antiphon.page.bundle import SHARED, bundle_script, modules_of
from antiphon.page.files import PageFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    page = tmp_path / "page"
    (page / "parts").mkdir(parents=True)
    (page / "index.html").write_text('<link href="page/page.css"><script src="page/page.js"></script>')
    (page / "main.js").write_text(
        '/* Head. */\nimport { double, two as second } from "./parts/numbers.js";\nimport TEXTS from "./texts.json";\n'
        'import { lasting } from "antiphon/storage.js";\n\n// a comment\nconst address = "https://example.org"; // stays\n'
        "export const result = [double(2), second, TEXTS.hello, typeof lasting.get, address];\n"
        "globalThis.result = result;\n"
    )
    (page / "parts" / "numbers.js").write_text(
        "const secret = 2;\nexport const two = secret;\nexport function double(value) {\n  return value * secret;\n}\n"
    )
    (page / "texts.json").write_text('{"hello": "你好"}')
    (page / "look.css").write_text("/* Look. */\n@font-face { src: url(fonts/next.woff2) }\nbody { margin: 0 }\n")
    (tmp_path / "outside.js").write_text("outside")
    return page


def answer(
    files: PageFiles, name: str, query: dict[str, str] | None = None, headers: dict[str, str] | None = None
) -> Response:
    got = files.answer(ClientRequest(method="GET", path="/", query=query or {}, headers=headers or {}), name)
    assert got is not None
    return got


def test_modules_run_once_in_the_order_of_their_imports(folder: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node runs the script, and is not installed")
    script = bundle_script(folder / "main.js").decode()
    assert "a comment" not in script
    assert "// stays" in script
    known = "const localStorage = {}, sessionStorage = {};\n"
    shown = f"{known}{script}\nconsole.log(JSON.stringify(globalThis.result));"
    done = subprocess.run([node, "-e", shown], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [4, 2, "你好", "function", "https://example.org"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('import "https://example.org/x.js";', "which does not exist"),
        ('import { a } from "./nothing.js";', "imports ./nothing.js, which does not exist"),
        ("export { a };", "is not read"),
        ("export default 1;", "is not read"),
        ('import * as all from "./texts.json";', "is not read"),
        ('import { result } from "./main.js";', "main.js imports main.js"),
    ],
)
def test_other_syntax_and_circles_are_errors(folder: Path, source: str, problem: str) -> None:
    (folder / "main.js").write_text(source + "\n")
    with pytest.raises(AntiphonError, match=problem):
        bundle_script(folder / "main.js")


def test_a_page_names_its_files_by_their_digest(folder: Path) -> None:
    files = PageFiles(folder, ["theme.css", "look.css"])
    [document, script, style] = [files.read(name) for name in ("index.html", "page.js", "page.css")]
    assert document is not None
    assert script is not None
    assert style is not None
    assert f'src="page/page.js?v={script.tag}"'.encode() in document.body
    assert b"fonts/next.woff2?v=" in style.body
    assert b"--paper" in style.body, "the look that all pages share"
    assert gzip.decompress(script.packed) == script.body
    (folder / "parts" / "numbers.js").write_text("export const two = 3;\nexport const double = (value) => value;\n")
    changed, again = files.read("page.js"), files.read("index.html")
    assert changed is not None
    assert again is not None
    assert changed.tag != script.tag
    assert changed.tag.encode() in again.body


def test_a_browser_keeps_what_it_asked_for_by_digest(folder: Path) -> None:
    files = PageFiles(folder, ["look.css"])
    script = files.read("page.js")
    assert script is not None
    kept = answer(files, "page.js", {"v": script.tag}, {"accept-encoding": "gzip, br"})
    assert kept.headers["cache-control"].endswith("immutable")
    assert kept.headers["content-encoding"] == "gzip"
    assert answer(files, "page.js").headers["cache-control"] == "no-cache"
    known = answer(files, "page.js", headers={"if-none-match": f'W/"x", "{script.tag}"'})
    assert (known.status, known.body) == (304, b"")


@pytest.mark.parametrize(
    "name", ["../outside.js", "parts/../../outside.js", "parts", "", "nothing.js", "main.js\0", "files.py", "a" * 3000]
)
def test_nothing_outside_the_folder_is_served(folder: Path, name: str) -> None:
    assert PageFiles(folder, []).read(name) is None


def test_fonts_come_with_their_licence() -> None:
    fonts = SHARED / "fonts"
    assert "SIL OPEN FONT LICENSE Version 1.1" in (fonts / "OFL.txt").read_text()
    assert {path.name for path in fonts.glob("*.woff2")} == {
        "next.woff2",
        "next-ext.woff2",
        "next-italic.woff2",
        "mono.woff2",
        "mono-ext.woff2",
    }
    assert modules_of(SHARED / "texts.js") == [SHARED / "storage.js", SHARED / "texts.js"]


def test_modules_are_read_once_however_often_they_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    depth = 20
    for number in range(depth):
        (tmp_path / f"m{number}.js").write_text(
            f'import {{ a }} from "./m{number + 1}.js";\nimport {{ b }} from "./n{number}.js";\n'
        )
        (tmp_path / f"n{number}.js").write_text(
            f'import {{ a }} from "./m{number + 1}.js";\nexport const b = 1;\nexport const a = 1;\n'
        )
    (tmp_path / f"m{depth}.js").write_text("export const a = 1;\n")
    read: list[Path] = []

    def read_text(path: Path) -> str:
        read.append(path)
        return path.read_text()

    monkeypatch.setattr(bundle, "_read", read_text)
    assert len(modules_of(tmp_path / "m0.js")) == 2 * depth + 1
    assert len(read) == 2 * depth + 1


def test_an_unchanged_page_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = PageFiles(folder, ["parts/look.css"])
    first = files.read("index.html")
    monkeypatch.setattr(bundle, "_read", lambda path: pytest.fail(f"{path} was read again"))
    assert first is not None
    assert files.read("index.html") is first
