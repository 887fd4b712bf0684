"""Endpoints that are passed on: official clients, multipart and binary bodies, streams both ways, the choice of provider."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias, cast

import pytest
from msgspec import structs

from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import Timeouts
from antiphon.providers.engine.provider import Provider
from antiphon.providers.presets import PRESETS
from antiphon.providers.retry import RetryPolicy
from antiphon_gateway.access.client_keys import BUDGET_LIMITS, hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, ProviderSettings
from antiphon_gateway.endpoints.pass_through import upstream_url
from antiphon_gateway.generate.whole_body import read_any_usage
from gateway.rig import FAST, Client, Got, serving

AUDIO = bytes(range(256)) * 1000
PNG = b"\x89PNG\r\n\x1a\n" + AUDIO
SECRET = "sk-upstream-0123456789"


Pieces: TypeAlias = bytes | list[bytes | float]
"""A body; a number is a pause of so many seconds."""


class Seen:
    """What a stand-in received."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.progress = threading.Condition()
        self.received_bytes = 0
        self.reply: Callable[[str, str], tuple[int, dict[str, str], Pieces] | None] = lambda method, path: None

    @property
    def last(self) -> tuple[str, str, dict[str, str], bytes]:
        return self.requests[-1]

    def wait_for_bytes(self, count: int) -> None:
        with self.progress:
            assert self.progress.wait_for(lambda: self.received_bytes >= count, 20), f"only {self.received_bytes} bytes"


