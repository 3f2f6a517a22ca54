"""The fault lab: servers on loopback that do exactly what is wrong in the way that a test asks for.

    from tests.lab import Flip, Made, Server, Silent, Status

    content = Made(64 << 20, seed=1)                  # 64 MiB that no memory holds
    with (
        Server({"/a": content}, [Silent(after=5 << 20, scope="server")]) as sick,
        Server({"/a": content}) as healthy,
    ):
        fetch([sick.url("/a"), healthy.url("/a")], path, checksum=content.checksum())
        assert content.fault(path) is None            # or where the file is wrong
        assert sick.sent + healthy.sent < 1.05 * content.size
        assert sick.connections_max <= 2

Each server has an address 127.0.0.x of its own, a free port, and a thread per connection; leaving
the `with` block ends all of them and complains about any that stays. `server.requests` holds every
request with its headers, range, status and bytes sent; `server.saw(token)` looks for a secret in
all of them; `server.faults = []` heals it. See:

- content: `Made(size, seed)`, `Held(bytes)`, `Filed(path)`, `Patched(content, begin, end)`;
  `.write(path)` makes one that is served with sendfile;
  `.digest("sha256" | "md5" | "adler32" | "crc32c")`
- faults: what can be wrong, and when (`.for_seconds(2)`, `.once()`, `.connections(1)`, …)
- store: `Object` (its own ETag), `Digests` (answers to Want-Digest and Want-Repr-Digest), puts
- server: `Server(objects, faults, tls=…, digests=…, trailers=…, age=…, name=…)`
- tls: `Authority.get()`: `Server(…, tls=authority.good)`, or `.expired`, `.wrong_host`, `.unknown`;
  `authority.bundle` is what clients trust (SSL_CERT_FILE),
  `authority.folder` the same as SSL_CERT_DIR
- director: `Director(namespace, caches, origins)` and its discovery document, over TLS
- addresses: `dead_url()` (refused), `black_hole()` (a connect that never ends) and
  `dead_ipv6(port)` (the same on ::1, beside a server on 127.0.0.1)
- wide_path: `WidePath(server.address)`, a process that delays and limits as a long path does
"""

from .addresses import black_hole, dead_ipv6, dead_url
from .answer import Answer, Request
from .content import Content, Filed, Gzipped, Held, Made, Patched
from .director import Director
from .faults import (
    Change,
    Chunked,
    Coded,
    Crowded,
    Delay,
    Drop,
    FailedTrailer,
    Fault,
    Flip,
    FoldedHeaders,
    Garbage,
    Hang,
    Headers,
    Http10,
    IgnoreRange,
    LineFeeds,
    LyingHead,
    OtherBytes,
    Portal,
    Rate,
    Redirect,
    Reset,
    Shorter,
    Silent,
    SlowHeaders,
    Status,
    Strained,
    Truncate,
    Unsized,
    Validators,
    Version,
    When,
    WrongContentRange,
    WrongLength,
)
from .server import Server
from .store import NO_DIGESTS, Digests, Object, Store
from .tls import Authority, Identity
from .wide_path import WidePath

__all__ = [
    "NO_DIGESTS",
    "Answer",
    "Authority",
    "Change",
    "Chunked",
    "Coded",
    "Content",
    "Crowded",
    "Delay",
    "Digests",
    "Director",
    "Drop",
    "FailedTrailer",
    "Fault",
    "Filed",
    "Flip",
    "FoldedHeaders",
    "Garbage",
    "Gzipped",
    "Hang",
    "Headers",
    "Held",
    "Http10",
    "Identity",
    "IgnoreRange",
    "LineFeeds",
    "LyingHead",
    "Made",
    "Object",
    "OtherBytes",
    "Patched",
    "Portal",
    "Rate",
    "Redirect",
    "Request",
    "Reset",
    "Server",
    "Shorter",
    "Silent",
    "SlowHeaders",
    "Status",
    "Store",
    "Strained",
    "Truncate",
    "Unsized",
    "Validators",
    "Version",
    "When",
    "WidePath",
    "WrongContentRange",
    "WrongLength",
    "black_hole",
    "dead_ipv6",
    "dead_url",
]
