"""What a script under the hook reports, heard where there is no agent.

Does: listens on a Unix socket and keeps every report, in order of arrival. Never: answers with
anything but "heard"; a process that ends in the middle of a report said nothing. State: the list
that it gives out, for as long as it listens.
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
        """A process that ends may leave half a request: it says nothing then."""


@contextlib.contextmanager
def listening(path: Path) -> Iterator[list[HookReport]]:
    """Reports that arrive on the Unix socket ``path``, in order of arrival."""
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
