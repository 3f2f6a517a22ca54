"""A worker node in a temporary folder: the real headway-node.pyz, real processes, real servers."""

from __future__ import annotations

import base64
import http.server
import json
import os
import py_compile
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.pool.program import build_agent

PYTHON = os.environ.get("HEADWAY_TEST_PYTHON", sys.executable)


class Chirp:
    """The starter's side of chirp: keeps the lines that it was asked to log."""

    def __init__(self) -> None:
        self.cookie = "c0ffee"
        self.lines: list[str] = []
        self.raw: list[bytes] = []
        self.answer = b"0\n"
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        known = False
        with connection, connection.makefile("rb") as requests:
            for request in requests:
                self.raw.append(request)
                words = _words(request.rstrip(b"\n").decode())
                if words[0] == "cookie":
                    known = words[1:] == [self.cookie]
                elif words[0] == "ulog" and known and len(words) == 2:
                    self.lines.append(words[1])
                connection.sendall(self.answer if known else b"-1\n")

    def phases(self) -> list[dict[str, str]]:
        return [dict(pair.split("=", 1) for pair in line.split()[1:]) for line in self.lines]

    def close(self) -> None:
        self._server.close()


def _words(request: str) -> list[str]:
    words, escaped = [""], False
    for c in request:
        if escaped or c not in " \\":
            words[-1] += c
            escaped = False
        elif c == "\\":
            escaped = True
        else:
            words.append("")
    return words


class Node:
    """One scratch folder, and the agent started in it as a pool would."""

    def __init__(self, folder: Path, pyz: Path, chirp: Chirp) -> None:
        self.folder, self.pyz, self.chirp = folder, pyz, chirp
        folder.mkdir(exist_ok=True)
        (folder / ".chirp.config").write_text(f"127.0.0.1 {chirp.port} {chirp.cookie}\n")
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment = {"PATH": os.environ["PATH"], "HEADWAY_PYTHON": PYTHON}
        self.stderr = ""

    def plan(self, command: list[str] | str, **changes: Any) -> None:
        plan: dict[str, Any] = {
            "format": 1,
            "run": "4b1f",
            "name": "test",
            "command": [command] if isinstance(command, str) else command,
            "shell": isinstance(command, str),
            "environment": {},
            "payload": None,
            "inputs": [],
            "outputs": [],
            "checkpoint": None,
            "disk": None,
            "gpus": 0,
            "grace": 5.0,
            "time_limit": None,
        }
        plan.update(changes)
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def python(self, code: str, **changes: Any) -> None:
        literal = code.replace("{", "{{").replace("}", "}}")
        self.plan([sys.executable, "-I", "-S", "-c", literal], **changes)

    def row(self, **values: str) -> None:
        data = json.dumps(values).encode()
        encoded = base64.urlsafe_b64encode(data).rstrip(b"=").decode()
        self.environment["HEADWAY_ROW"] = encoded

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [str(self.pyz), "agent", "plan.json"],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> int:
        _, errors = process.communicate(timeout=90)
        self.stderr = errors.decode()
        return process.returncode

    def run(self, **environment: str) -> int:
        return self.end(self.start(**environment))

    def attempts(self) -> list[Path]:
        return sorted((self.folder / "headway-out" / "attempts").iterdir())

    def attempt(self) -> Path:
        return max(self.attempts(), key=lambda path: path.stat().st_mtime_ns)

    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.attempt() / "record.json").read_text())
        return record

    def stdout(self) -> str:
        return (self.attempt() / "stdout").read_text()

    def wait_for(self, name: str) -> None:
        wait(lambda: (self.folder / name).exists())


def wait(condition: Callable[[], object], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def seconds_to_start(pyz: Path) -> float:
    """What a few starts take now, for those who count seconds: little, but on a busy machine."""
    begin = time.monotonic()
    environment = {"PATH": os.environ["PATH"], "HEADWAY_PYTHON": PYTHON}
    for _ in range(4):
        subprocess.run([pyz, "version"], env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


class Web:
    """An HTTP server whose answers are scripted: one reply per request and path, the last stays."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.script: dict[str, list[Callable[[http.server.BaseHTTPRequestHandler], bool]]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.ranges = True
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                web.answer(self)

            do_HEAD = do_PUT = do_GET

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                pass  # a client that hangs up is part of the test

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def paths(self, method: str = "GET") -> list[str]:
        return [path for how, path, _ in self.requests if how == method]

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = request.path.lstrip("/").partition("?")[0]
        self.requests.append((request.command, path, dict(request.headers)))
        script = self.script.get(path, [])
        if script:
            act = script.pop(0) if len(script) > 1 else script[0]
            if act(request):
                return
        if request.command == "PUT":
            if request.headers.get("If-None-Match") == "*" and path in self.files:
                self.reply(request, 412)
                return
            length = int(request.headers["Content-Length"])
            self.files[path] = request.rfile.read(length)
            self.reply(request, 201)
        elif path not in self.files:
            self.reply(request, 404)
        else:
            self.give(request, self.files[path])

    def give(
        self,
        request: http.server.BaseHTTPRequestHandler,
        data: bytes,
        *,
        only: int | None = None,
        length: int | None = None,
        etag: str = '"1"',
    ) -> bool:
        """Send an object; `only` breaks off after so many bytes."""
        wanted = request.headers.get("Range")
        first, last = 0, len(data)
        match = request.headers.get("If-Range") in (None, etag)
        if wanted and self.ranges and match:
            start, _, stop = wanted.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(stop or len(data)), len(data) - 1)
            if first > last:
                return self.reply(request, 416, Content_Range=f"bytes */{len(data)}")
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        else:
            request.send_response(200)
        body = data[first : last + 1]
        request.send_header("Content-Length", str(len(body) if length is None else length))
        request.send_header("ETag", etag)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body if only is None else body[:only])
        if only is not None:
            request.close_connection = True
        return True

    def reply(
        self, request: http.server.BaseHTTPRequestHandler, status: int, **headers: str
    ) -> bool:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", "0")
        request.end_headers()
        request.close_connection = True
        return True

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Beside its sources their bytecode: to compile them is most of what a start takes."""
    folder = tmp_path_factory.mktemp("agent")
    path = folder / "headway-node.pyz"
    build_agent(path)
    with zipfile.ZipFile(path, "a") as agent:
        for name in agent.namelist():
            source, compiled = folder / "source.py", folder / "compiled"
            source.write_bytes(agent.read(name))
            py_compile.compile(
                str(source),
                str(compiled),
                f"{path}/{name}",
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            agent.write(compiled, f"{name}c")  # another Python passes it over
    return path


@pytest.fixture
def chirp() -> Iterator[Chirp]:
    server = Chirp()
    yield server
    server.close()


@pytest.fixture
def node(tmp_path: Path, pyz: Path, chirp: Chirp) -> Iterator[Node]:
    node = Node(tmp_path / "scratch", pyz, chirp)
    yield node
    for process in node.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()
