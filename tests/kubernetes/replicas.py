"""Two controllers that stand by for each other, and what stands for the Service before them.

Does: starts each with a home of its own, one store, one Lease, the same secrets; leads SideCars to
whichever says that it leads, as a Service does by readiness. Never: tells a controller who leads.
State: the homes, and the door's threads, which end with it.
"""

from __future__ import annotations

import contextlib
import http.client
import secrets
import selectors
import socket
import subprocess
import threading
from pathlib import Path

from reshape_controller.cli.home import Home
from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.errors import ClientError
from reshape_gpu.target import of_home
from reshape_gpu.values import Status
from tests.kubernetes.namespace import Namespace, eventually
from tests.kubernetes.pod_daemon import PodDaemon
from tests.support.daemon_bed import PROGRAM

LEASE = "reshape"
LOOK_EVERY_S = 0.5
ANSWER_S = 1.0
LEASES = "/apis/coordination.k8s.io/v1"


class Replica(PodDaemon):
    """One of several. ``url`` is where SideCars are told to ask."""

    lasting = (*PodDaemon.lasting, LEASE)

    def __init__(
        self, folder: Path, namespace: Namespace, url: str, store: str, shared: Path
    ) -> None:
        folder.mkdir()
        super().__init__(folder, namespace)
        self._words = ("--sidecar-url", url, "--store", store, "--secrets", str(shared))

    def launch(self, *words: str, program: str = PROGRAM) -> subprocess.Popen[bytes]:
        shared = (*self._words, "--lease", LEASE)
        return super().launch(*shared, *words, program=program)

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(RESHAPE_SECRETS=self._words[-1], **more)

    def client(self) -> Client:
        return Client.at(of_home(Home(self.home, Path(self._words[-1]))))

    def status(self) -> Status | None:
        """How it says that it is; None while it does not answer."""
        try:
            return self.client().ask(requests.status())
        except ClientError:
            return None

    def becomes(self, role: str, within_s: float = 180.0) -> Status:
        """Wait until it is a leader that is ready, or a standby that knows of a leader."""

        def there() -> Status | None:
            found = self.status()
            if found is None or found.role != role:
                return None
            return found if found.ready or (role == "standby" and found.leader) else None

        try:
            return eventually(f"it is {role}", there, within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.log.read_text()[-3000:]}") from None


def shared_secrets(folder: Path) -> Path:
    """A folder of secrets as an operator makes it."""
    folder.mkdir(mode=0o700)
    for name in ("token", "secret"):
        (folder / name).write_text(secrets.token_hex(32))
        (folder / name).chmod(0o640)
    return folder


class Door:
    """Forwards connections to the one of ``backends`` that says it leads."""

    def __init__(self, address: str) -> None:
        self._server = socket.create_server((address, 0))
        self.url = "http://{}:{}".format(*self._server.getsockname()[:2])
        self.backends: list[str] = []
        self._ready: str | None = None
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._accept, self._look)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(10)

    def _look(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            self._ready = next((one for one in self.backends if _leads(one)), None)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                inner, _ = self._server.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._forward, args=(inner, self._ready), daemon=True)
            thread.start()

    def _forward(self, inner: socket.socket, backend: str | None) -> None:
        with inner, contextlib.suppress(OSError):
            if backend is None:
                return
            address, _, port = backend.rpartition(":")
            with socket.create_connection((address, int(port)), ANSWER_S) as outer:
                outer.settimeout(None)
                self._pass_on(inner, outer)

    def _pass_on(self, inner: socket.socket, outer: socket.socket) -> None:
        other = {inner: outer, outer: inner}
        with selectors.DefaultSelector() as wait:
            for end in other:
                wait.register(end, selectors.EVENT_READ)
            while not self._closed.is_set():
                for key, _ in wait.select(LOOK_EVERY_S):
                    ready = key.fileobj
                    assert isinstance(ready, socket.socket)
                    data = ready.recv(65536)
                    if not data:
                        return
                    other[ready].sendall(data)


def _leads(backend: str) -> bool:
    address, _, port = backend.rpartition(":")
    asking = http.client.HTTPConnection(address, int(port), timeout=ANSWER_S)
    try:
        asking.request("GET", "/readyz")
        return asking.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()
