"""The reference and the site: every public name is on one page, and the site builds without a warning or a broken link."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import venv
from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import pytest

import antiphon
from gateway.served import served_gateway

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PEERS = (
    "pydantic-ai-slim[openai]==2.66.0",
    "openai-agents==0.24.0",
    "langchain==1.4.7",
    "langchain-openai==1.7.3",
    "llm==0.36",
)


COMPARED = ("pydantic-ai-slim==2.66.0", "pydantic-ai-harness==0.62.0", "openai-agents==0.24.0")
"""The releases of the comparison: only their files are looked at, so that they need not install together."""


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    pages = "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    documented = Counter(re.findall(r"^::: antiphon\.(\w+)$", pages, re.MULTILINE))
    assert [name for name, count in documented.items() if count > 1] == []
    assert set(documented) - {"testing"} == set(antiphon.__all__) - {"__version__"}


def test_tables_say_what_the_program_knows() -> None:
    command = [sys.executable, str(ROOT / "tools" / "reference_pages.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80"})
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
def test_the_site_builds_and_shows_docstrings(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--config-file",
        str(ROOT / "mkdocs.yml"),
        "--site-dir",
        str(site),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (built.returncode, built.stderr) == (0, "")
    page = (site / "reference" / "conversation.html").read_text()
    assert "The model that is called next" in page
    assert "resume" in page, "the arguments of the constructor"
    requested = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page)
    assert requested == [], "a page of the site asks another host"
    llms = (site / "llms.txt").read_text()
    linked = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S.*\w[.)`]", llms, re.MULTILINE)
    assert len(linked) > 30
    assert [name for name in linked if not (site / name).exists()] == []
    assert "ap.repair_messages(" in llms


@pytest.mark.slow
def test_names_in_the_comparison_are_in_the_releases_it_names(tmp_path: Path) -> None:
    page = (DOCS / "library-comparison.md").read_text()
    for release in COMPARED:
        assert f"**{release.replace('-slim', '').replace('==', ' ')}**" in page
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path), release]
        subprocess.run(fetch, check=True, capture_output=True)
    sources: dict[str, str] = {}
    for wheel in tmp_path.glob("*.whl"):
        with ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".py")]
            sources |= {name.removesuffix(".py").replace("/", "."): archive.read(name).decode() for name in names}
    named = re.findall(r"`((?:pydantic_ai|pydantic_ai_harness|agents)\.[\w.]+)`", page)
    assert len(named) > 50
    assert [name for name in named if not _is_defined(name.split("."), sources)] == []


def _is_defined(words: list[str], sources: dict[str, str]) -> bool:
    """Whether the longest part of a dotted name that is a module or package has all the words after it."""
    for length in range(len(words), 0, -1):
        module = ".".join(words[:length])
        text = "\n".join(source for name, source in sources.items() if name == module or name.startswith(f"{module}."))
        if text:
            return all(re.search(rf"\b{word}\b", text) for word in words[length:])
    return False


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pydantic-ai", "OpenAI Agents", "LangChain", "llm"])
def test_code_of_other_libraries_runs_against_the_gateway(
    library: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The `py` blocks are theirs; their OpenAI client talks to our gateway and its offline model."""
    page = (DOCS / "start" / "coming-from.md").read_text()
    section = page.partition(f"## Coming from {library}\n")[2].partition("\n## ")[0]
    code = "\n".join(re.findall(r"^```py\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
    assert code, library
    (tmp_path / "theirs.py").write_text(code)
    with served_gateway(tmp_path, environ={}) as gateway:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{gateway.port}/v1",
        }
        run = subprocess.run(
            [_peers(tmp_path_factory.getbasetemp().parent), "theirs.py"],
            capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "Oslo" in run.stdout


def _peers(place: Path) -> Path:
    """Python of an environment with the other libraries, made once by whichever test process comes first."""
    folder = place / "other-libraries"
    python = folder / "bin" / "python"
    with (place / "other-libraries.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            venv.create(folder, with_pip=True, clear=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], check=True, capture_output=True)
            (folder / "ready").touch()
    return python
