"""Fixtures of the Kubernetes tier: one cluster for the whole run, one namespace for each test."""

from __future__ import annotations

import itertools
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import network
from tests.kubernetes.grounds import Grounds, grounds
from tests.kubernetes.layout import NODES
from tests.kubernetes.leftovers import nothing_left
from tests.kubernetes.namespace import Namespace
from tests.kubernetes.namespace import namespace as open_namespace
from tests.kubernetes.pod_daemon import PodDaemon
from tests.kubernetes.running import ClusterError

_numbers = itertools.count(1)
MINE = f"reshape-test-{secrets.token_hex(3)}"
"""How everything begins that this process makes: others may use the same cluster."""
LONGEST_FIRST = (
    *("test_hand_over", "test_gang_jobs", "test_node_lost", "test_case_study", "test_workers"),
    "test_election",
    "test_api_faults",
    *("test_launcher_contract", "test_storage", "test_gpus", "test_in_cluster", "test_injection"),
)
"""Files in the order in which workers get them, so that none waits for the other at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files of this folder first, and the rest of it in its usual order."""
    mine = [item for item in items if item.path.parent == Path(__file__).parent]
    mine.sort(key=_turn)
    others = [item for item in items if item.path.parent != Path(__file__).parent]
    items[:] = [*others, *mine]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the clusters of workers that did not live to do it: pytest-xdist kills them on Ctrl-C."""
    workers = session.config.getoption("numprocesses", None) or 0
    if hasattr(session.config, "workerinput") or os.environ.get("KUBECONFIG"):
        return
    for number in range(workers):
        worker = os.environ | {"PYTEST_XDIST_WORKER": f"gw{number}"}
        clear = [sys.executable, "-m", "tests.kubernetes.cluster", "clear"]
        subprocess.run(clear, cwd=session.config.rootpath, env=worker, check=False)


def _turn(item: pytest.Item) -> int:
    name = item.path.stem
    return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Grounds]:
    """The cluster of this run; a failure with the remedy where there can be none.

    One that is not ours has nothing of these tests afterwards.
    """
    try:
        with grounds() as found:
            yield found
            if not found.own:
                nothing_left(found.api, MINE)
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def own_cluster(kubernetes: Grounds) -> Grounds:
    """A cluster whose nodes may be killed, changed, and left without an API server."""
    if not kubernetes.own:
        pytest.skip("LEFT OUT: KUBECONFIG names somebody's cluster, which is not ours to break")
    return kubernetes


@pytest.fixture
def namespace(kubernetes: Grounds, tmp_path: Path) -> Iterator[Namespace]:
    """A namespace of this test's own."""
    name = f"{MINE}-{next(_numbers)}"
    with open_namespace(kubernetes, name, tmp_path / "shared") as made:
        yield made


@pytest.fixture
def one_node(kubernetes: Grounds, daemon: PodDaemon) -> None:
    """Only the first node takes jobs, so that a newcomer has to be made room for.

    The daemon itself drains the others: other tests may be using them.
    """
    daemon.unused = kubernetes.nodes[1:]


@pytest.fixture
def absent_image(kubernetes: Grounds) -> Iterator[str]:
    """An image that its registry does not have: of somebody's cluster, a tag of the image that is
    there; of ours, of a registry on the first node. Nodes ask their own by plain HTTP."""
    if not kubernetes.own:
        name, colon, tag = kubernetes.image.partition("@")[0].rpartition(":")
        yield f"{name if colon and '/' not in tag else kubernetes.image}:absent-{MINE}"
        return
    port = 5005
    serve = [sys.executable, "-I", "-u", "-m", "http.server", str(port), "--directory", os.devnull]
    process = subprocess.Popen(
        [*network.enter(NODES[0]), *serve], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with process:
        assert process.stdout is not None
        assert b"Serving" in process.stdout.readline()
        yield f"localhost:{port}/absent:1"
        process.kill()


@pytest.fixture
def daemon(namespace: Namespace, tmp_path: Path) -> Iterator[PodDaemon]:
    """A daemon that launches pods, not started yet."""
    made = PodDaemon(tmp_path, namespace)
    try:
        yield made
    finally:
        made.close()
