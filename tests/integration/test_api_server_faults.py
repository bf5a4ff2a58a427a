"""A daemon beside an API server on a bad day: `status` and `doctor` name it, nothing is concluded.

The API server is a small one of the tests', behind a proxy; no pod starts.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_proxy import BROKEN, TOO_MANY, Answer, ApiProxy
from tests.support.api_server import ApiServer
from tests.support.daemon_bed import Bed, eventually

pytestmark = pytest.mark.timeout(300)
WATCHED_S = 5.0
PER_S_MAX = 4.0
"""Requests of an idle daemon beside a server that fails, on average."""


class ClusterBed(Bed):
    """A daemon whose cluster is behind a proxy."""

    server: ApiServer
    proxy: ApiProxy

    def words(self) -> tuple[str, ...]:
        cluster = self.folder / "cluster.yaml"
        cluster.write_text(json.dumps({"namespace": "training", "image": "team/base:1"}))
        with socket.create_server(("127.0.0.1", 0)) as free:
            bind = f"127.0.0.1:{free.getsockname()[1]}"
        kubeconfig = self.proxy.kubeconfig(self.folder)
        return (
            *("--launcher", "kubernetes", "--kubeconfig", str(kubeconfig), "--launch-by", "client"),
            *("--cluster", str(cluster), "--sidecar-bind", bind),
        )

    def waits_for(self) -> str:
        return str(self.json("status")["waits_for"])

    def findings(self) -> dict[str, tuple[bool, str, str]]:
        """What ``doctor`` finds: by check whether it is good, the detail and the remedy."""
        run = self.reshape("doctor", *self.words(), "--simulated-gpus", "2", "-o", "json")
        found = json.loads(run.stdout)["findings"]
        return {f["check"]: (f["ok"], f["detail"], f["remedy"]) for f in found}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBed]:
    folder: Path = tmp_path_factory.mktemp("api-faults")
    with ApiServer("node1", "node2") as server, ApiProxy(server.url) as proxy:
        made = ClusterBed(folder)
        made.server, made.proxy = server, proxy
        try:
            made.up(*made.words())
            eventually(lambda: len(made.json("gpus")["gpus"]) == 8)
            yield made
        finally:
            made.close()


@pytest.mark.parametrize("answer", [TOO_MANY, BROKEN], ids=["429", "500"])
def test_a_server_that_fails_is_named_and_costs_neither_gpus_nor_a_busy_loop(
    bed: ClusterBed, answer: Answer
) -> None:
    with bed.proxy.answering(answer):
        begin_s = time.monotonic()
        text = eventually(bed.waits_for, text=bed.log.read_text)
        assert text.startswith(f"the Kubernetes API server ({bed.proxy.url}): ")
        assert f"HTTP {answer.status}" in text
        assert answer.document["message"] in text
        ok, detail, remedy = bed.findings()["API server"]
        assert (ok, f"HTTP {answer.status}" in detail) == (False, True)
        assert "kubectl" in remedy or "log" in remedy
        time.sleep(max(0.0, begin_s + WATCHED_S - time.monotonic()))
        end_s = time.monotonic()
        requests = bed.proxy.since(begin_s)
        assert len(requests) <= PER_S_MAX * (end_s - begin_s), requests
        assert {gpu["state"] for gpu in bed.json("gpus")["gpus"]} == {"idle"}
    assert eventually(lambda: bed.waits_for() == "")
    assert bed.log.read_text().count("Traceback") == 0


def test_a_server_that_is_away_is_named_and_leaves_the_hosts_alone(bed: ClusterBed) -> None:
    with bed.proxy.down():
        text = eventually(bed.waits_for, text=bed.log.read_text)
        assert "does not answer" in text
        ok, detail, remedy = bed.findings()["API server"]
        assert (ok, remedy) == (
            False,
            "check the address and the credentials with: kubectl version",
        )
        assert "does not answer" in detail
        assert all(not gpu["reason"] for gpu in bed.json("gpus")["gpus"])
    assert eventually(lambda: bed.waits_for() == "")


def test_watches_that_are_dropped_are_named_and_the_nodes_are_known_all_the_same(
    bed: ClusterBed,
) -> None:
    with bed.proxy.short_watches(0.0):
        assert "nodes cannot be watched" in eventually(bed.waits_for, text=bed.log.read_text)
        assert {gpu["host"] for gpu in bed.json("gpus")["gpus"]} == {"node1", "node2"}
    assert eventually(lambda: bed.waits_for() == "")


def test_a_server_of_an_old_version_is_named(bed: ClusterBed) -> None:
    bed.server.version = "v1.24.17"
    assert bed.stop() == 0
    bed.up(*bed.words())
    assert "older than 1.29" in eventually(bed.waits_for, text=bed.log.read_text)
