"""file:// targets: a folder of the node, or one that the node shares with others."""

from __future__ import annotations

import contextlib
import os
from urllib.parse import unquote, urlsplit

from headway.node.transfer.naming import name_new, settle
from headway.node.transfer.source import Fault
from headway.node.transfer.target import FULL, Pace, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.node.transfer.target import Progress

_CHUNK = 1 << 20


class FileTarget(Target):
    """A file here."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._path = unquote(urlsplit(url).path)

    def put(
        self,
        path: str,
        size: int,
        overwrite: bool,
        again: bool,
        progress: Progress | None,
        should_stop: Callable[[], bool],
    ) -> None:
        folder, name = os.path.split(self._path)
        part = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.part")
        pace = Pace(progress, should_stop)
        if not overwrite and os.path.lexists(self._path):
            raise exists()
        try:
            os.makedirs(folder, exist_ok=True)
            with open(path, "rb") as source, open(part, "xb") as target:
                done = 0
                while piece := source.read(_CHUNK):
                    target.write(piece)
                    done += len(piece)
                    pace.step(done, size)
                target.flush()
                os.fsync(target.fileno())  # a full or lost disk may speak up only now
                there = os.fstat(target.fileno()).st_size
            if done != size or there != size:
                raise Fault(f"{there} of {size} bytes are there after the copy", phase="verify")
            if overwrite:
                os.replace(part, self._path)
            else:
                name_new(part, self._path)
            settle(folder)
            self.proof = "size"
        except FileExistsError:
            raise exists() from None
        except OSError as error:
            full = "there is no room left" if error.errno in FULL else str(error.strerror)
            raise Fault(full, phase="disk") from None
        finally:
            with contextlib.suppress(OSError):
                os.unlink(part)


def exists() -> Fault:
    """The refusal to replace what somebody has left there."""
    return Fault(
        "something lies there already",
        retryable=False,
        remedy="remove it, choose another `to`, or say overwrite = true for this output",
    )