def answer_for(method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """What a host says, as far as the official clients need it."""
    kind, name = "application/json", path.partition("?")[0]
    file = {"id": "file-1", "object": "file", "bytes": 3, "created_at": 1, "filename": "a", "purpose": "batch"}
    body: Any = file
    if name.endswith(("/content", "/speech")):
        return 200, {"content-type": "audio/mpeg", "content-disposition": "attachment; filename=a.mp3"}, AUDIO
    if name.startswith("/upload/") and "upload_id" not in path:
        return 200, {"x-goog-upload-url": f"{path}", "x-goog-upload-status": "active"}, b""
    if name.startswith("/upload/"):
        made = {"file": {"name": "files/1", "uri": "https://host/files/1", "mimeType": "text/plain"}}
        return 200, {"x-goog-upload-status": "final", "content-type": kind}, json.dumps(made).encode()
    if method == "DELETE":
        body = {"id": "file-1", "object": "file", "deleted": True}
    elif name.endswith(("/images/generations", "/images/edits")):
        body = {
            "created": 1,
            "data": [{"b64_json": "aGVsbG8="}],
            "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8},
        }
    elif name.endswith("/transcriptions"):
        body = {"text": "hello"}
    elif name.endswith("/moderations"):
        body = {"id": "m", "model": "o", "results": []}
    elif name.endswith("/files") and method == "GET":
        body = {"object": "list", "data": [file], "has_more": False}
    elif name.endswith("/batches") or "/batches/" in name:
        body = {"id": "batch_1", "object": "batch", "status": "validating", "endpoint": "/v1/chat/completions",
                "input_file_id": "file-1", "completion_window": "24h", "created_at": 1}  # fmt: skip
    elif "/vector_stores" in name:
        body = {"id": "vs_1", "object": "vector_store", "name": "v", "created_at": 1, "status": "completed",
                "usage_bytes": 0, "file_counts": {}}  # fmt: skip
    return 200, {"content-type": kind}, json.dumps(body).encode()


@contextmanager
def host() -> Iterator[tuple[str, Seen]]:
    """A provider that reads bodies piece by piece."""
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            digest, body = hashlib.sha256(), b""
            for piece in self.pieces():
                digest.update(piece)
                body = piece if not body else body + piece if len(body) < 1_000_000 else body
                with seen.progress:
                    seen.received_bytes += len(piece)
                    seen.progress.notify_all()
            headers = {name.lower(): value for name, value in self.headers.items()}
            headers["digest"] = digest.hexdigest()
            seen.requests.append((self.command, self.path, headers, body))
            data: Pieces
            status, returned, data = seen.reply(self.command, self.path) or answer_for(self.command, self.path)
            self.send_response(status)
            for name, value in returned.items():
                if name == "x-goog-upload-url":
                    value = f"http://{self.headers['host']}{value}{'&' if '?' in value else '?'}upload_id=u1&key=leaked"
                self.send_header(name, value)
            pieces = [data] if isinstance(data, bytes) else data
            self.send_header("content-length", str(sum(len(piece) for piece in pieces if isinstance(piece, bytes))))
            self.end_headers()
            for sent in pieces:
                if isinstance(sent, bytes):
                    self.wfile.write(sent)
                else:
                    time.sleep(sent)

        do_GET = do_POST = do_DELETE = do_PUT = handle_any  # noqa: N815 - the names that http.server calls

        def pieces(self) -> Iterator[bytes]:
            if self.headers.get("transfer-encoding") == "chunked":
                while size := int(self.rfile.readline(), 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return
            left = int(self.headers.get("content-length", 0))
            while left:
                piece = self.rfile.read1(min(left, 65536))
                if not piece:
                    return
                left -= len(piece)
                yield piece

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class Running:
    def __init__(self, port: int, openai: Seen, anthropic: Seen, gemini: Seen) -> None:
        self.port, self.openai, self.anthropic, self.gemini = port, openai, anthropic, gemini
        self.url = f"http://127.0.0.1:{port}"

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Got:
        client = Client(self.port, headers.pop("key", "sk-all"))
        try:
            return client.request(
                method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
            )
        finally:
            client.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with host() as (first, openai), host() as (second, anthropic), host() as (third, gemini):
        config = Config(
            gateway=FAST,
            providers=(
                ProviderSettings(name="openai", base_url=f"{first}/v1", keys=("env:KEY", "env:OTHER")),
                ProviderSettings(name="anthropic", base_url=second, keys=("env:KEY",)),
                ProviderSettings(name="gemini", base_url=third, keys=("env:KEY",)),
            ),
            keys=(
                ClientKeySettings(name="all", key=hash_key("sk-all")),
                ClientKeySettings(name="some", key=hash_key("sk-some"), models=("gpt-*",)),
                ClientKeySettings(name="operator", key=hash_key("sk-operator"), admin=True),
                *(
                    ClientKeySettings(name=limit, key=hash_key(f"sk-{limit}"), **cast("Any", {limit: 1000}))
                    for limit in ("requests_per_minute", "tokens_per_minute", *BUDGET_LIMITS)
                ),
            ),
        )
        with serving(config, {"KEY": SECRET, "OTHER": "sk-other"}) as ports:
            yield Running(ports[0], openai, anthropic, gemini)


@pytest.fixture
def sdk(running: Running) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="sk-all", max_retries=0) as client:
        yield client


def test_files_of_the_official_client(running: Running, sdk: Any) -> None:
    for _ in range(2):  # always with the first key: the file belongs to its account
        assert sdk.files.create(file=("a.bin", AUDIO), purpose="batch").id == "file-1"
        method, path, headers, body = running.openai.last
        assert (method, path, headers["authorization"]) == ("POST", "/v1/files", f"Bearer {SECRET}")
        assert headers["content-type"].startswith("multipart/form-data; boundary=")
        assert AUDIO in body
    assert sdk.files.list().data[0].id == "file-1"
    assert sdk.files.content("file-1").content == AUDIO
    assert sdk.files.delete("file-1").deleted
    assert running.openai.last[:2] == ("DELETE", "/v1/files/file-1")


def test_images_audio_moderations_batches_and_vector_stores(running: Running, sdk: Any) -> None:
    assert sdk.images.generate(model="gpt-image-1", prompt="a cat").data[0].b64_json == "aGVsbG8="
    assert json.loads(running.openai.last[3]) == {"model": "gpt-image-1", "prompt": "a cat"}
    sdk.images.edit(model="gpt-image-1", image=io.BytesIO(PNG), prompt="a dog")
    assert PNG in running.openai.last[3]
    assert sdk.audio.speech.create(model="tts-1", voice="alloy", input="hi").content == AUDIO
    with sdk.audio.speech.with_streaming_response.create(model="tts-1", voice="alloy", input="hi") as spoken:
        assert b"".join(spoken.iter_bytes()) == AUDIO
        assert spoken.headers["content-type"] == "audio/mpeg"
        assert "a.mp3" in spoken.headers["content-disposition"]
    assert sdk.audio.transcriptions.create(model="whisper-1", file=("a.mp3", AUDIO)).text == "hello"
    assert AUDIO in running.openai.last[3]
    assert sdk.moderations.create(input="x").id == "m"
    assert (
        sdk.batches.create(completion_window="24h", endpoint="/v1/chat/completions", input_file_id="f").id == "batch_1"
    )
    assert sdk.batches.cancel("batch_1").id == "batch_1"
    assert running.openai.last[:2] == ("POST", "/v1/batches/batch_1/cancel")
    assert sdk.vector_stores.create(name="v").id == "vs_1"


def test_gemini_files_are_uploaded_through_the_gateway(running: Running) -> None:
    genai = pytest.importorskip("google.genai")
    options = genai.types.HttpOptions(base_url=running.url)
    with genai.Client(api_key="sk-all", http_options=options) as client:
        made = client.files.upload(
            file=io.BytesIO(b"some text"), config=genai.types.UploadFileConfig(mime_type="text/plain")
        )
        assert made.name == "files/1"
    _, path, headers, body = running.gemini.last
    assert body == b"some text"
    assert re.fullmatch(r"/upload/v1(beta)?/files\?upload_id=u1", path)
    assert headers["x-goog-api-key"] == SECRET
    assert headers["x-goog-upload-command"] == "upload, finalize"


def test_an_upload_url_is_for_one_upload_of_one_client(running: Running) -> None:
    begun = running.request("POST", "/upload/v1beta/files", b"{}", x_goog_upload_command="start")
    url = begun.headers["x-goog-upload-url"]
    path = url.removeprefix(running.url)
    assert path.startswith("/upload/v1beta/files?upload_id=u1&provider=gemini&ticket=")
    assert not [secret for secret in ("sk-all", SECRET, "leaked") if secret in url]
    assert running.request("POST", path, b"text", key="").status == 200
    forged = path.replace("ticket=", "ticket=x")
    expired = re.sub(r"\.\d+\.", ".1700000000.", path)
    for other in (path.replace("upload_id=u1", "upload_id=u2"), forged, expired, path.partition("&ticket")[0]):
        assert running.request("POST", other, b"text", key="").status == 401
    assert running.request("GET", path.replace("/upload/v1beta", "/v1beta"), key="sk-wrong").status == 401


def test_anthropic_files_and_batches(running: Running) -> None:
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=running.url, api_key="sk-all", max_retries=0) as client:
        client.beta.files.upload(file=("a.txt", b"hello", "text/plain"))
        _, path, headers, body = running.anthropic.last
        assert (path.partition("?")[0], headers["x-api-key"]) == ("/v1/files", SECRET)
        assert b"hello" in body
        assert headers["anthropic-version"]
        client.messages.batches.retrieve("msgbatch_1")
    assert running.anthropic.last[1] == "/v1/messages/batches/msgbatch_1"


