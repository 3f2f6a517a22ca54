"""The TLS pipe: receives in large pieces and decrypts from memory.

An SSLSocket asks the kernel twice for every record of 16 KiB; this asks once for sixteen of them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl

_PIECE = 1 << 18
_RECORD = 5 + (1 << 14) + 2048  # the longest that TLS allows, with its head


class TlsPipe:
    """TLS over a connected socket, with as much of a socket's face as the wire needs."""

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._raw = raw
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)
        self._buffer = memoryview(bytearray(_PIECE))
        self._trouble: OSError | None = None
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
        read, encrypted, size, filled = self._tls.read, self._in, len(view), 0
        while filled < size:
            # before OpenSSL lacks the rest of a record: an exception costs as much as ten records
            if encrypted.pending < _RECORD:
                self._take()
            try:
                count = int(read(size - filled, view[filled:]))  # one record: 16 KiB at most
            except ssl.SSLWantReadError:
                self._flush()
                if filled:
                    break
                self._fill()
                continue
            except ssl.SSLZeroReturnError:
                break
            if not count:
                break
            filled += count
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
        """Wait for more."""
        if self._trouble is not None:
            raise self._trouble
        count = self._raw.recv_into(self._buffer)
        if count == 0:
            # without the farewell of TLS, anybody could have cut the connection
            raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the connection broke off")
        self._in.write(self._buffer[:count])

    def _take(self) -> None:
        """Take what has come already; trouble is told when there is nothing else left to tell."""
        if self._raw.gettimeout() is None:
            return  # it would wait
        try:
            # the socket's own method would ask the kernel whether there is anything, and then again
            count = os.readv(self._raw.fileno(), (self._buffer,))
        except BlockingIOError:
            return
        except OSError as error:
            self._trouble = error
            return
        self._in.write(self._buffer[:count])
        self._flush()

    def _flush(self) -> None:
        if self._out.pending:
            self._raw.sendall(self._out.read())
