"""The files behind a claim of somebody's cluster, which are on no folder of this machine.

Does: starts a pod that has the claim and serves its files, and asks it through the API server,
which reaches pods wherever this machine does not. Never: is there on a cluster of our own, whose
claims are folders here. State: the pod, which ends with its namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from tests.kubernetes.api import NOT_FOUND, Api, ApiError

POD = "files"
PORT = 8080
USER = 10001
"""As whom jobs run if the cluster file says nothing: what they write, nobody else may read."""
PROGRAM = """
import http.server, io, os, pathlib, sys, tarfile, urllib.parse
os.umask(0)  # jobs have other users
class Files(http.server.BaseHTTPRequestHandler):
    def path_of(self):
        return pathlib.Path(sys.argv[1] + urllib.parse.unquote(self.path))
    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))
    def say(self, code, body=b""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        path = self.path_of()
        if path.is_dir():
            self.say(200, "".join(f"{name}\\n" for name in os.listdir(path)).encode())
        elif path.exists():
            self.say(200, path.read_bytes())
        else:
            self.say(404)
    def do_PUT(self):
        self.path_of().write_bytes(self.body())
        self.say(201)
    def do_POST(self):
        self.path_of().mkdir(parents=True, exist_ok=True)
        body = self.body()
        if body:
            tarfile.open(fileobj=io.BytesIO(body)).extractall(self.path_of())
        self.say(201)
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("", int(sys.argv[2])), Files).serve_forever()
"""


@dataclass(frozen=True, slots=True)
class ClaimFolder:
    """One folder or file. ``server`` is the path of the pod that serves it."""

    api: Api
    server: str
    path: PurePosixPath = PurePosixPath("/")

    @property
    def name(self) -> str:
        return self.path.name

    def __truediv__(self, name: str, /) -> ClaimFolder:
        return ClaimFolder(self.api, self.server, self.path / name)

    def exists(self) -> bool:
        try:
            self.read_text()
        except FileNotFoundError:
            return False
        return True

    def iterdir(self) -> Iterator[ClaimFolder]:
        for name in self.read_text().splitlines():
            yield self / name

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Parents as well; one that is there is no error."""
        self.api.send("POST", self._url, b"")

    def read_text(self) -> str:
        try:
            return self.api.text(self._url)
        except ApiError as error:
            if error.status == NOT_FOUND:
                raise FileNotFoundError(str(self.path)) from None
            raise

    def write_text(self, text: str, /) -> int:
        self.api.send("PUT", self._url, text.encode())
        return len(text)

    def unpack(self, archive: bytes) -> None:
        """Put the files of a tar archive here."""
        self.api.send("POST", self._url, archive)

    @property
    def _url(self) -> str:
        return self.server + quote(str(self.path))
