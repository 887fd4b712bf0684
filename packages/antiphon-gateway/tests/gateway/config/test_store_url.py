"""`shared` in `antiphon.toml`: what is accepted, what is refused and where; the commands that look at it; and no password."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from antiphon_gateway.cli.doctor import run_checks
from antiphon_gateway.config.file import ConfigError, load_config, read_config
from antiphon_gateway.config.references import StoreUrl, parse_store_url
from antiphon_gateway.config.settings import config_schema
from antiphon_gateway.observe.recent import RecentRequests
from antiphon_gateway.observe.status import ServerStatus, Status, build_status
from antiphon_gateway.share.redis_state import SharedStatus
from support.valkey_server import ValkeyServer, running

PASSWORD = "sesame-that-stays-hidden"


@pytest.mark.parametrize(
    ("written", "expected", "shown"),
    [
        ("redis://store", StoreUrl(host="store"), "redis://store:6379/0"),
        ("redis://store:7000/3", StoreUrl(host="store", port=7000, database=3), "redis://store:7000/3"),
        ("valkey://store/", StoreUrl(host="store"), "redis://store:6379/0"),
        (
            "rediss://me@store:1/0",
            StoreUrl(host="store", port=1, user="me", is_encrypted=True),
            "rediss://store:1/0",
        ),
        ("valkeys://store", StoreUrl(host="store", is_encrypted=True), "rediss://store:6379/0"),
        ("redis://[::1]:7/0", StoreUrl(host="::1", port=7), "redis://[::1]:7/0"),
        ("unix:/run/a.sock", StoreUrl(path="/run/a.sock"), "unix:/run/a.sock"),
        ("unix:///run/a.sock?db=2", StoreUrl(path="/run/a.sock", database=2), "unix:/run/a.sock?db=2"),
    ],
)
def test_addresses(written: str, expected: StoreUrl, shown: str) -> None:
    assert parse_store_url(written) == expected
    assert str(expected) == shown
    assert parse_store_url(shown) == StoreUrl(
        host=expected.host,
        port=expected.port,
        path=expected.path,
        database=expected.database,
        is_encrypted=expected.is_encrypted,
    )


# Each: lines of [gateway], and every problem reported: (line, key, what the reason says).
REFUSED = {
    "near miss": ('shard = "redis://x"', [(2, "gateway.shard", "did you mean shared?")]),
    "a type": ("shared = 6379", [(2, "gateway.shared", "expected a string")]),
    "no scheme": ('shared = "store:6379"', [(2, "gateway.shared", "use redis://host:port/0")]),
    "another scheme": ('shared = "http://store"', [(2, "gateway.shared", "not a Redis or Valkey URL")]),
    "no host": ('shared = "redis://:6379/0"', [(2, "gateway.shared", "has no host")]),
    "no port": ('shared = "redis://store:port/0"', [(2, "gateway.shared", "not a valid URL")]),
    "no number": ('shared = "redis://store/first"', [(2, "gateway.shared", "invalid database number")]),
    "a large number": ('shared = "redis://store/99999999999999"', [(2, "gateway.shared", "invalid database number")]),
    "more than that": ('shared = "redis://store/0?timeout=3"', [(2, "gateway.shared", "query or fragment")]),
    "no full path": ('shared = "unix:redis.sock"', [(2, "gateway.shared", "use an absolute path")]),
    "more than a path": ('shared = "unix:/a?password=x"', [(2, "gateway.shared", "only ?db=number")]),
    "a password in the address": (
        f'shared = "redis://:{PASSWORD}@store"',
        [(2, "gateway.shared", 'set shared_password = "env:NAME"')],
    ),
    "a password in the file": (
        f'shared = "redis://store"\nshared_password = "{PASSWORD}"',
        [(3, "gateway.shared_password", "contains a literal key")],
    ),
    "a password that is not there": (
        'shared = "redis://store"\nshared_password = "env:NOTHING"',
        [(3, "gateway.shared_password", "NOTHING is not set")],
    ),
    "a password for nothing": (
        'shared_password = "env:SHARED"',
        [(2, "gateway.shared_password", "without gateway.shared")],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_store_urls(case: str, tmp_path: Path) -> None:
    lines, expected = REFUSED[case]
    file = tmp_path / "antiphon.toml"
    file.write_text(f"[gateway]\n{lines}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(file, {"SHARED": PASSWORD})
    found = [(problem.line, problem.key, problem.reason) for problem in refused.value.problems]
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    assert all(words in reason for (_, _, words), (_, _, reason) in zip(expected, found, strict=True)), found
    assert PASSWORD not in str(refused.value)


def test_a_password_file_is_watched(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[gateway]\nshared = "redis://store"\nshared_password = "file:secret"\n')
    (tmp_path / "secret").write_text(PASSWORD)
    read = read_config(tmp_path / "antiphon.toml", {})
    assert read.config is not None
    assert read.config.gateway.shared_password == f"file:{tmp_path / 'secret'}"
    assert read.secret_files == (tmp_path / "secret",)
    assert PASSWORD not in repr(read)


def test_the_json_schema_has_the_setting() -> None:
    properties = config_schema()["$defs"]["GatewaySettings"]["properties"]
    assert "redis://" in properties["shared"]["description"]
    assert "env:NAME" in properties["shared_password"]["description"]


def run(folder: Path, *words: str, code: str = "", **environ: str) -> tuple[int, str]:
    """The command line, as a process; `code` runs before it."""
    program = f"import sys\n{code}\nfrom antiphon.cli import main\nsys.exit(main(sys.argv[1:]))"
    ended = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "", "HOME": str(folder), **environ},
        check=False,
    )
    assert PASSWORD not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stdout + ended.stderr


def test_without_the_extra_the_error_names_the_package(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text('[gateway]\nport = 9\nshared = "redis://store"\n')
    missing = "sys.modules['redis'] = None"
    code, output = run(tmp_path, "serve", "--check", "--config", "antiphon.toml", code=missing)
    assert code == 1
    assert "antiphon.toml:3: gateway.shared requires the redis client; run pip install 'antiphon[redis]'" in output
    assert run(tmp_path, "serve", "--check", code=missing)[0] == 0


@pytest.fixture(scope="module")
def locked() -> Iterator[ValkeyServer]:
    with running("--requirepass", PASSWORD) as server:
        yield server


def test_the_doctor_looks_at_it(locked: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(password: str, **options: bool) -> list[tuple[str, str]]:
        monkeypatch.setenv("SHARED", password)
        found = list(run_checks(file, is_offline=options.get("is_offline", False)))
        assert PASSWORD not in str(found)
        return [(one.state, one.said) for one in found if one.what == "shared"]

    file = tmp_path / "antiphon.toml"
    text = f'[gateway]\nport = 0\nformat_port = 0\nshared = "{locked.address}"\n'
    file.write_text(f'{text}shared_password = "env:SHARED"\n')
    [(state, output)] = seen(PASSWORD)
    assert state == "ok"
    assert output.startswith(f"{locked.address} answers in")
    code, output = run(tmp_path, "serve", "--check", "--config", file.name, SHARED=PASSWORD)
    assert (code, f"  shared     {locked.address}\n" in output) == (0, True), output
    [(state, output)] = seen("another")
    assert state == "fail"
    assert "invalid username-password pair" in output
    file.write_text(text.replace(str(locked.socket), "/nowhere"))
    [(state, output)] = seen(PASSWORD)
    assert state == "fail"
    assert "shared store unix:/nowhere is unavailable" in output
    assert seen(PASSWORD, is_offline=True) == []


def test_the_status_shows_it() -> None:
    def status_with_store(*, is_unavailable: bool) -> Status:
        now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        shared = SharedStatus(
            address="redis://a:1/0", is_unavailable=is_unavailable, since=now, reason="<b>" if is_unavailable else ""
        )
        server = ServerStatus(version="1", started=now, now=now, shared=shared)
        return build_status(server, seen=RecentRequests().activity(), credentials={}, models={})

    assert b'"shared":{"address":"redis://a:1/0","is_away":true,' in msgspec.json.encode(
        status_with_store(is_unavailable=True)
    )