def test_queries_and_paths_pass_as_they_came_without_the_clients_key(running: Running) -> None:
    running.request("GET", "/v1/vector_stores/vs%201/files?filter=a%20b&include[]=x&include[]=y&key=sk-all", key="")
    assert running.openai.last[1] == "/v1/vector_stores/vs%201/files?filter=a%20b&include[]=x&include[]=y"
    assert "sk-all" not in str(running.openai.last)
    refused = running.request("GET", "/v1/files/%2e%2e/models")
    assert (refused.status, "dot segments" in refused.json["error"]["message"]) == (400, True)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_large_body_passes_while_it_arrives(running: Running, is_chunked: bool) -> None:
    half = 3_000_000
    running.openai.received_bytes = 0
    framing = "transfer-encoding: chunked" if is_chunked else f"content-length: {2 * half}"
    head = f"POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-all\r\nexpect: 100-continue\r\n{framing}\r\n\r\n"

    def framed(data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data

    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
        client.sendall(head.encode())
        assert client.recv(100).startswith(b"HTTP/1.1 100")
        client.sendall(framed(b"a" * half))
        running.openai.wait_for_bytes(half)  # although the client has sent only half of it
        client.sendall(framed(b"b" * half) + (b"0\r\n\r\n" if is_chunked else b""))
        answer = b""
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            answer += client.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")  # the connection can be used again
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")
    _, _, headers, _ = running.openai.last
    assert headers["digest"] == hashlib.sha256(b"a" * half + b"b" * half).hexdigest()
    assert headers.get("transfer-encoding", "") == ("chunked" if is_chunked else "")


def test_a_body_larger_than_the_limit_of_other_requests() -> None:
    with host() as (url, seen):
        provider = ProviderSettings(name="openai", base_url=f"{url}/v1")
        config = Config(gateway=type(FAST)(port=0, format_port=0, max_body_bytes=1024), providers=(provider,))
        with serving(config, {}) as ports:
            client = Client(ports[0])
            try:
                made = client.request("POST", "/v1/files", AUDIO, {"content-type": "application/octet-stream"})
                assert made.status == 200
                assert seen.last[3] == AUDIO
                assert client.request("POST", "/v1/chat/completions", AUDIO, {}).status == 413
            finally:
                client.close()


def test_a_client_that_leaves_in_the_middle_ends_the_upload(running: Running) -> None:
    running.openai.received_bytes = 0
    before = len(running.openai.requests)
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
        client.sendall(
            b"POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-all\r\ncontent-length: 5000\r\n\r\n"
        )
        client.sendall(b"a" * 1000)
        running.openai.wait_for_bytes(1000)
    with running.openai.progress:
        running.openai.progress.wait_for(lambda: len(running.openai.requests) > before, 5)
    assert running.openai.received_bytes == 1000
    assert running.request("GET", "/v1/files").status == 200


def test_a_header_that_is_not_utf_8_passes_unchanged() -> None:
    name = "attachment; filename=caf\xe9.txt"  # http.server and http.client write and read Latin-1
    with host() as (url, seen):
        provider = ProviderSettings(name="openai", base_url=f"{url}/v1", keys=("env:KEY",), retries=0)
        with serving(Config(gateway=FAST, providers=(provider,)), {"KEY": SECRET}) as ports:
            client = Client(ports[0])
            try:
                seen.reply = lambda method, path: (200, {"content-disposition": name}, AUDIO)
                got = client.get("/v1/files/x/content")
                assert (got.status, got.headers["content-disposition"], got.body) == (200, name, AUDIO)
                seen.reply = lambda method, path: (404, {"content-type": "text/plain; a=\xe9"}, b"no")
                assert client.get("/v1/files/x/content").headers["content-type"] == "text/plain; a=\xe9"
                assert [record["status"] for record in client.get("/status").json["requests"]] == [404, 200]
            finally:
                client.close()


def test_errors_come_as_the_provider_wrote_them() -> None:
    written = b'{"error": {"message": "No such File object", "odd": [1]}}'
    quoting = b'{"error": {"message": "Incorrect key %b"}}' % SECRET.encode()
    with host() as (url, seen):
        provider = ProviderSettings(name="openai", base_url=f"{url}/v1", keys=("env:KEY", "env:OTHER"), retries=0)
        with serving(Config(gateway=FAST, providers=(provider,)), {"KEY": SECRET, "OTHER": "sk-other"}) as ports:
            client = Client(ports[0])
            try:
                seen.reply = lambda method, path: (404, {"content-type": "application/json"}, written)
                missing = client.get("/v1/files/x")
                assert (missing.status, missing.body) == (404, written)
                seen.reply = lambda method, path: (400, {}, quoting)
                refused = client.get("/v1/files/x")
                assert (refused.status, SECRET in refused.body.decode()) == (400, False)
                seen.reply = lambda method, path: (401, {}, quoting)
                rejected = client.get("/v1/files/x")
                assert (rejected.status, SECRET in rejected.body.decode()) == (502, False)
                assert [sent[2]["authorization"] for sent in seen.requests[-2:]] == [
                    f"Bearer {SECRET}",
                    "Bearer sk-other",
                ]
            finally:
                client.close()


def test_a_limited_key_may_not_use_them(running: Running) -> None:
    before = len(running.openai.requests)
    refused = running.request("GET", "/v1/files", key="sk-some")
    assert (refused.status, len(running.openai.requests)) == (403, before)
    assert running.request("GET", "/v1/files", key="sk-wrong").status == 401


def test_requests_are_counted_with_their_usage(running: Running) -> None:
    running.request("POST", "/v1/images/generations", b'{"prompt": "x"}')
    newest = running.request("GET", "/status?format=json", key="sk-operator").json["requests"][0]
    assert (newest["target"], newest["status"], newest["completion_tokens"]) == ("openai", 200, 5)
    metrics = running.request("GET", "/metrics", key="sk-operator").body.decode()
    assert 'antiphon_tokens_total{kind="completion",provider="openai"' in metrics
    assert read_any_usage(b'{"usage": {"prompt_tokens": 2}}').prompt_tokens == 2  # type: ignore[union-attr]
    assert [read_any_usage(body) for body in (b"[]", b"\xff", b'{"usage": 3}', b'{"usage": {}}')] == [None] * 4


COUNTED, MONEY = ("tokens_per_minute", "tokens_per_day", "tokens_per_month"), ("budget_per_day", "budget_per_month")
UNKNOWN_CHARGE = (
    "/v1/batches",
    "/v1/images/generations",
    "/v1/audio/speech",
    "/v1/rerank",
    "/v1beta/models/gemini-2.5-flash:batchGenerateContent",
)


@pytest.mark.parametrize("limit", [*COUNTED, *MONEY])
def test_a_key_with_a_limit_may_not_send_what_cannot_be_charged(running: Running, limit: str) -> None:
    key, hosts = f"sk-{limit}", (running.openai, running.anthropic, running.gemini)
    before = [len(seen.requests) for seen in hosts]
    for path in (*UNKNOWN_CHARGE, *(["/v1/vector_stores"] if limit in MONEY else [])):
        refused = running.request("POST", path, b"{}", key=key)
        assert refused.status == 403, path
        assert limit in refused.body.decode(), "the message names the limit"
    assert running.request("POST", "/v1/messages/batches", b"{}", key=key, anthropic_version="2023-06-01").status == 403
    assert [len(seen.requests) for seen in hosts] == before, "nothing was sent"
    for method, path in (("GET", "/v1/batches"), ("POST", "/v1/moderations"), ("GET", "/v1/files/1/content")):
        assert running.request(method, path, b"{}" if method == "POST" else None, key=key).status == 200, path


def test_a_key_that_limits_only_requests_may_send_them(running: Running) -> None:
    assert running.request("POST", "/v1/batches", b"{}", key="sk-requests_per_minute").status == 200


PICTURE = b"iVBORw0KGgo" * 300_000
USAGE = b'"usage":{"input_tokens":7,"output_tokens":11,"total_tokens":18}'
STREAMED: dict[str, tuple[str, list[bytes | float]]] = {
    "a stream of images": (
        "text/event-stream",
        [
            b'event: image_generation.partial_image\ndata: {"b64_json":"' + PICTURE + b'"}\n\n',
            b'event: image_generation.completed\ndata: {"b64_json":"' + PICTURE + b'",' + USAGE + b"}\n\n",
        ],
    ),
    "a transcript": (
        "text/event-stream; charset=utf-8",
        [
            b'data: {"type":"transcript.text.delta","delta":"\\"usage\\":{\\"input_tokens\\":99}"}\n\n',
            b'data: {"type":"transcript.text.done","text":"x",' + USAGE + b"}\n\ndata: [DONE]\n\n",
        ],
    ),
    "a large image": ("application/json", [b'{"data":[{"b64_json":"' + PICTURE + b'"}],' + USAGE + b"}"]),
}


@pytest.mark.parametrize("kind", STREAMED)
def test_usage_is_read_where_the_provider_reports_it(running: Running, kind: str) -> None:
    content_type, pieces = STREAMED[kind]
    running.openai.reply = lambda method, path: (200, {"content-type": content_type}, pieces)
    try:
        got = running.request("POST", "/v1/images/generations", b'{"stream": true}')
    finally:
        running.openai.reply = lambda method, path: None
    assert got.body == b"".join(piece for piece in pieces if isinstance(piece, bytes))
    newest = running.request("GET", "/status?format=json", key="sk-operator").json["requests"][0]
    assert (newest["prompt_tokens"], newest["completion_tokens"]) == (7, 11)


def test_the_time_of_a_slow_provider_is_not_the_gateways(running: Running) -> None:
    running.openai.reply = lambda method, path: (200, {"content-type": "audio/mpeg"}, [b"a", 1.0, b"b", 1.0, b"c"])
    try:
        assert running.request("POST", "/v1/audio/speech", b"{}").body == b"abc"
    finally:
        running.openai.reply = lambda method, path: None
    newest = running.request("GET", "/status?format=json", key="sk-operator").json["requests"][0]
    assert newest["seconds"] >= 2
    assert newest["overhead_seconds"] < newest["seconds"] / 2


def test_a_body_that_takes_too_long_is_a_timeout() -> None:
    with host() as (address, seen):
        seen.reply = lambda method, path: (200, {"content-type": "audio/mpeg"}, [b"a" * 100_000, 8.0, b"b"])
        config = Config(
            gateway=structs.replace(FAST, request_seconds=1.0),
            providers=(ProviderSettings(name="openai", base_url=f"{address}/v1", keys=("env:KEY",)),),
        )
        with serving(config, {"KEY": SECRET}) as (port, _):
            client = Client(port)
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                client.request("POST", "/v1/audio/speech", b"{}")
            client.close()
            client = Client(port)
            (record,) = client.get("/status?format=json").json["requests"]
            client.close()
    assert (record["status"], record["error"].partition(":")[0]) == (504, "timeout")


def test_the_choice_of_the_provider() -> None:
    with host() as (first, one), host() as (second, two):
        providers = (
            ProviderSettings(name="one", format="openai-chat", base_url=f"{first}/v1"),
            ProviderSettings(name="two", format="openai-chat", base_url=f"{second}/v2", pass_through=("rerank",)),
        )
        with serving(Config(gateway=FAST, providers=providers), {}) as ports:
            client = Client(ports[0])
            try:
                unclear = client.get("/v1/files")
                assert unclear.status == 404
                assert "one, two; name one in the header x-antiphon-provider" in unclear.json["error"]["message"]
                assert client.request("GET", "/v1/files", headers={"x-antiphon-provider": "two"}).status == 200
                assert client.get("/v1/files?provider=one&limit=3").status == 200
                assert (one.last[1], two.last[1]) == ("/v1/files?limit=3", "/v2/files")
                assert client.post("/v2/rerank", {"query": "q"}).status == 200
                assert two.last[1] == "/v2/rerank"
                wrong = client.get("/v1/files?provider=three")
                assert (wrong.status, "one, two" in wrong.json["error"]["message"]) == (404, True)
                missing = client.get("/v1beta/files")
                assert (missing.status, missing.json["error"]["status"]) == (404, "NOT_FOUND")
                none = client.request("GET", "/v1/files", headers={"anthropic-version": "2023-06-01"})
                assert (none.status, none.json["type"]) == (404, "error")
            finally:
                client.close()


@pytest.mark.parametrize(
    ("preset", "base_url", "api", "path", "deployment", "expected"),
    [
        ("openai", "https://h/v1", "openai-chat", "/v1/files/a/content", "", "https://h/v1/files/a/content"),
        ("openai-responses", "https://h/v1", "openai-chat", "/files", "", "https://h/v1/files"),
        ("groq", "https://h", "openai-chat", "/v1/audio/speech", "", "https://h/openai/v1/audio/speech"),
        (
            "azure-openai",
            "https://h",
            "openai-chat",
            "/openai/files",
            "",
            "https://h/openai/files?api-version=2024-10-21",
        ),
        (
            "azure-openai",
            "https://h",
            "openai-chat",
            "/openai/deployments/dalle/images/generations",
            "dalle",
            "https://h/openai/deployments/dalle/images/generations?api-version=2024-10-21",
        ),
        ("anthropic", "https://h", "anthropic", "/anthropic/v1/files", "", "https://h/v1/files"),
        ("gemini", "https://h", "gemini", "/v1beta/files/x:download", "", "https://h/v1beta/files/x:download"),
    ],
)
def test_the_upstream_url_of_passed_on_requests(
    preset: str, base_url: str, api: str, path: str, deployment: str, expected: str
) -> None:
    provider = Provider(
        preset,
        PRESETS[preset],
        base_url,
        keys=None,
        transport=HttpClient({}),
        headers={},
        timeouts=Timeouts(),
        retry=RetryPolicy(),
    )
    assert upstream_url(provider, api, path, deployment) == expected
