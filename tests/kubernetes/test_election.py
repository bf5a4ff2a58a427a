"""Two real controllers on one store and one Lease: whoever dies or hangs, training goes on.

Each test has two daemons, a database and a namespace of its own.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_gpu.values import JobView
from reshape_launcher.leases import LEASE_S
from tests.kubernetes import cluster, control_plane
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.namespace import Namespace, eventually
from tests.kubernetes.replicas import LEASE, LEASES, Door, Replica, shared_secrets

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1200)]
LOAD_S = 165.0
"""What recovering and looking may take on a loaded machine, beyond the lease."""
API_AWAY_S = 60.0


@pytest.fixture
def pair(namespace: Namespace, tmp_path: Path, address: str) -> Iterator[list[Replica]]:
    """Two replicas, the first of which leads; jobs go to one node alone."""
    door, shared = Door(namespace.grounds.address), shared_secrets(tmp_path / "secrets")
    made = [
        Replica(tmp_path / name, namespace, door.url, address, shared) for name in ("one", "two")
    ]
    door.backends = [replica.bind for replica in made]
    try:
        made[0].launch()
        made[0].becomes("leader")
        for host in namespace.grounds.nodes[1:]:
            made[0].drain(host)
        made[1].launch()
        made[1].becomes("standby")
        yield made
    finally:
        for replica in made:
            replica.close()
        door.close()


def training(leader: Replica, key: str) -> JobView:
    """The job, once it trains and its SideCar has said which process that is."""
    leader.wait(key, "trains", state="running", stage="training", phase="running")
    return eventually(f"{key} has a process", lambda: _with_pid(leader, key))


def _with_pid(leader: Replica, key: str) -> JobView | None:
    job = leader.view(key)
    return job if job is not None and job.pid else None


def holder(namespace: Namespace) -> str:
    found = namespace.api.find(namespace.path("leases", LEASE, group=LEASES))
    return str(found["spec"].get("holderIdentity") or "") if found else ""


def same(before: JobView, after: JobView) -> None:
    """No training process was started again meanwhile."""
    assert (after.pid, after.attempt) == (before.pid, before.attempt)
    assert (after.steps_lost, after.failures, after.process_restarts) == (0, 0, 0)


@pytest.mark.gate
def test_a_killed_leader_is_followed_within_the_lease_and_no_training_notices(
    pair: list[Replica], namespace: Namespace
) -> None:
    one, two = pair
    key = one.submit_counting("long", [2, 4], 100_000)
    before, container = training(one, key), one.container(key)
    refused = two.reshape("gpus")
    assert refused.returncode != 0
    assert "standby" in refused.stderr
    leading = one.status()
    assert leading is not None
    assert leading.name in refused.stderr

    one.stop(signal.SIGKILL)
    began_s = time.monotonic()
    status = two.becomes("leader", LEASE_S + LOAD_S)
    print(f"took over {time.monotonic() - began_s:.1f} s after the kill", flush=True)
    assert status.epoch == 2
    assert status.leader == status.name == holder(namespace)
    same(before, training(two, key))
    assert two.container(key) == container

    second = two.submit_counting("newcomer", [2], 20, max_wait_s=1)
    ended = two.wait(second, "completes", state="completed")
    assert ended.failures == 0
    after = two.view(key)
    assert after is not None
    assert (after.attempt, after.steps_lost, after.failures) == (1, 0, 0)
    assert two.container(key) == container, "reshaped in its pod by the new leader"
    one.launch()
    one.becomes("standby")
    assert two.reshape("cancel", key).returncode == 0
    two.wait(key, "is cancelled", state="cancelled", stage="none")
    two.nothing_left()


def test_a_leader_that_hung_stops_by_the_epoch_and_harms_nothing(
    pair: list[Replica], namespace: Namespace
) -> None:
    one, two = pair
    key = one.submit_counting("long", [2, 4], 100_000)
    before, container = training(one, key), one.container(key)
    assert one.daemon is not None
    one.daemon.send_signal(signal.SIGSTOP)
    two.becomes("leader", LEASE_S + LOAD_S)
    second = two.submit_counting("newcomer", [2], 100_000, max_wait_s=1)
    other = training(two, second)
    smaller = training(two, key)
    assert smaller.pid != before.pid, "reshaped by the new leader"

    one.daemon.send_signal(signal.SIGCONT)
    assert one.daemon.wait(LOAD_S) != 0
    assert "another controller took over" in one.log.read_text()
    assert two.becomes("leader").lease_held
    for known, job in ((smaller, key), (other, second)):
        now = training(two, job)
        assert (now.pid, now.attempt, now.failures) == (known.pid, 1, 0)
    assert two.container(key) == container
    for job in (key, second):
        assert two.reshape("cancel", job).returncode == 0
        two.wait(job, "is cancelled", state="cancelled", stage="none")
    two.nothing_left()


def test_a_leader_that_is_told_to_stop_is_followed_at_once(
    pair: list[Replica], namespace: Namespace
) -> None:
    one, two = pair
    key = one.submit_counting("long", [4], 100_000)
    before = training(one, key)
    assert one.stop() == 0
    began_s = time.monotonic()
    two.becomes("leader", LEASE_S + LOAD_S)
    print(f"took over {time.monotonic() - began_s:.1f} s after the stop", flush=True)
    assert "lease-released" in one.log.read_text()
    same(before, training(two, key))
    assert two.stop() == 0
    assert holder(namespace) == ""


def test_an_api_server_that_is_away_in_a_hand_over_leaves_the_leader_the_leader(
    own_cluster: Grounds, pair: list[Replica]
) -> None:
    one, two = pair
    first = one.submit_counting("first", [2, 4], 100_000)
    training(one, first)
    container = one.container(first)
    second = one.submit_counting("second", [2], 100_000, max_wait_s=1)
    one.wait(first, "is asked to shrink", state="adjusting")
    control_plane.stop_api_server()
    try:
        time.sleep(API_AWAY_S)
        away = one.status()
        assert away is not None
        assert (away.role, away.epoch, away.lease_held) == ("leader", 1, False)
    finally:
        cluster.start_api_server()
    eventually("the lease is held again", lambda: (s := one.status()) and s.lease_held)
    assert two.becomes("standby").leader == one.becomes("leader").name
    for key in (first, second):
        found = training(one, key)
        assert (found.size, found.attempt, found.failures, found.steps_lost) == (2, 1, 0, 0)
    after = training(one, first)
    assert after.process_restarts == after.reshape_downs == 1, "no other restart than its reshape"
    assert one.container(first) == container
    for key in (first, second):
        assert one.reshape("cancel", key).returncode == 0
        one.wait(key, "is cancelled", state="cancelled", stage="none")
    one.nothing_left()
