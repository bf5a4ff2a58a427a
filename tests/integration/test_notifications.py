"""Notifications of a real daemon, to a receiver that is away when it is killed."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_bed import DEADLINE_S, SAVES, Bed, eventually
from tests.support.daemon_bed import bed as make_bed
from tests.support.receiver import SECRET


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


class Hook(ThreadingHTTPServer):
    """A receiver. It answers once ``answers`` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[Any] = []
        self.answers = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))
        self.server.answers.wait(DEADLINE_S)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def targets(bed: Bed, hook: Hook) -> str:
    path = bed.folder / "notify.json"
    url = f"http://127.0.0.1:{hook.server_address[1]}/path-secret"
    chat = {"url": url, "secret": SECRET, "events": ["ended"], "allow": ["127.0.0.1"]}
    path.write_text(json.dumps({"chat": chat}))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.answers.set()
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_kill_between_sending_and_noting_loses_no_event(bed: Bed, hook: Hook) -> None:
    file = targets(bed, hook)
    bed.up("--notify", file)
    bed.code.joinpath("program.py").write_text(SAVES)
    record: dict[str, object] = {
        "name": "one",
        "command": ["python", str(bed.code / "program.py"), "2"],
    }
    record |= {"framework": "other", "optional_gpus": [1], "code": str(bed.code)}
    code, answer = bed.post("/v1/jobs", {**record, "notify": ["chat", "nowhere"]})
    assert (code, answer["path"]) == (422, "notify[1]")
    assert answer["hint"] == "use one of: chat"
    code, job = bed.post("/v1/jobs", {**record, "notify": ["chat"]})
    assert (code, job["notify"]) == (201, ["chat"]), job
    eventually(lambda: hook.got)
    bed.stop(signal.SIGKILL)
    hook.answers.set()
    bed.up("--notify", file)
    eventually(lambda: len(hook.got) > 1)
    first, second = hook.got[:2]
    assert first == second, "the id lets the receiver drop the second"
    assert (first["event"], first["job"]["name"]) == ("ended", "one")
    bed.stop()
    bed.up()  # the operator has removed the target: what names it goes on
    assert bed.job("one")["state"] == "completed"
    for secret in (SECRET, "path-secret"):
        assert secret not in bed.log.read_text()
