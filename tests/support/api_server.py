"""A small API server over real sockets: nodes, Leases and empty lists, as the controller asks them.

Does: answers the calls of an idle controller, with watches of nodes. Never: starts a pod.
State: its nodes, Leases and the changes of nodes, by version.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

VERSION = "v1.34.4"
FIRST = 10
LEASES = "/apis/coordination.k8s.io/v1/namespaces/"
POLL_S = 0.2
NO_CHANGES = 10**9
INFO = (
    *("architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion"),
    *("kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID"),
)


def node(name: str, *, ready: bool = True) -> dict[str, Any]:
    """A node as the API writes it."""
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    info = {**dict.fromkeys(INFO, "none"), "bootID": f"boot-of-{name}"}
    return {
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {},
        "status": {"conditions": [condition], "nodeInfo": info},
    }


class ApiServer:
    """Serves while it is entered. ``oldest``: changes before this version are forgotten."""

    def __init__(self, *names: str) -> None:
        self.nodes = {name: node(name) for name in names}
        self.version, self.newest, self.oldest = VERSION, FIRST, 0
        self.changes: list[tuple[int, str, dict[str, Any]]] = []
        self.leases: dict[str, dict[str, Any]] = {}
        self.guard = threading.Lock()
        self.closed = threading.Event()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ApiServer:
        threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def change(self, kind: str, thing: dict[str, Any]) -> None:
        """Change a node, and have each watch say so."""
        with self.guard:
            self.newest += 1
            thing["metadata"]["resourceVersion"] = str(self.newest)
            if kind == "DELETED":
                del self.nodes[thing["metadata"]["name"]]
            else:
                self.nodes[thing["metadata"]["name"]] = thing
            self.changes.append((self.newest, kind, thing))

    def since(self, version: int) -> list[tuple[int, str, dict[str, Any]]]:
        """The changes since a version."""
        with self.guard:
            return [change for change in self.changes if change[0] > version]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: ApiServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def api(self) -> ApiServer:
        assert isinstance(self.server, _Server)
        return self.server.api

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        if parts.path == "/version/" or parts.path == "/version":
            parsed = re.findall(r"\d+", self.api.version)
            other = ("buildDate", "compiler", "gitCommit", "gitTreeState", "goVersion")
            rest = dict.fromkeys((*other, "platform"), "none")
            version = {"gitVersion": self.api.version, "major": parsed[0], "minor": parsed[1]}
            self.say(200, {**version, **rest})
        elif "watch" in query:
            of_nodes = parts.path == "/api/v1/nodes"
            newest = int(query["resourceVersion"]) if of_nodes else NO_CHANGES
            self.watch(newest, float(query["timeoutSeconds"]))
        elif parts.path == "/api/v1/nodes":
            with self.api.guard:
                items = list(self.api.nodes.values())
                self.say(200, listing("Node", items, str(self.api.newest)))
        elif parts.path.startswith(LEASES):
            with self.api.guard:
                self.say(200, listing("Lease", list(self.api.leases.values())))
        else:
            self.say(200, listing("", []))

    def do_POST(self) -> None:
        body = self.body()
        path = urllib.parse.urlsplit(self.path).path
        if path.endswith("selfsubjectaccessreviews"):
            self.say(201, {"spec": body["spec"], "status": {"allowed": True}})
        elif path.startswith(LEASES):
            with self.api.guard:
                body["metadata"]["resourceVersion"] = "1"
                self.api.leases[body["metadata"]["name"]] = body
            self.say(201, body)
        else:
            self.say(201, body)

    def do_PUT(self) -> None:
        body = self.body()
        with self.api.guard:
            before = int(body["metadata"]["resourceVersion"])
            body["metadata"]["resourceVersion"] = str(before + 1)
            self.api.leases[body["metadata"]["name"]] = body
        self.say(200, body)

    def watch(self, version: int, watch_s: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if version < self.api.oldest:
            error = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            self.chunk({"type": "ERROR", "object": error})
            self.wfile.write(b"0\r\n\r\n")
            return
        waited_s = 0.0
        while waited_s < watch_s and not self.api.closed.is_set():
            for number, kind, thing in self.api.since(version):
                self.chunk({"type": kind, "object": thing})
                version = number
            self.api.closed.wait(POLL_S)
            waited_s += POLL_S
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, document: dict[str, Any]) -> None:
        line = json.dumps(document).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def say(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the proxy cut the connection
            super().handle()


def listing(kind: str, items: list[dict[str, Any]], version: str = "1") -> dict[str, Any]:
    """A list as the API writes it."""
    return {"kind": f"{kind}List", "metadata": {"resourceVersion": version}, "items": items}
