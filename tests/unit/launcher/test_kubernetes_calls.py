"""The client's calls against a server that answers as an API server does on a bad day."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reshape_launcher.kubernetes.api import ApiCluster, CannotConnect, connect
from reshape_launcher.kubernetes.values import ApiTrouble
from reshape_launcher.leases import NOBODY

Answer = Callable[[str, str], tuple[int, dict[str, Any] | bytes]]
"""By method and path: status and document, or a body that is none."""
QUOTA = "Operation cannot be fulfilled on resourcequotas: the object has been modified"
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{}}}}]
"""


@contextmanager
def api(folder: Path, answer: Answer) -> Iterator[ApiCluster]:
    """A cluster of which each call is answered so."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, document = answer(self.command, self.path)
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(port=server.server_port))
    cluster = connect(kubeconfig, "training")
    try:
        yield cluster
    finally:
        cluster.close()
        server.shutdown()
        thread.join()
        server.server_close()


def refused(status: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"kind": "Status", "code": status, "reason": reason, "message": message}


def test_an_object_that_is_there_already_is_as_good_as_made(tmp_path: Path) -> None:
    there = refused(409, "AlreadyExists", 'secrets "a" already exists')
    with api(tmp_path, lambda method, path: there) as cluster:
        cluster.create_secret({"metadata": {"name": "a"}})


def test_a_conflict_over_a_quota_made_nothing_and_is_tried_again(tmp_path: Path) -> None:
    conflict = refused(409, "Conflict", QUOTA)
    with (
        api(tmp_path, lambda method, path: conflict) as cluster,
        pytest.raises(ApiTrouble, match="secret a cannot be created") as caught,
    ):
        cluster.create_secret({"metadata": {"name": "a"}})
    assert caught.value.away, "a failure of the job would use up its retries"


def test_a_lease_that_somebody_made_with_nothing_in_it_is_nobodys(tmp_path: Path) -> None:
    empty = {"metadata": {"name": "reshape", "resourceVersion": "7"}}
    with api(tmp_path, lambda method, path: (200, empty)) as cluster:
        seen = cluster.lease("reshape").read()
    assert (seen.lease.holder, seen.version) == (NOBODY, "7")


@pytest.mark.parametrize("text", ["a: [", "- a", "\0"])
def test_a_file_that_is_no_kubeconfig_is_told_as_such(tmp_path: Path, text: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(text)
    with pytest.raises(CannotConnect, match="cannot be used"):
        connect(kubeconfig, "training")


STRANGE = (
    b"",
    b"<html>sign in first</html>",
    b"[]",
    b"null",
    b'{"items": 3}',
    b"\xff",
    b"[" * 100_000,
)
CALLS: dict[str, Callable[[ApiCluster], object]] = {
    "jobs": lambda cluster: cluster.jobs("a=b"),
    "pods": lambda cluster: cluster.pods("a=b"),
    "nodes": lambda cluster: cluster.nodes(""),
    "version": lambda cluster: cluster.version(),
}


@pytest.mark.parametrize("body", STRANGE, ids=lambda body: repr(body[:8]))
@pytest.mark.parametrize("what", CALLS)
def test_an_answer_that_is_no_document_tells_nothing_now(
    tmp_path: Path, what: str, body: bytes
) -> None:
    with (
        api(tmp_path, lambda method, path: (200, body)) as cluster,
        pytest.raises(ApiTrouble, match="the API server's answer is not valid: ") as caught,
    ):
        CALLS[what](cluster)
    assert caught.value.away, "it is asked again, and nothing is concluded from it"


@pytest.mark.parametrize("body", [b"<html>", b"null"])
def test_a_lease_of_which_no_document_comes_cannot_be_seen_now(tmp_path: Path, body: bytes) -> None:
    with (
        api(tmp_path, lambda method, path: (200, body)) as cluster,
        pytest.raises(ApiTrouble, match="lease reshape cannot be used"),
    ):
        cluster.lease("reshape").read()


@pytest.mark.parametrize("body", [b"<html>", b"null"])
def test_a_change_that_is_answered_by_no_document_may_not_have_been_made(
    tmp_path: Path, body: bytes
) -> None:
    with api(tmp_path, lambda method, path: (200, body)) as cluster:
        for change in (
            lambda: cluster.create_secret({"metadata": {"name": "a"}}),
            lambda: cluster.patch_job("a", {}),
            lambda: cluster.delete_job("a"),
            lambda: cluster.delete_pod("a", 1),
        ):
            with pytest.raises(ApiTrouble):
                change()
