"""Certificates of the lab's own authority, and of those whom nobody should trust."""

from __future__ import annotations

import atexit
import functools
import shutil
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .addresses import FIRST, LAST

_NAMES = ",".join(
    [f"IP:127.0.0.{n}" for n in (1, *range(FIRST, LAST + 1))] + ["DNS:localhost", "DNS:*.lab.test"]
)
_ELSEWHERE = "DNS:elsewhere.lab.invalid"


@dataclass(frozen=True)
class Identity:
    """A certificate with its key."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """For a server that shows it."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.certificate, self.key)
        return made


class Authority:
    """The lab's CA; `Authority.get()` makes it and its certificates once per process."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            raise RuntimeError("the lab needs the openssl command for its certificates")
        self._folder = folder
        trusted, stranger = self._root("lab"), self._root("stranger")
        self.bundle = trusted.certificate  # what clients trust: SSL_CERT_FILE
        self.folder = self._hashed(trusted.certificate)  # the same as SSL_CERT_DIR
        self.good = self._issue("good", trusted, _NAMES)
        self.wrong_host = self._issue("wrong_host", trusted, _ELSEWHERE)
        self.unknown = self._issue("unknown", stranger, _NAMES)
        self.expired = self._issue("expired", trusted, _NAMES, expired=True)

    @staticmethod
    @functools.cache
    def get() -> Authority:
        folder = tempfile.mkdtemp(prefix="headway-lab-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return Authority(Path(folder))

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.bundle))

    def _hashed(self, certificate: Path) -> Path:
        folder = self._folder / "trusted"
        folder.mkdir()
        name = _openssl("x509", "-hash", "-noout", "-in", str(certificate)).strip()
        shutil.copy(certificate, folder / f"{name}.0")
        return folder

    def _root(self, name: str) -> Identity:
        made = Identity(self._folder / f"{name}-ca.pem", self._folder / f"{name}-ca.key")
        _openssl(
            *("req", "-x509", *_KEY, "-keyout", str(made.key), "-out", str(made.certificate)),
            *("-days", "2", "-subj", f"/CN=Headway fault lab, {name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )
        return made

    def _issue(self, name: str, root: Identity, names: str, *, expired: bool = False) -> Identity:
        made = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        asked, more = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        more.write_text(
            f"subjectAltName={names}\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth\n"
            "basicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl(
            *("req", "-new", *_KEY, "-keyout", str(made.key), "-out", str(asked)),
            *("-subj", f"/CN={name}.lab.test"),
        )
        _openssl(
            *("x509", "-req", "-in", str(asked), "-out", str(made.certificate)),
            *("-CA", str(root.certificate), "-CAkey", str(root.key), "-CAcreateserial"),
            *("-extfile", str(more), "-days", "-1" if expired else "2"),
        )
        return made


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(*arguments: str) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed:\n{done.stderr}")
    return done.stdout
