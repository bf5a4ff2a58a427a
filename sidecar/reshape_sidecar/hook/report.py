"""Sends reports to the agent on its Unix socket, from a thread of its own.

Does: sends the newest report without blocking a step. A report that fails is not sent again, and
does not fail the script: the next report says more. Its step is first written beside the socket,
where it outlives this process and the agent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

from reshape_sidecar import codec, step_file
from reshape_sidecar.contract import HookReport

SEND_TIMEOUT_S = 1.0
LAST_REPORT_WAIT_S = 1.5
"""Longest wait for the last report before the process leaves."""
PROGRESS_EVERY_S = 1.0
_UNIX_PATH_MAX_BYTES = 107


class ReportSender:
    """Sends HookReports in the background; without a socket it does nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._changed = threading.Condition()
        self._newest: HookReport | None = None
        self._sending = False
        self._thread: threading.Thread | None = None

    def send(self, report: HookReport) -> None:
        """Send ``report`` in the background, instead of an earlier one that still waits."""
        if self._path is None:
            return
        with self._changed:
            self._newest = report
            if self._thread is None or not self._thread.is_alive():  # a fork has no threads
                self._sending = False
                self._thread = threading.Thread(target=self._run, daemon=True, name="reshape")
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait, at most LAST_REPORT_WAIT_S, until the newest report is sent."""
        deadline = time.monotonic() + LAST_REPORT_WAIT_S
        with self._changed:
            while self._thread is not None and (self._newest is not None or self._sending):
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._newest is None:
                    self._changed.wait()
                report, self._newest, self._sending = self._newest, None, True
            path = self._path or Path()
            if report.progress.step:
                with contextlib.suppress(OSError):
                    step_file.write(path.parent, report.generation, report.progress.step)
            with contextlib.suppress(OSError):
                # A text of the program may hold half a character; the rest is still sent.
                post(path, codec.dumps(report).encode(errors="replace"))
            with self._changed:
                self._sending = False
                self._changed.notify_all()


def post(path: Path, body: bytes) -> None:
    """``POST /training`` with ``body`` on the Unix socket ``path``; raises OSError."""
    head = (
        "POST /training HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(SEND_TIMEOUT_S)
        _connect(client, path)
        client.sendall(head + body)
        client.recv(1024)


def _connect(client: socket.socket, path: Path) -> None:
    if len(os.fsencode(path)) <= _UNIX_PATH_MAX_BYTES:
        client.connect(str(path))
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        client.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
