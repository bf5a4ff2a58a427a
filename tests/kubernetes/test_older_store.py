"""A store that was put back, or is another one, beside pods that train on: none of their GPUs is
given out again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.daemon_bed import DEADLINE_S
from tests.kubernetes.pod_daemon import PodDaemon

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
    daemon: PodDaemon,
) -> None:
    daemon.up()
    job = daemon.submit_counting("first", [2], 100_000)
    daemon.trains(job, 2)
    before = daemon.container(job)
    daemon.stop()
    older = Path(daemon.home, STORE).read_bytes()
    for _ in range(2):  # the next controller of the older store would be as the first of these
        daemon.up()
        daemon.trains(job, 2)
        daemon.stop()
    right = Path(daemon.home, STORE).read_bytes()

    put(daemon, older)
    said = refused(daemon)
    assert f"job {job} (attempt 1) was told epoch 3" in said, said
    assert "an older store was put back" in said

    put(daemon, None)
    said = refused(daemon)
    assert "ahead of this store, so it is an older or another one" in said, said
    assert f"{job} (attempt 1)" in said
    assert f"kubectl -n {daemon.namespace.name} delete job " in said

    put(daemon, right)
    daemon.up()
    seen = daemon.trains(job, 2)
    assert (seen.attempt, seen.failures, seen.process_restarts) == (1, 0, 0)
    assert daemon.container(job) == before
