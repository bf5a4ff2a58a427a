"""A store that was put back, or is another one, beside pods that train on: none of their GPUs is
given out again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kubernetes.pod_daemon import PodDaemon
from tests.support.daemon_bed import DEADLINE_S

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
STORE = "store.sqlite"


def put(daemon: PodDaemon, store: bytes | None) -> None:
    """Put a store in place of the one that is there; None: none."""
    for file in daemon.home.glob(f"{STORE}*"):
        file.unlink()
    if store is not None:
        (daemon.home / STORE).write_bytes(store)
        (daemon.home / STORE).chmod(0o600)


def refused(daemon: PodDaemon) -> str:
    """What a daemon says that ends by itself."""
    daemon.log.unlink()
    try:
        code = daemon.launch().wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it goes on: {daemon.log.read_text()}")
    assert code != 0
    return daemon.log.read_text()


def test_a_store_that_pods_are_ahead_of_is_refused_until_the_right_one_is_back(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up()
    job, twin = (daemon.submit_counting(name, [1, 2], 100_000) for name in ("first", "twin"))
    for each in (job, twin):
        daemon.trains(each, 2)
    before = daemon.container(job)
    daemon.stop()
    older = Path(daemon.home, STORE).read_bytes()
    daemon.up()
    for each in (job, twin):
        daemon.client().pin(each, 1)
        daemon.trains(each, 1)
    daemon.stop()
    right = Path(daemon.home, STORE).read_bytes()

    put(daemon, older)
    said = refused(daemon)
    assert "(attempt 1) knows epoch 2 generation" in said, said
    assert "the store is an older copy" in said
    assert "2 jobs say so: " + ", ".join(sorted((job, twin))) in said

    put(daemon, None)
    said = refused(daemon)
    assert "newer than this store, which is old or another one" in said, said
    assert f"{job} (attempt 1)" in said
    assert f"kubectl -n {daemon.namespace.name} delete job " in said

    put(daemon, right)
    daemon.up()
    seen = daemon.wait(job, "it trains on", stage="training", phase="running")
    assert (seen.attempt, seen.failures, seen.steps_lost, seen.reshape_downs) == (1, 0, 0, 1)
    assert daemon.container(job) == before
