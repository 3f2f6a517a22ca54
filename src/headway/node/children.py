"""Children of a training, such as a data loader's workers: they end when the training ends them.

A pool's SIGTERM reaches the whole process group. The training needs another batch or two before it
has saved its state, and a loader whose workers are gone raises an error in the midst of that.
"""

from __future__ import annotations

import os
import signal
import threading


def heed_parent_alone(*_: object) -> None:
    """From now on this process passes over SIGTERM, unless it comes from its parent."""
    # blocked, it waits for the thread below, which unlike a handler is told who sent it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_listen, args=(os.getppid(),), daemon=True).start()


def _listen(parent: int) -> None:
    while True:
        sender = signal.sigwaitinfo({signal.SIGTERM}).si_pid
        if sender == parent or os.getppid() != parent:
            os._exit(0)  # as torch's own workers do: to a loader anything else is a failure
