"""The status page as files: public, small, kept by the browser, and in both languages."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from antiphon_gateway.observe import page
from antiphon_gateway.observe.page import STATUS_PAGE, wants_page
from gateway.rig import Client, rig

FOLDER = Path(page.__file__).parent
TEXTS = {name: msgspec.json.decode((FOLDER / f"{name}.json").read_bytes()) for name in ("en", "zh")}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with rig() as gateway, gateway.client() as client:
        yield client


def test_only_our_own_files_run(client: Client) -> None:
    got = client.request("GET", "/status", headers={"accept": "text/html"})
    policy = got.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert got.headers["x-frame-options"] == "DENY"
    assert not re.search(rb"<script[^>]*>[^<]|<style|style=| on\w+=", got.body), "nothing inline"
    assert set(re.findall(rb'(?:src|href)="([^"?]+)', got.body)) == {
        b"/status/page/icon.svg",
        b"/status/page/fonts/next.woff2",
        b"/status/page/page.css",
        b"/status/page/page.js",
    }


def test_the_browser_keeps_files_by_their_digest(client: Client) -> None:
    document = client.request("GET", "/status", headers={"accept": "text/html"})
    assert document.headers["cache-control"] == "no-cache"
    for path in re.findall(rb'(?:src|href)="([^"]+\?v=[^"]+)"', document.body):
        got = client.request("GET", path.decode(), headers={"accept-encoding": "gzip"})
        assert got.status == 200
        assert "immutable" in got.headers["cache-control"]
        assert client.request("GET", path.decode(), headers={"if-none-match": got.headers["etag"]}).status == 304
    assert "immutable" not in client.get("/status/page/page.js?v=another").headers["cache-control"]


def test_the_page_is_small(client: Client) -> None:
    packed = [
        client.request("GET", f"/status/page/{name}", headers={"accept-encoding": "gzip, br"})
        for name in ("page.js", "page.css")
    ]
    assert {got.headers["content-encoding"] for got in packed} == {"gzip"}
    assert sum(len(got.body) for got in packed) < 40_000
    plain = client.get("/status/page/page.js")
    assert gzip.decompress(packed[0].body) == plain.body


@pytest.mark.parametrize("name", ["__init__.py", "..%2F__init__.py", "../recent.py", "%2e%2e/recent.py", "nothing", ""])
def test_nothing_else_is_served(client: Client, name: str) -> None:
    assert client.get(f"/status/page/{name}").status in (400, 404)
    assert STATUS_PAGE.read(name) is None


@pytest.mark.parametrize(
    ("accept", "wanted", "is_page"),
    [("text/html,*/*", "", True), ("application/json", "", False), ("text/html", "json", False), ("*/*", "html", True)],
)
def test_browsers_get_the_page_and_programs_json(accept: str, wanted: str, is_page: bool) -> None:
    assert wants_page({"accept": accept}, {"format": wanted} if wanted else {}) == is_page


def test_both_languages_have_every_text_with_the_same_blanks() -> None:
    blanks = re.compile(r"\{(\w+)\}")
    assert TEXTS["en"].keys() == TEXTS["zh"].keys()
    for key, english in TEXTS["en"].items():
        if not key.endswith("_one"):
            assert set(blanks.findall(english)) == set(blanks.findall(TEXTS["zh"][key])), key


def test_every_text_is_used_and_defined() -> None:
    source = "".join(path.read_text() for path in FOLDER.glob("*.js"))
    said = set(re.findall(r'(?:say|sayCount)\("(\w+)"', source))
    said |= {f"{name}_means" for name in re.findall(r'term\("(\w+)"', source)}
    assert said <= TEXTS["en"].keys()
    prefixes = ("cache_", "change_", "state_", "days")
    states = {key.removeprefix("state_") for key in TEXTS["en"] if key.startswith("state_")}
    words = set(re.findall(r'"(\w+)"', source)) | states | {"days"}
    unused = {
        key
        for key in TEXTS["en"]
        if key not in words
        and not key.startswith(prefixes)
        and key.removesuffix("_one") not in words
        and key.removesuffix("_means") not in words
    }
    assert not unused
