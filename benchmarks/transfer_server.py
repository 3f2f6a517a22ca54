"""The servers that benchmarks of transfers fetch from: nginx where it is installed.

A server must be at least as fast as the tools, or else all of them look alike. The lab's own, which
takes nginx's place where there is none, is not always.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.lab import Content, Server
from tests.lab.tls import Identity

_TICKS = os.sysconf("SC_CLK_TCK")
_CONFIGURATION = """
{user}
daemon off;
worker_processes 2;
pid {folder}/pid;
error_log {folder}/errors;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  sendfile on; tcp_nopush on; output_buffers 2 512k; keepalive_requests 100000;
  server {{ listen {host}:{port}{tls}; root {root}; {identity} }}
}}
"""


class Served:
    """Where an object is served, and what serving it costs."""

    def __init__(self, url: str, address: tuple[str, int], pid: int | None = None) -> None:
        self.url, self.address = url, address
        self._pid = pid

    @property
    def cpu(self) -> float | None:
        """CPU seconds of the server so far; None: it is no process of its own."""
        if self._pid is None:
            return None
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        return sum(_cpu(pid) for pid in [str(self._pid), *children])


@contextlib.contextmanager
def serve(content: Content, root: Path, name: str, tls: Identity | None) -> Iterator[Served]:
    """Serve an object, which lies at its name under the root, from the fastest server there is."""
    if has_nginx():
        with _nginx(root, name, tls) as served:
            yield served
    else:
        with Server({name: content}, tls=tls, send_buffer=None) as server:
            yield Served(server.url(name), server.address)


def has_nginx() -> bool:
    return shutil.which("nginx") is not None


@contextlib.contextmanager
def _nginx(root: Path, name: str, tls: Identity | None) -> Iterator[Served]:
    folder = root / "nginx"
    folder.mkdir(exist_ok=True)
    host, port = "127.0.0.1", _free_port()
    shown = f"ssl_certificate {tls.certificate}; ssl_certificate_key {tls.key};" if tls else ""
    text = _CONFIGURATION.format(
        # its workers read what only this user may read
        user=f"user {getpass.getuser()};" if os.geteuid() == 0 else "",
        folder=folder,
        host=host,
        port=port,
        tls=" ssl" if tls else "",
        root=root,
        identity=shown,
    )
    configuration = folder / "nginx.conf"
    configuration.write_text(text)
    with (folder / "said").open("wb") as said:
        command = ["nginx", "-e", str(folder / "errors"), "-c", str(configuration)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        _wait(process, (host, port), folder / "said")
        yield Served(f"http{'s' if tls else ''}://{host}:{port}{name}", (host, port), process.pid)
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as place:
        return int(place.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], address: tuple[str, int], said: Path) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(address, 1):
            return
        time.sleep(0.02)
    process.terminate()
    raise SystemExit(f"nginx does not start:\n{said.read_text(errors='replace')[-2000:]}")


def _cpu(pid: str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
