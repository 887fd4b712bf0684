"""Documentation is run: the `python` blocks of a page in order, in one namespace; `console` blocks as a user types them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.wire import FORMATS
from sessions.session_lines import claude_session
from support.repository import ROOT, TEST_PATHS

SKILL = ROOT / "packages" / "antiphon" / "src" / "antiphon" / "SKILL.md"
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md")), SKILL]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Commands a page shows that set up or run the whole project; the tests are in the middle of that already.
NOT_HERE = ("make ", "pip ")
SESSION_CHANGED = 1794843714
"""When the session of Claude Code in the home folder of the examples was changed last."""


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    text = page.read_text()
    return [(text[: found.start()].count("\n") + 2, found[2]) for found in BLOCK.finditer(text) if found[1] == language]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_python_examples_run(page: Path, place: Path) -> None:
    names: dict[str, object] = {"__name__": page.stem}
    for line, code in blocks(page, "python"):
        exec(compile("\n" * (line - 1) + code, page.name, "exec"), names)


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output it shows."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def console_pages() -> list[object]:
    """Every page with commands. The everyday run types those of the README."""
    pages = [page for page in PAGES if blocks(page, "console")]
    is_slow = [page.parent != ROOT for page in pages]
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] if slow else [])
        for page, slow in zip(pages, is_slow, strict=True)
    ]


@pytest.mark.parametrize("page", console_pages())
def test_console_examples_print_what_the_page_shows(page: Path, place: Path) -> None:
    (place / "talk.jsonl").write_bytes((ROOT / "tests" / "support" / "example_conversation.jsonl").read_bytes())
    (place / "body.json").write_text(
        '{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]}'
    )
    session = claude_session().write(place / "home")
    os.utime(session, (SESSION_CHANGED, SESSION_CHANGED))
    names: dict[str, object] = {}
    for _, code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), names)
    environment = {
        **os.environ,
        "HOME": str(place / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ANTIPHON_STORE": str(place / "own.db"),
        "COLUMNS": "120",
        "TZ": "UTC",
    }
    for line, block in blocks(page, "console"):
        for command, shown in commands(block):
            if command.startswith(NOT_HERE):
                continue
            run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment, check=False)
            assert run.returncode == 0, f"{page.name}:{line}: {command}\n{run.stderr}"
            if shown:
                assert run.stdout == shown, f"{page.name}:{line}: {command}"


def anchors(page: Path) -> set[str]:
    """The names of the sections of a page, as GitHub and the site derive them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_between_pages_resolve() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text()):
            place = page.parent / target if target else page
            assert place.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(place), f"{page.name} links to {target}#{anchor}"


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    pages = (page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs"))
    assert [page for page in pages if f": {page}\n" not in menu] == []


@pytest.mark.parametrize(
    ("index", "folders"), [("index.md", "start library gateway chat devtools"), ("zh/index.md", "zh")]
)
def test_the_front_page_leads_to_every_guide(index: str, folders: str) -> None:
    page = ROOT / "docs" / index
    linked = {(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+)", page.read_text())}
    guides = {guide for folder in folders.split() for guide in (ROOT / "docs" / folder).glob("*.md")} - {page}
    assert guides - linked == set()


DEMOS = [
    ("the_log.py", ["it ended with signal 9", "exported again, the same: True"]),
    (
        "the_runs.py",
        ["doomed ended with signal 9", "6 done", "were taken over", "each once: True", "done: answered"],
    ),
    ("the_loop.py", ["it ended with signal 9", "Outcome unknown", "create_plan", "booked: Oslo"]),
    (
        "hooks.py",
        ["I may not delete her", "result: Ada, [mail]", "is not allowed here", "refused: the budget of 40 tokens"],
    ),
    ("agent_framework_history.py", ["It rains in Oslo.", "'tool_call_results'", "6 messages for Anthropic"]),
    ("typed_state.py", ["one is left", "state: Stock(items={'lamp': 1}, sold=2)"]),
    ("agents.py", ["planner hands off to executor", "calls ask_historian", "answered: Approved."]),
    ("telemetry.py", ["invoke_agent forecaster", "  chat scripted (", "  execute_tool weather"]),
    ("tool_call_stream.py", ['arguments: {"to":', "result: sent to Ada, 38 characters"]),
    ("mcp_resources.py", ["resources: ['notes://today']", "prompts: ['summarize']", "result: 2"]),
    ("testing_an_agent.py", ["test_it_looks_the_order_up: passed", "test_a_refund_waits_for_a_person: passed"]),
    ("typed_output.py", ["so far: {'title': 'Toaster", "answer.priority", "ticket: Ticket(title='Toaster burns'"]),
]


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        pytest.param(
            *demo, marks=[] if demo[0] == "the_loop.py" else [pytest.mark.slow]
        )  # the one of `make demo` is everyday
        for demo in DEMOS
    ],
)
def test_the_demos_run(example: str, expected: list[str], place: Path) -> None:
    run = subprocess.run([sys.executable, ROOT / "examples" / example], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert [words for words in expected if words not in run.stdout] == []
    assert list(place.iterdir()) == []
    if example == "the_loop.py":
        assert run.stdout.count("0 rules broken") == len(FORMATS)


def test_the_readme_can_be_read_in_three_minutes() -> None:
    """At most 150 lines, and 480 words outside of code, tables of addresses and pictures: 160 words a minute, read aloud."""
    for name in ("README.md", "README.zh-CN.md"):
        text = (ROOT / name).read_text()
        assert len(text.splitlines()) <= 150, name
        prose = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
        words = re.findall(r"[A-Za-z0-9][\w'’.-]*", re.sub(r"\]\([^)]*\)", "]", prose))
        characters = re.findall(r"[\u4e00-\u9fff]", prose)
        assert len(words) + len(characters) / 2 <= 480, f"{name}: {len(words)} words, {len(characters)} characters"


def test_figures_of_the_readme_are_the_measured_ones() -> None:
    """What was measured is in `bench/results` and in the matrix of clients, and is repeated here exactly."""
    scenarios = json.loads((ROOT / "bench" / "results" / "failover.json").read_text())["defaults"]
    passed = sum(one["verdict"] == "pass" for one in scenarios)
    clients = (ROOT / "docs" / "gateway" / "clients.md").read_text()
    found = re.search(r"each of the five formats: (\d+) pairs of program and wire, (\d+) runs", clients)
    assert found is not None
    assert int(found[1]) * 5 == int(found[2])
    english, chinese = (ROOT / "README.md").read_text(), (ROOT / "README.zh-CN.md").read_text()
    assert passed == len(scenarios)
    assert f"{found[2]} of {found[2]} runs" in english
    assert f"共 {found[2]} 次运行" in chinese
    assert f"All {passed} scenarios" in english
    assert f"{passed} 个场景" in chinese


def test_every_yes_of_the_comparison_links_to_a_test() -> None:
    page = (ROOT / "docs" / "library-comparison.md").read_text()
    ours = [row.split("|")[2].strip() for row in page.splitlines() if row.startswith("| ") and "---" not in row]
    claims = [cell for cell in ours if cell.startswith("yes")]
    assert len(claims) > 25
    for claim in claims:
        found = re.fullmatch(r"yes: \[(test_\w+)\]\(\.\./([\w/-]*tests/[\w/]+\.py)\)", claim)
        assert found is not None, claim
        assert f"def {found[1]}(" in (ROOT / found[2]).read_text(), claim
    assert [cell for cell in ours if not cell.startswith(("yes: ", "no", "Antiphon")) and cell] == []


def test_tests_named_for_the_seeds_exist() -> None:
    """The last tables of the page name files and functions in the folders of tests."""
    page = (ROOT / "docs" / "design-documents.md").read_text()
    rows = page[page.index("## Every requirement") :].splitlines()
    count = 0
    for row in rows:
        place = Path()
        for name in re.findall(r"`([\w/]+\.py(?:::\w+)?|test_\w+)`", row):
            file, _, function = name.partition("::") if ".py" in name else ("", "", name)
            places = [place.parent / file, *(Path(folder) / file for folder in TEST_PATHS)] if file else [place]
            place = next((path for path in places if path.is_file()), Path())
            assert place.is_file(), f"{row}: {name}"
            assert not function or f"def {function}(" in place.read_text(), f"{row}: {function}"
            count += 1
    assert count > 150
