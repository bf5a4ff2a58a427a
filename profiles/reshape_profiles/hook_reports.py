"""A receiver for the reports of a script under the hook, without an agent.

Does: listen on a Unix socket and collect every complete report, in the order of arrival; each gets
only an acknowledgement. State: the list of reports, while it listens.
"""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

from reshape_sidecar import codec
from reshape_sidecar.contract import HookReport

BODY_MAX_BYTES = 1024 * 1024


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        length = 0
        while line := self.rfile.readline(BODY_MAX_BYTES).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length" and value.strip().isdigit():
                length = min(int(value), BODY_MAX_BYTES)
        with contextlib.suppress(codec.CodecError):
            reports: list[HookReport] = self.server.reports  # type: ignore[attr-defined]
            reports.append(codec.loads(HookReport, self.rfile.read(length)))
        self.wfile.write(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore an incomplete request, which a process may leave at its end."""


@contextlib.contextmanager
def listening(path: Path) -> Iterator[list[HookReport]]:
    """Give the list of reports that arrive on the Unix socket ``path``, within the context."""
    reports: list[HookReport] = []
    server = _Server(str(path), _Handler)
    server.reports = reports  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield reports
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        path.unlink(missing_ok=True)
