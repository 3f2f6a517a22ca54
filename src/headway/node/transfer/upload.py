"""Upload: send one file to a URL, over http(s), to a federation's origin, or into a folder.

Where the server knows MOVE, the bytes go to a temporary name in the same folder and are moved when
they are verified, so that nobody ever sees half an object. That name follows from the content and
the destination: what a killed process left there, the next try overwrites. Where the server does
not know MOVE, the bytes go to the final name, and what an interrupted try leaves is removed if the
name was free before. What is there afterwards is compared by digest where the server tells one,
else by size.

A server may redirect a PUT to another one. If the URL there is as plain as the requested one, the
object belongs there: the upload starts over and is checked, moved and cleaned up there. A URL with
a query of its own is good for the bytes of one request only, as a storage element's door gives it;
the server that gave it is then asked about the object, and the other URL only if that one knows
nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import stat
import time
from urllib.parse import unquote, urlsplit, urlunsplit

from headway.node.errors import FULL, AccessDeniedError, NotFoundError, Stopped, TransferError
from headway.node.files import Lock, lock, name_new, sync_folder, why_untrusted
from headway.node.transfer.checksum import as_header, file_digests, said_digests
from headway.node.transfer.federation import Offer, parse_name, resolve
from headway.node.transfer.heads import REDIRECTS, Redirects
from headway.node.transfer.http import ONCE, HttpConnection, ask, refusal
from headway.node.transfer.source import Fault
from headway.node.transfer.tokens import bearer
from headway.node.transfer.urls import FEDERATED, authority, name, same_host, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from headway.node.transfer.connection import Stop
    from headway.node.transfer.http import Answer

    Progress = Callable[[int, int | None], None]

ROUNDS = 4  # times that an upload is tried
SILENCE = 60.0  # seconds in which the server must take a byte
DIGEST_TIME = 600.0  # for its answer after the last byte: some read the whole object again
LAG = 10.0  # seconds until a new object must be visible
_EVERY = 0.5  # seconds between two calls of `progress`
_CHUNK = 1 << 20
_SMALL = 1 << 20  # so few bytes are sent without waiting for 100 Continue
_EXPECT = 1.0  # seconds to wait for a refusal before the body
_DONE = (200, 201, 202, 204)
_TIDY = 10.0
_UNREACHED = ("resolve", "connect", "TLS")  # phases of a fault in which no byte was sent
_moves: dict[str, bool] = {}  # whether a host knows MOVE, as far as it has been asked


class Sent:
    """A file that has been uploaded.

    Attributes:
        bytes: Its size.
        seconds: How long it took.
        proof: How the file at the destination was compared: "digest", "size", or "" (not at all).
    """

    def __init__(self, size: int, seconds: float, proof: str = "") -> None:
        self.bytes, self.seconds, self.proof = size, seconds, proof


def put(
    path: str,
    url: str,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    rounds: int = ROUNDS,
    again: bool = False,
    begin: Callable[[], None] | None = None,
) -> Sent:
    """Upload one file to `url`; what is there already is only replaced with `overwrite`.

    `begin` is called before the first byte if the server says that nothing is there. `again`: that
    was so for another process, which was to send this very file, and did not come to its end.
    """
    started = time.monotonic()
    copies = parse_name(url).scheme == "file"
    delivery = Delivery(path, url, was_free=again, begin=begin)
    size = _size(path)
    fault = Fault("nothing was tried", retryable=False)
    for number in range(rounds):
        if number:
            _pause(number, fault.after, should_stop)
        try:
            if copies:
                if begin is not None and not again and not os.path.lexists(_place(url)):
                    begin()
                reporter = Reporter(progress, should_stop)
                proof = _copy(path, url, size, overwrite or again, reporter)
            else:
                delivery.put(
                    overwrite=overwrite,
                    again=again or number > 0,
                    progress=progress,
                    should_stop=should_stop,
                )
                proof = delivery.proof
            return Sent(size, time.monotonic() - started, proof)
        except OSError as error:
            words = f"the file cannot be read: {error.strerror}"
            fault = Fault(words, retryable=False, phase="disk")
        except Fault as error:
            fault = error
        if not fault.retryable:
            break
    remedy = "check that the URL is right and that the server accepts uploads there"
    if fault.retryable:
        remedy = f"all {rounds} tries failed, but a later one may succeed; {remedy}"
    raise fault.means(
        f"{os.path.basename(path)} could not be sent to {shown(url)}: {fault}",
        retryable=fault.retryable,
        remedy=fault.remedy or remedy,
    )


def _size(path: str) -> int:
    kind: type[TransferError] = TransferError
    try:
        about = os.stat(path)
        wrong = "" if stat.S_ISREG(about.st_mode) else "it is not a file"
    except OSError as error:
        wrong = str(error.strerror)
        kind = NotFoundError if isinstance(error, FileNotFoundError) else TransferError
    if wrong:
        remedy = "check that the command has written it there"
        raise kind(f"{path} cannot be sent: {wrong}", retryable=False, remedy=remedy)
    return about.st_size


def _pause(number: int, asked: float, should_stop: Stop) -> None:
    """Back off before another round: 1, 2, 4, … seconds, or what the server asked for."""
    # not for secrecy: many nodes must not come back in step
    delay = max(2.0 ** (number - 1) * random.uniform(0.75, 1.25), asked)  # noqa: S311
    end = time.monotonic() + min(delay, 30.0)
    while time.monotonic() < end:
        _check(should_stop)
        time.sleep(min(0.1, max(0.0, end - time.monotonic())))


def _check(should_stop: Stop) -> None:
    if should_stop():
        raise Stopped("the transfer was stopped")


class Reporter:
    """Calls `progress` twice a second at most, and raises Stopped when asked to stop."""

    def __init__(self, progress: Progress | None, should_stop: Stop) -> None:
        self._progress, self._should_stop = progress, should_stop
        self._last = 0.0

    def step(self, done: int, total: int) -> None:
        _check(self._should_stop)
        now = time.monotonic()
        if self._progress is not None and now - self._last >= _EVERY:
            self._last = now
            self._progress(done, total)


def exists() -> Fault:
    """The refusal to replace what somebody has left there."""
    return Fault(
        "something is there already",
        retryable=False,
        remedy="remove it, choose another `to`, or say overwrite = true for this output",
    )


# -- to a folder of the node, or one that the node shares with others


def _place(url: str) -> str:
    return unquote(urlsplit(url).path)


def _copy(path: str, url: str, size: int, overwrite: bool, reporter: Reporter) -> str:
    """Copy the file and return "size", which proves it; Fault: it is not there, or incomplete."""
    final = _place(url)
    folder = os.path.dirname(final)
    if not overwrite and os.path.lexists(final):
        raise exists()
    try:
        os.makedirs(folder, exist_ok=True)
        with open(path, "rb") as source, _part(final, path) as (target, part):
            done = 0
            while piece := source.read(_CHUNK):
                target.write(piece)
                done += len(piece)
                reporter.step(done, size)
            target.flush()
            os.fsync(target.fileno())  # a full or lost disk may speak up only now
            there = os.fstat(target.fileno()).st_size
            if done != size or there != size:
                words = f"{there} of {size} bytes are there after the copy"
                raise Fault(words, phase="verify")
            if overwrite:
                os.replace(part, final)
            else:
                name_new(part, final)
        sync_folder(folder)
    except FileExistsError:
        raise exists() from None
    except OSError as error:
        words = "there is no room left" if error.errno in FULL else str(error.strerror)
        means = AccessDeniedError if isinstance(error, PermissionError) else None
        raise Fault(words, phase="disk", means=means) from None
    return "size"


@contextlib.contextmanager
def _part(target: str, source: str) -> Iterator[tuple[BinaryIO, str]]:
    """A new file in the target's folder, which is removed unless it has got another name.

    It has the same name at each try of the same file, so that what a killed process left is
    overwritten; where somebody else may be writing to that one, it gets a name of its own.
    """
    folder, name = os.path.split(target)
    mark = hashlib.sha256(os.fsencode(os.path.abspath(source))).hexdigest()[:8]
    part = os.path.join(folder, f".{name}.{mark}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    file = os.open(part, flags, 0o666)
    held = _alone(file, part)
    if held is None:
        os.close(file)
        part = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.part")
        file = os.open(part, flags | os.O_EXCL, 0o666)
    try:
        with open(file, "wb") as stream:
            stream.truncate()
            try:
                yield stream, part
            finally:
                if held is not None:
                    held.release()
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _alone(file: int, part: str) -> Lock | None:
    """A lock, if the file still has this name and nobody else writes to it."""
    try:
        held = lock(file)
        about, named = os.fstat(file), os.lstat(part)
    except OSError:
        return None
    plain = stat.S_ISREG(about.st_mode) and not why_untrusted(about)
    if plain and about.st_ino == named.st_ino and about.st_nlink == 1:
        return held
    held.release()
    return None


# -- over the network


class There:
    """What is under a name at the server."""

    def __init__(self, known: bool, reply: Answer | None = None) -> None:
        self.known = known  # the server says whether there is something
        self.present = reply is not None
        self.size = reply.length if reply else None
        self.digests = said_digests(reply.get) if reply else {}


class _Redirected(Exception):
    """The server wants the file at another place; "": under a name that it chooses itself."""

    def __init__(self, url: str, place: str) -> None:
        self.url, self.place = url, place


class Delivery:
    """Sends one file to one URL; it remembers between two tries what it has seen there."""

    def __init__(
        self,
        path: str,
        url: str,
        *,
        was_free: bool = False,
        begin: Callable[[], None] | None = None,
    ) -> None:
        self._path, self._url, self._begin = path, url, begin
        self.proof = ""  # "digest" or "size", once delivered
        self._digests: dict[str, str] = {}
        self._mark: tuple[int, int, int] | None = None  # of the file whose digests these are
        self._size = 0
        self._was_free = was_free  # the final name, before our first byte
        self._place = ""  # where a redirect has led, instead of the URL
        self._tried: set[str] = set()  # the places that our bytes have been sent to
        self._bytes_at: dict[str, str] = {}  # where a redirect has led the bytes of a URL alone
        self._movable = True  # unless a redirect gives other names than the requested ones
        self._stop: Stop = lambda: False

    def put(
        self,
        *,
        overwrite: bool = False,
        again: bool = False,
        progress: Progress | None = None,
        should_stop: Stop = lambda: False,
    ) -> int:
        """Send the file and verify it; `again`: an earlier try may have got there unnoticed.

        Returns its size; Fault: it is not there, or wrong.
        """
        self._stop, reporter = should_stop, Reporter(progress, should_stop)
        mark = _mark(self._path)
        if mark != self._mark:
            self._digests, self._mark = file_digests(self._path, should_stop), mark
        self._size = mark[0]
        offer = resolve(self._url, write=True, should_stop=should_stop)[0]
        way = Redirects(offer.url)
        while True:
            here = _offer_at(offer, self._place or offer.url)
            mine = here.url in self._tried if self._place else again
            try:
                self._put_at(here, overwrite, mine, reporter)
                return self._size
            except _Redirected as redirected:
                way.follow(redirected.url)
                self._place = redirected.place or self._place
                self._movable = self._movable and bool(redirected.place)
            except Fault as fault:
                if self._place and (fault.phase in _UNREACHED or not fault.retryable):
                    self._place = ""  # next time from the beginning
                raise

    def _put_at(self, offer: Offer, overwrite: bool, again: bool, reporter: Reporter) -> None:
        """Send the file to one place; `_Redirected`: the server wants it elsewhere."""
        there = self._look(offer, offer.url)
        if there.present and there.size in (None, self._size):
            there = self._look(offer, offer.url, digests=True)
        if there.present:
            known = self._common(there)
            if self._same(there) and (known or again):
                self.proof = "digest" if known else "size"
                return  # our own, of a try whose answer was lost
            if not overwrite and not (again and self._was_free and self._half(there)):
                raise exists()
        elif not again:
            self._was_free = there.known
            if there.known and self._begin is not None:
                self._begin()
        send = self._send_and_move if self._knows_move(offer) else self._send_in_place
        send(offer, overwrite or there.present, reporter)
        try:
            self._verify(offer, offer.url)
        except Fault as fault:
            if fault.bad_copy and self._was_free:  # nobody else's: better none than a wrong one
                self._tidy(offer, offer.url)
            raise

    def _send_and_move(self, offer: Offer, replace: bool, reporter: Reporter) -> None:
        """Send to a temporary name, verify, and move."""
        part = temporary_url(offer.url, self._digests)
        try:
            self._send(offer, part, {}, reporter)
            self._verify(offer, part)
            # XRootD moves over what is there whatever `Overwrite` says, so look once more
            if not replace and self._look(offer, offer.url).present:
                raise exists()
            headers = {"Destination": offer.url, "Overwrite": "T" if replace else "F"}
            reply = self._ask("MOVE", offer, part, headers)
            if replace and reply.status in (409, 412):  # some never replace: then make room first
                self._ask("DELETE", offer, offer.url)
                reply = self._ask("MOVE", offer, part, headers)
            if reply.status in (409, 412) and not replace:
                raise exists()
            # 404, with the part there: so it answers to whatever it does not know
            if reply.status in (403, 404, 405, 501):
                _moves[authority(offer.url)] = False
                raise Fault(f"it takes the file but does not move it: {reply.words()}")
            if reply.status not in _DONE:
                raise refusal(reply)
        except _Redirected:
            raise
        except BaseException:
            self._tidy(offer, part)
            raise

    def _send_in_place(self, offer: Offer, replace: bool, reporter: Reporter) -> None:
        """Send to the final name; half an object is taken away again if the name was free."""
        try:
            self._send(offer, offer.url, {} if replace else {"If-None-Match": "*"}, reporter)
        except _Redirected:
            raise
        except BaseException:
            self._stop = lambda: False
            if self._was_free:
                with contextlib.suppress(Fault):
                    there = self._look(offer, offer.url)
                    if there.present and (self._half(there) or self._changed()):
                        self._tidy(offer, offer.url)
            raise

    def _send(self, offer: Offer, url: str, headers: Mapping[str, str], reporter: Reporter) -> None:
        """PUT the file's bytes; a redirect before the body saves sending them twice."""
        signed = bool(urlsplit(url).query)  # it may cover headers: none but the needed ones
        fixed = {
            "Content-Length": str(self._size),
            "Content-Type": "application/octet-stream",
            **({"Expect": "100-continue"} if self._size > _SMALL else {}),
            **({} if signed else as_header(self._digests)),
            **headers,
        }
        first = _with_size(url, self._size) if name(self._url).scheme in FEDERATED else url
        way = Redirects(self._bytes_at.get(url, first))
        while True:
            self._tried.add(offer.url)
            try:
                reply = self._send_once(offer, way.url, fixed, reporter)
            except Fault as fault:
                if fault.phase in _UNREACHED:
                    self._bytes_at.pop(url, None)
                raise
            if reply.status == 412:
                raise exists()
            if reply.status in _DONE:
                if self._changed():
                    raise Fault("the file changed while it was sent", phase="verify")
                return
            if reply.status == 417 and "Expect" in fixed:
                del fixed["Expect"]
                continue
            if reply.status not in REDIRECTS:
                self._bytes_at.pop(url, None)
                refused = refusal(reply)
                if reply.status in (401, 403) and offer.withheld:
                    refused.words += f"; no token was sent: {offer.withheld}"
                raise refused
            asked = urlsplit(way.url).query
            target = way.follow(reply.get("Location"))
            if urlsplit(target).query in ("", asked):
                raise _Redirected(target, _final_place(target, url, offer.url))
            self._bytes_at[url] = target

    def _send_once(
        self, offer: Offer, url: str, headers: Mapping[str, str], reporter: Reporter
    ) -> Answer:
        every = {**ONCE, **headers, **bearer(offer.token, offer.url, url)}
        with (
            open(self._path, "rb", buffering=0) as file,
            HttpConnection(url, silence=SILENCE, should_stop=self._stop) as connection,
        ):
            connection.request("PUT", every)
            answer = connection.refusal_before_body("PUT", _EXPECT) if "Expect" in every else None
            if answer is None:
                connection.phase = "body"
                broken = _send_body(file, connection, self._size, reporter)
                connection.phase = "first byte"
                try:
                    answer = connection.answer("PUT", DIGEST_TIME)
                except Fault as fault:
                    raise broken or fault from None
            with contextlib.suppress(Fault):
                answer.read(1 << 14)
            return answer

    def _look(self, offer: Offer, url: str, *, digests: bool = False) -> There:
        """What the server says of a name; for a digest it may have to read the whole object."""
        if digests:
            wanted = {"Want-Digest": "sha-256, md5;q=0.6, adler32;q=0.3"}
            wanted["Want-Repr-Digest"] = "sha-256=9, md5=5"
            reply = self._ask("HEAD", offer, url, wanted, seconds=DIGEST_TIME)
        # caches refuse to tell them, and then say nothing else either
        if not digests or reply.status == 405 or reply.status >= 500:
            reply = self._ask("HEAD", offer, url)
        if reply.status == 200:
            return There(True, reply)
        if url in self._bytes_at:
            with contextlib.suppress(Fault):
                other = self._ask("HEAD", offer, self._bytes_at[url])
                if other.status == 200:
                    return There(True, other)
        return There(reply.status in (404, 410))

    def _verify(self, offer: Offer, url: str) -> None:
        """Fault unless what is there now is the file, as far as the server lets us know."""
        end = time.monotonic() + LAG
        there = self._look(offer, url, digests=True)
        while there.known and not there.present and time.monotonic() < end:
            _check(self._stop)
            time.sleep(0.5)
            there = self._look(offer, url, digests=True)
        if there.known and not there.present:
            raise Fault("it is not there after the upload", phase="verify")
        if there.present and not self._same(there):
            words = "the server's digest of it differs after the upload"
            if there.size not in (None, self._size):
                words = f"{there.size} of {self._size} bytes are there after the upload"
            raise Fault(words, phase="verify", bad_copy=True)
        if there.present:
            known = self._common(there)
            self.proof = "digest" if known else "size" if there.size is not None else ""

    def _same(self, there: There) -> bool:
        """Whether nothing that the server says of it speaks against it."""
        if there.size not in (None, self._size):
            return False
        return all(self._digests.get(kind, value) == value for kind, value in there.digests.items())

    def _common(self, there: There) -> bool:
        """Whether the server tells a digest that we know, too."""
        return bool(there.digests.keys() & self._digests.keys())

    def _changed(self) -> bool:
        return _mark(self._path) != self._mark

    def _half(self, there: There) -> bool:
        """Whether it can be the rest of a try of ours."""
        return there.size is not None and there.size < self._size

    def _knows_move(self, offer: Offer) -> bool:
        """Asked with a name that does not exist: a server that understands says "not found".

        So does one that says it to everything, which `_send_and_move` finds out.
        """
        if urlsplit(offer.url).query or not self._movable:
            return False  # a signed URL is good for its own name alone
        host = authority(offer.url)
        if host not in _moves:
            headers = {"Destination": temporary_url(offer.url), "Overwrite": "F"}
            reply = self._ask("MOVE", offer, temporary_url(offer.url), headers)
            if reply.status >= 500 and reply.status != 501:
                return False  # not now, but perhaps later
            _moves[host] = reply.status in (404, 409)
        return _moves[host]

    def _ask(
        self,
        method: str,
        offer: Offer,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float | None = None,
    ) -> Answer:
        """A request without a body, through redirects; the token stays with its host."""
        way, limit = Redirects(url), SILENCE if seconds is None else seconds
        while True:
            every = {**(headers or {}), **bearer(offer.token, offer.url, way.url)}
            reply = ask(method, way.url, headers=every, should_stop=self._stop, seconds=limit)
            if reply.status not in REDIRECTS:
                return reply
            way.follow(reply.get("Location"))

    def _tidy(self, offer: Offer, url: str) -> None:
        """Remove what a try of ours has left; it does not matter if that fails."""
        self._stop = lambda: False
        with contextlib.suppress(Fault, Stopped):
            reply = self._ask("DELETE", offer, url, seconds=_TIDY)
            if reply.status not in _DONE and url in self._bytes_at:
                self._ask("DELETE", offer, self._bytes_at[url], seconds=_TIDY)


