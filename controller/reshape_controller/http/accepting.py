"""A listening socket that waits while the process has no file descriptor left for a connection.

Does: leaves new connections in the kernel's queue for a moment, and says so once a minute. Never:
fails over and over, as the event loop would: it tries at once again, with a traceback in the log
each time, thousands in a second. State: when it last said so.
"""

from __future__ import annotations

import errno
import socket
import time
from typing import Any

import structlog
from tornado.ioloop import IOLoop

NONE_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PAUSE_S = 0.25
SAY_AGAIN_S = 60.0

log = structlog.get_logger("reshape.http")


class Accepting(socket.socket):
    """Belongs to the event loop in which it accepts."""

    _say_at_s = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises BlockingIOError also where none can be opened now."""
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise
            self._wait(error)
            raise BlockingIOError from None

    def _wait(self, error: OSError) -> None:
        now_s = time.monotonic()
        if now_s >= self._say_at_s:
            self._say_at_s = now_s + SAY_AGAIN_S
            consequence = "new connections wait until others are closed"
            log.warning("no-connections-left", error=error.strerror, consequence=consequence)
        loop = IOLoop.current()
        loop.update_handler(self, 0)
        loop.call_later(PAUSE_S, self._go_on, loop)

    def _go_on(self, loop: IOLoop) -> None:
        if self.fileno() >= 0:  # else the server was stopped meanwhile
            loop.update_handler(self, IOLoop.READ)
