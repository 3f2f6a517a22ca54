"""The TLS pipe: receives in large pieces and decrypts from memory.

An SSLSocket asks the kernel twice for every record of 16 KiB; this asks once for sixteen of them.
"""

from __future__ import annotations

import contextlib
import socket
import ssl

_PIECE = 1 << 18


class TlsPipe:
    """TLS over a connected socket, with as much of a socket's face as the wire needs."""

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._raw = raw
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)
        self._buffer = memoryview(bytearray(_PIECE))
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the alert that tells the other side why
                raise
        self._flush()

    def recv_into(self, view: memoryview) -> int:
        """Whatever is there, at least one byte; 0 when the other side has said that it is done."""
        read, size, filled = self._tls.read, len(view), 0
        while True:
            try:
                while filled < size:  # record by record: 16 KiB at most
                    count = read(size - filled, view[filled:])
                    if not count:
                        break
                    filled += int(count)
                return filled
            except ssl.SSLWantReadError:
                self._flush()
                if filled:
                    return filled
                self._fill()
            except ssl.SSLZeroReturnError:
                return filled

    def recv(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def sendall(self, data: bytes) -> None:
        self._tls.write(data)
        self._flush()

    def close(self) -> None:
        self._raw.close()

    def _fill(self) -> None:
        count = self._raw.recv_into(self._buffer)
        if count == 0:
            # without the farewell of TLS, anybody could have cut the connection
            raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the connection broke off")
        self._in.write(self._buffer[:count])

    def _flush(self) -> None:
        if self._out.pending:
            self._raw.sendall(self._out.read())
