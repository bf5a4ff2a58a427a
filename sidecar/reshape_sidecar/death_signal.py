"""The kernel's signal to a process whose parent has died. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent dies.

    Returns False if ``parent`` is not its parent any more: it died before that took hold. Raises
    OSError.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    return os.getppid() == parent
