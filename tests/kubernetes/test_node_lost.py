"""A node is lost under a real job: the job goes on elsewhere, and the node can come back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kubernetes import cgroups, cluster, network
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.layout import NODES, Node
from tests.kubernetes.namespace import eventually
from tests.kubernetes.pod_daemon import PodDaemon

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("lose", "find", "steps"),
    # A copy that goes on training would complete a short job before anybody is told of the loss.
    [(cgroups.kill, cluster.start_node, 300), (network.cut, network.join, 900)],
    ids=["without power", "cut off, and its copy goes on training"],
)
def test_the_job_of_a_lost_node_goes_on_elsewhere_from_its_checkpoint(
    daemon: PodDaemon,
    own_cluster: Grounds,
    lose: Callable[[Node], None],
    find: Callable[[Node], None],
    steps: int,
) -> None:
    daemon.up(program="tests.support.impatient_daemon")
    job = daemon.submit_keras("survivor", [4], steps)
    daemon.trains(job, 4)
    before = daemon.container(job)
    saved = eventually("a checkpoint", lambda: checkpoint_step(daemon, job))
    lost = next(node for node in NODES if node.name == before.node)
    lose(lost)
    try:
        daemon.trains(job, 4, attempt=2)
        after = daemon.container(job, attempt=2)
        assert after.node != before.node
        assert begins_at(daemon, job, attempt=2) >= saved
    finally:
        find(lost)
    eventually("the node is back", lambda: cluster.ready()[lost.name])
    eventually("the old copy is gone", lambda: daemon.running_attempts(job) <= {2})
    ended = daemon.wait(job, "completes", state="completed", stage="none")
    assert ended.step == steps
    assert ended.container_restarts == 1
    eventually("all GPUs are idle", lambda: daemon.idle_gpus() == 4 * len(NODES))
    daemon.nothing_left()


def checkpoint_step(daemon: PodDaemon, job: str) -> int | None:
    seen = daemon.view(job)
    return None if seen is None else seen.checkpoint_step


def begins_at(daemon: PodDaemon, job: str, attempt: int) -> int:
    """The first step that is seen of an attempt."""
    seen = daemon.wait(job, "its second attempt", attempt=attempt, phase="running")
    return seen.step
