"""Chirp: the lines that the agent writes into the job's event log while it runs.

HTCondor's starter listens on a TCP port; `.chirp.config` holds "host port cookie". One request is
one line, its words separated by spaces, a space or backslash within a word escaped by a backslash;
the answer is one line with a number, negative on failure. Only `cookie`, `ulog` and `set_job_attr`
are spoken.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

TIMEOUT = 2.0  # seconds for one line: connect, send and answer
LINE_MAX = 1000  # HTCondor cuts the text of an 008 event at 1,023 bytes
_TRIES = 3  # after so many failures in a row only the last line is tried again
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/+-")


def encode(value: object) -> str:
    """The value as it stands in a line: percent-encoded but for `A-Za-z0-9._:/+-`."""
    data = str(value).encode("utf-8", "replace")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data)


def line(nonce: str, phase: str, state: str, when: float, values: Mapping[str, object]) -> str:
    """One line of an 008 event; what does not fit is left off at the end, whole values first."""
    text = f"headway nonce={nonce} phase={phase} state={state} t={when:.3f}"
    for key, value in values.items():
        if value is None:
            continue
        word = f" {key}={encode(value)}"
        room = LINE_MAX - len(text)
        if len(word) > room:
            cut = word[: max(0, room)]
            percent = cut.rfind("%", len(cut) - 2)  # never half an encoded byte
            cut = cut[:percent] if percent >= 0 else cut
            return text + cut if len(cut) > len(key) + 20 else text
        text += word
    return text


def escape(word: str) -> str:
    """The word as one word of a chirp request."""
    return "".join("\\" + c if c in " \t\r\n\\" else c for c in word)


class Chirp:
    """A connection to the starter that never fails its caller: no chirp only means no lines."""

    def __init__(self, environment: Mapping[str, str], note: Callable[[str], None]) -> None:
        self._note = note
        self._noted = False
        self._failures = 0
        self._socket: socket.socket | None = None
        self._address = _read_config(environment)
        if self._address is None:
            self._failed("no chirp configuration: phases are not shown in the event log")

    def send(self, text: str, *, last: bool = False) -> bool:
        """Write one line to the job's event log; False when it did not get there."""
        if self._address is None or (self._failures >= _TRIES and not last):
            return False
        try:
            if self._socket is None:
                self._connect()
            self._ask(f"ulog {escape(text)}")
        except (OSError, ValueError) as error:
            self.close()
            self._failures += 1
            self._failed(f"chirp failed: {error}")
            return False
        self._failures = 0
        return True

    def set_attribute(self, name: str, expression: str, *, quiet: bool = False) -> bool:
        """Set an attribute of the job's ad, for its later attempts; False when it is not set."""
        try:
            if self._socket is None:
                self._connect()
            self._ask(f"set_job_attr {name} {escape(expression)}")
        except (OSError, ValueError) as error:
            self.close()
            if not quiet:
                self._note(f"{name} cannot be set by chirp: {error}")
            return False
        return True

    def set_reason(self, words: str, environment: Mapping[str, str]) -> None:
        """Let the job's ad say why this attempt ended; `pool.policy` makes a hold's reason of it.

        The number of the start goes with it: what an earlier attempt said is not this one's. The
        embedded pool takes no attributes: it reads the record.
        """
        from headway.node.ads import quoted, read_job_ad
        from headway.node.exits import LONGEST_REASON, REASON

        starts = read_job_ad(environment).get("numshadowstarts")
        text = " ".join(words.encode("ascii", "backslashreplace").decode().split())
        if isinstance(starts, int):
            value = f"{{{starts}, {quoted(text[:LONGEST_REASON])}}}"
            self.set_attribute(REASON, value, quiet=True)

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        import socket

        if self._address is None:
            raise OSError("no chirp configuration")
        host, port, cookie = self._address
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT)
        self._ask(f"cookie {escape(cookie)}")

    def _ask(self, request: str) -> None:
        if self._socket is None:
            raise OSError("not connected")
        self._socket.sendall(request.encode("utf-8", "replace") + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            piece = self._socket.recv(256)
            if not piece or len(answer) > 256:
                raise OSError("the starter broke the connection off")
            answer += piece
        code = int(answer)
        if code < 0:
            raise OSError(f"the starter refused with {code}")

    def _failed(self, words: str) -> None:
        if not self._noted:
            self._noted = True
            self._note(words)


def _read_config(environment: Mapping[str, str]) -> tuple[str, int, str] | None:
    named = environment.get("_CONDOR_CHIRP_CONFIG")
    folders = (environment.get("_CONDOR_SCRATCH_DIR"), os.curdir)
    for path in [named, *(os.path.join(folder, ".chirp.config") for folder in folders if folder)]:
        try:
            with open(path or "", encoding="utf-8") as file:
                host, port, cookie = file.read(4096).split()
            return host, int(port), cookie
        except (OSError, ValueError):
            continue
    return None