def temporary_url(url: str, digests: Mapping[str, str] | None = None) -> str:
    """A name in the same folder: the content's own, so that others' bytes never mix, or a new one.

    Two uploads of the same content at once may overwrite each other with the same bytes.
    """
    parts = urlsplit(url)
    folder, _, last = parts.path.rpartition("/")
    mark = os.urandom(6).hex()
    if digests:
        about = f"{last} {sorted(digests.items())}"
        mark = hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return urlunsplit(parts._replace(path=f"{folder}/.{last[:150]}.{mark}.part"))


def _offer_at(offer: Offer, url: str) -> Offer:
    """The same offer at another place; its token stays with its host."""
    if url == offer.url:
        return offer
    token, withheld = offer.token, offer.withheld
    if token is not None and not same_host(offer.url, url):
        token, withheld = None, "a redirect leads to another host than the token's"
    return Offer(url, origin=offer.origin, token=token, withheld=withheld)


def _final_place(target: str, asked: str, final: str) -> str:
    """Where the object belongs if a PUT to `asked`, which may be a temporary name, is led to
    `target`; "": the target's name does not tell."""
    parts = urlsplit(target)._replace(query=urlsplit(asked).query if "?" in target else "")
    folder, _, last = parts.path.rpartition("/")
    if asked != final:
        if last != urlsplit(asked).path.rpartition("/")[2]:
            return ""
        last = urlsplit(final).path.rpartition("/")[2]
    return urlunsplit(parts._replace(path=f"{folder}/{last}"))


def _send_body(
    file: object, connection: HttpConnection, size: int, reporter: Reporter
) -> Fault | None:
    """Send the bytes; a connection that no longer takes them may still hold an answer."""
    done = 0
    buffer = memoryview(bytearray(_CHUNK))
    while done < size:
        count = file.readinto(buffer[: min(_CHUNK, size - done)])  # type: ignore[attr-defined]
        if not count:
            raise Fault("the file became shorter while it was sent", phase="disk")
        try:
            connection.send(buffer[:count])
        except Fault as fault:
            return fault
        done += count
        reporter.step(done, size)
    return None


def _with_size(url: str, size: int) -> str:
    """XRootD reserves room by this; it is what Pelican's own client says."""
    parts = urlsplit(url)
    query = f"{parts.query}&" if parts.query else ""
    return urlunsplit(parts._replace(query=f"{query}oss.asize={size}"))


def _mark(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ino
