"""A job whose checkpoints one node alone can reach, on real nodes: it waits for that node."""

from __future__ import annotations

import pytest

from tests.kubernetes.grounds import Grounds
from tests.kubernetes.namespace import eventually, open_to_all
from tests.kubernetes.pod_daemon import PodDaemon

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
SCRATCH = "scratch"


def test_a_job_on_a_claim_of_one_node_waits_for_that_node_and_says_why(
    daemon: PodDaemon, kubernetes: Grounds
) -> None:
    folder = open_to_all(daemon.namespace.folder / SCRATCH)
    daemon.namespace.claim(SCRATCH, folder, once=True)
    daemon.open_claims(SCRATCH)
    daemon.up()
    job = daemon.submit_keras("stays", [2, 4], 200, checkpoints=f"claim:{SCRATCH}/stays")
    daemon.trains(job, 4)
    before = daemon.container(job)
    daemon.drain(before.node)
    daemon.wait(job, "it saves and is queued", state="submitted", stage="none", attempt=1)
    other = next(node for node in kubernetes.nodes if node != before.node)
    told = f"{other} is excluded: its checkpoints are on the claim {SCRATCH} (ReadWriteOnce)"
    eventually("explain says why", lambda: told in explained(daemon, job))
    assert daemon.idle_gpus() >= 4, "the other node has room for it"
    assert daemon.reshape("undrain", before.node).returncode == 0
    daemon.trains(job, 4, attempt=2)
    after = daemon.container(job, attempt=2)
    assert after.node == before.node
    assert after.uid != before.uid
    ended = daemon.wait(job, "completes", state="completed", stage="none")
    assert (ended.steps_lost, ended.failures, ended.step) == (0, 0, 200)
    daemon.nothing_left()


def explained(daemon: PodDaemon, job: str) -> str:
    """What explain tells, in one line."""
    return " ".join(daemon.reshape("explain", job).stdout.split())
