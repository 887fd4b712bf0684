"""The page and its files, and who may use its API."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from antiphon.history import ModelInputEntry, SqliteStore
from antiphon.http.messages import ClientRequest
from antiphon.http.origin import OriginRules
from antiphon.page.files import POLICY, PageFiles
from antiphon_chat.page.access import AccessControl
from antiphon_chat.page.request import ApiError
from antiphon_gateway.access.client_keys import ClientKeys, hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config
from page.rig import PAGE, Browser, served
from support.waiting import SECONDS

SECRET = "sk-antiphon-of-the-test"
KEYED = (
    ClientKeySettings(name="ada", key=hash_key(SECRET)),
    ClientKeySettings(name="ben", key=hash_key(SECRET + "-ben"), models=("offline/*",)),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text("<!doctype html><title>chat</title>")
    (folder / "main.js").write_text("export const x = 1;")
    (folder / "parts").mkdir()
    (folder / "parts" / "look.css").write_text("body { margin: 0 }")
    (folder / "notes.txt").write_text("not for you")
    (folder.parent / "secret.js").write_text("outside")
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, page: Path) -> Iterator[Browser]:
    with served(tmp_path_factory.mktemp("open") / "chats.db", page=PageFiles(page, ["parts/look.css"])) as browser:
        yield browser


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, page: Path) -> Iterator[Browser]:
    with served(
        tmp_path_factory.mktemp("keyed") / "chats.db", keys=KEYED, page=PageFiles(page, ["parts/look.css"])
    ) as browser:
        yield browser


def test_the_page_comes_with_a_strict_policy(browser: Browser) -> None:
    got = browser.get("/chat/")
    assert (got.status, got.body) == (200, b"<!doctype html><title>chat</title>")
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    assert got.headers["content-security-policy"] == POLICY
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert got.headers["x-frame-options"] == "DENY"
    for path in ("/", "/chat"):
        away = browser.get(path)
        assert (away.status, away.headers["location"]) == (302, "/chat/")


def test_every_api_response_is_json_with_nosniff(browser: Browser) -> None:
    for path in ("state", "conversations", "plans", "nothing", "conversations/x"):
        got = browser.get(f"/chat/api/{path}")
        assert got.headers["content-type"] == "application/json"
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["cache-control"] == "no-store"
        assert got.headers["content-security-policy"].startswith("default-src 'none'")


def test_files_are_asked_for_again_and_answered_with_you_have_it(browser: Browser) -> None:
    got = browser.get("/chat/page/main.js")
    assert got.headers["content-type"] == "text/javascript; charset=utf-8"
    assert got.headers["cache-control"] == "no-cache"
    again = browser.request("GET", "/chat/page/main.js", headers={"if-none-match": got.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    other = browser.request("GET", "/chat/page/main.js", headers={"if-none-match": '"other"'})
    assert (other.status, other.body) == (200, b"export const x = 1;")
    assert browser.get("/chat/page/parts/look.css").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/chat/page/../secret.js",
        "/chat/page/..%2fsecret.js",
        "/chat/page/%2e%2e/secret.js",
        "/chat/page/..%5csecret.js",
        "/chat/page//etc/passwd",
        "/chat/page/parts/../../secret.js",
        "/chat/page/main.js%00.css",
        "/chat/page/notes.txt",
        "/chat/page/",
        "/chat/page/.",
        "/chat/page/parts",
        "/chat/other",
    ],
)
def test_only_files_of_the_page_are_served(browser: Browser, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=SECONDS)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.endheaders()
    got = connection.getresponse()
    body = got.read()
    connection.close()
    assert got.status in (400, 404), body
    assert b"outside" not in body
    assert b"not for you" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_page_is_only_read(browser: Browser, method: str) -> None:
    got = browser.request(method, "/chat/")
    assert (got.status, got.headers["allow"]) == (405, "GET")
    assert browser.request("PUT", "/chat/api/conversations", {}).headers["allow"] == "GET, POST"
    assert browser.request("HEAD", "/chat/").status == 200
    assert browser.request("HEAD", "/chat/api/state").status == 405


SAME = {"origin": "http://127.0.0.1:{port}", "sec-fetch-site": "same-origin"}
JSON = {"content-type": "application/json"}
OURS = {"x-antiphon-chat": "1"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**PAGE}, 201),
        ({**PAGE, **SAME}, 201),
        ({**PAGE, "content-type": "application/json; charset=utf-8"}, 201),
        # a form of another site, in each way a form can be sent
        ({"content-type": "application/x-www-form-urlencoded", "origin": "http://evil.example"}, 403),
        ({"content-type": "multipart/form-data; boundary=x", "origin": "http://evil.example"}, 403),
        ({"content-type": "text/plain", "origin": "http://evil.example"}, 403),
        # the body of a form that pretends to be nothing
        ({**OURS, "content-type": "text/plain"}, 415),
        ({**OURS, "content-type": "text/plain;application/json"}, 415),
        ({**OURS, "content-type": "application/octet-stream"}, 415),
        ({**OURS}, 415),
        # our header is missing, or wrong
        ({**JSON}, 403),
        ({**JSON, "x-antiphon-chat": "0"}, 403),
        # another origin
        ({**PAGE, "origin": "http://evil.example"}, 403),
        ({**PAGE, "origin": "null"}, 403),
        ({**PAGE, "origin": "http://127.0.0.1:1"}, 403),
        ({**PAGE, "origin": "http://127.0.0.1.evil.example:{port}"}, 403),
        ({**PAGE, "origin": "file://127.0.0.1:{port}"}, 403),
        ({**PAGE, "origin": ""}, 403),
        ({**PAGE, "sec-fetch-site": "cross-site"}, 403),
        ({**PAGE, "sec-fetch-site": "same-site"}, 403),
    ],
)
def test_only_our_own_page_changes_something(browser: Browser, headers: Mapping[str, str], status: int) -> None:
    before = browser.api("GET", "/conversations")["total"]
    sent_headers = {name: value.format(port=browser.port) for name, value in headers.items()}
    got = browser.request("POST", "/chat/api/conversations", b"{}", sent_headers, plain=True)
    assert got.status == status, got.body
    assert "access-control-allow-origin" not in got.headers
    assert browser.api("GET", "/conversations")["total"] == before + (status == 201)


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_cross_origin_writes_are_refused(browser: Browser, method: str) -> None:
    conversation = browser.create(title="mine")
    for headers in ({}, {**JSON}, {**PAGE, "origin": "http://evil.example"}):
        body = b'{"title": "theirs"}'
        got = browser.request(method, f"/chat/api/conversations/{conversation}", body, headers, plain=True)
        assert got.status in (403, 415)
    assert browser.show(conversation)["info"]["title"] == "mine"


def test_other_sites_do_not_read_either_and_are_not_asked_back(browser: Browser) -> None:
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert browser.request("GET", "/chat/api/conversations", headers=headers).status == 403
    asking = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    got = browser.request("OPTIONS", "/chat/api/conversations", None, asking, plain=True)
    assert got.status == 403
    assert not [name for name in got.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST", 200),
        ("[::1]:{port}", 200),
        ("127.0.0.2", 200),
        ("evil.example", 403),
        ("evil.example:{port}", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("127.0.0.1@evil.example", 403),
        ("evil.example#@127.0.0.1", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_dns_rebinding_is_refused(browser: Browser, host: str, status: int) -> None:
    for path in ("/chat/", "/chat/api/state", "/chat/page/main.js"):
        connection = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=SECONDS)
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("host", host.format(port=browser.port))
        connection.endheaders()
        got = connection.getresponse()
        got.read()
        connection.close()
        assert got.status == status


def test_without_keys_only_this_machine_is_served() -> None:
    admission = AccessControl(lambda: ClientKeys(Config()), lambda: OriginRules("chat.internal"))
    here = {"host": "127.0.0.1"}
    admission.check_host(ClientRequest(method="GET", path="/chat/", peer="127.0.0.1", headers=here))
    admission.check_host(ClientRequest(method="GET", path="/", peer="::1", headers={"host": "chat.internal:80"}))
    for name in ("x-forwarded-for", "x-forwarded-proto", "forwarded", "via", "x-real-ip"):
        forwarded = ClientRequest(method="GET", path="/chat/", peer="127.0.0.1", headers={**here, name: "127.0.0.1"})
        with pytest.raises(ApiError, match="a proxy forwarded"):
            admission.check_host(forwarded)
    for peer in ("192.168.1.7", "10.0.0.1", "", "example.org"):
        with pytest.raises(ApiError, match="only this machine"):
            admission.check_host(ClientRequest(method="GET", path="/chat/", peer=peer, headers=here))


def test_with_keys_the_page_needs_none_and_the_api_does(keyed: Browser) -> None:
    assert keyed.get("/chat/").status == 200
    elsewhere = keyed.request("GET", "/chat/", headers={"host": "chat.example.org"})
    assert elsewhere.status == 200, "with keys it may be served under any name"
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": SECRET}):
        got = keyed.request("GET", "/chat/api/state", headers=headers)
        assert (got.status, got.json["error"]["code"]) == (401, "invalid_api_key")
        assert SECRET.encode() not in got.body
    assert keyed.get(f"/chat/api/state?key={SECRET}").status == 401, "addresses are kept in too many places"
    state = Browser(keyed.port, SECRET).api("GET", "/state")
    assert state["has_keys"]


def test_a_key_does_not_replace_the_origin_check(keyed: Browser) -> None:
    headers = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
    assert keyed.request("POST", "/chat/api/conversations", b"{}", headers, plain=True).status == 403


def test_each_key_sees_its_own_conversations_and_plans(keyed: Browser) -> None:
    ada, ben = Browser(keyed.port, SECRET), Browser(keyed.port, SECRET + "-ben")
    hers = ada.create(title="the diary of Ada")
    ada.ask(hers, "hello diary")
    assert [one["id"] for one in ada.api("GET", "/conversations")["conversations"]] == [hers]
    assert ben.api("GET", "/conversations") == {"conversations": [], "total": 0}
    assert ben.api("GET", "/conversations?query=diary") == {"conversations": [], "total": 0}
    assert len(ada.api("GET", "/conversations?query=diary")["conversations"]) == 1
    for method, path, body in (
        ("GET", "", None),
        ("GET", "/events", None),
        ("GET", "/export", None),
        ("GET", "/rendered", None),
        ("GET", "/timeline", None),
        ("PATCH", "", {"title": "mine"}),
        ("DELETE", "", None),
        ("POST", "/turns", {"content": [{"type": "text", "text": "hi"}]}),
        ("POST", "/fork", {"at": 1}),
        ("POST", "/rollback", {"to": 0}),
    ):
        assert ben.api(method, f"/conversations/{hers}{path}", body, status=404)
    assert ada.show(ada.api("POST", f"/conversations/{hers}/fork", {"at": 1})["id"])["info"]["parent"] == hers
    assert ada.show(hers)["info"]["title"] == "the diary of Ada"


def test_other_clients_take_no_room_in_a_search(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        own = store.create(tags=["owner:ben"])
        own.append(ModelInputEntry.of("a diary of storks"))
        other = store.create(tags=["owner:ada"])
        for _ in range(250):
            other.append(ModelInputEntry.of("diary diary"))
    with served(tmp_path / "chats.db", keys=KEYED) as browser:
        ben = Browser(browser.port, SECRET + "-ben")
        (found,) = ben.api("GET", "/conversations?query=diary")["conversations"]
        assert found["id"] == own.id


def test_a_key_for_some_models_asks_for_no_other(tmp_path: Path) -> None:
    keys = [ClientKeySettings(name="ben", key=hash_key(SECRET), models=("gpt-*",))]
    with served(tmp_path / "chats.db", keys=keys) as browser:
        ben = Browser(browser.port, SECRET)
        assert ben.api("GET", "/state")["models"] == []
        conversation = ben.create()
        turn = {"content": [{"type": "text", "text": "hi"}]}
        for refused in (turn, {**turn, "model": "offline/plain"}):
            assert ben.api("POST", f"/conversations/{conversation}/turns", refused, status=403)
        assert ben.api("PATCH", f"/conversations/{conversation}", {"model": "offline/plain"}, status=403)
        assert ben.show(conversation)["entries"] == []
