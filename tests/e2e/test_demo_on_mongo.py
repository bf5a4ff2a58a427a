"""The main job of the README on a MongoDB server: the same command with one flag more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from tests.support.daemon_bed import ROOT, Bed
from tests.support.daemon_bed import bed as make_bed
from tests.support.mongo_server import any_server, fresh_database

# Of both tiers; .ci/run has it in that of MongoDB (make test-tensorflow leaves it out).
pytestmark = [pytest.mark.mongo, pytest.mark.tensorflow, pytest.mark.timeout(1200)]
DEMO_S = 1000.0
"""The demo gives up by itself long before."""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def demo(bed: Bed, *words: str) -> tuple[int, str]:
    """Run the demo as `make demo` does; its exit code and what it said."""
    command = [sys.executable, str(ROOT / "examples" / "demo" / "demo.py"), *words]
    process = subprocess.Popen(
        command,
        env=bed.environment(),
        cwd=bed.folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said, _ = process.communicate(timeout=DEMO_S)
    finally:
        if process.poll() is None:
            process.terminate()  # it ends its jobs and its daemon first
            process.wait(60)
    return process.returncode, said


def test_the_demo_keeps_its_promises_on_a_server_by_changing_one_flag(
    bed: Bed, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with any_server(tmp_path) as server, fresh_database(server.uri) as address:
        base = address.rpartition("/")[2].partition("?")[0]
        with pymongo.MongoClient[dict[str, Any]](address) as client:
            try:
                code, said = demo(
                    bed, "--preset", "adaptive", "--out", str(out), "--store", address
                )
                names = [n for n in client.list_database_names() if n.startswith(f"{base}_")]
                assert len(names) == 1, said
                db = client[names[0]]
                ended = {job["name"]: job["state"] for job in db.jobs.find({})}
                assert ended == {"job-1": "completed", "job-2": "completed"}, said
                assert db.log.count_documents({}) > 10
                assert db.decisions.count_documents({}) > 1
                assert {gpu["state"] for gpu in db.gpus.find({})} == {"idle"}
            finally:
                for name in client.list_database_names():
                    if name.startswith(f"{base}_"):
                        client.drop_database(name)
    assert not list(out.glob("**/store.sqlite")), "nothing is kept in a file beside it"
    summary = json.loads((out / "summary.json").read_text())
    # 1 with a valid summary: a promise was broken. Late steps alone are the machine's.
    assert code == 0 or not summary["valid"], said
    figures = summary["costs"]["measured"]["presets"]["adaptive"]
    broken = [n for run in figures["runs"] for n, kept in run["checks"].items() if not kept]
    assert broken == []
    assert (figures["steps_lost"], figures["container_restarts"]) == (0, 0)
    # Whether it pays to grow again depends on how long a start takes on this machine just now.
    assert figures["reshape_downs"] >= 1


def test_the_demo_refuses_a_password_on_its_command_line(bed: Bed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    uri = "mongodb://ada:s3same@127.0.0.1:9/mine"
    code, said = demo(bed, "--out", str(out), "--store", uri)
    assert code == 2
    assert "other users can see the command line" in said
    assert "s3same" not in said
    assert not out.exists()
