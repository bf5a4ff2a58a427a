"""Real TensorFlow jobs in pods of a real cluster: reshaped in the living pod, whatever happens.

Each test has a daemon and a namespace of its own; at its end nothing of its jobs is left.
"""

from __future__ import annotations

import time

import pytest

from tests.kubernetes import cluster, control_plane
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.pod_daemon import ENDED, PodDaemon, cordon

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
API_AWAY_S = 60.0
PAPER = ("--launch-by", "ansible", "--preset", "paper")
"""It always takes what is idle, so that a job grows again for sure. The playbook brings jobs."""
STEPS_LEAST = 8
"""Submitted, launched, asked, checked, verified, ended, checked, asked to grow; often two more."""


def test_a_controller_killed_after_every_step_of_a_hand_over_restarts_no_training(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up(*PAPER)
    first = daemon.submit_keras("first", [2, 4], 4000)
    daemon.trains(first, 4)
    before = daemon.container(first)
    daemon.stop()
    second = daemon.counting_record("second", [2], 40, max_wait_s=1)

    def down_and_up() -> bool:
        jobs = daemon.jobs()
        if jobs is None:
            return False
        if "second" not in jobs:
            daemon.reshape("submit", str(second))  # killed under it, perhaps
            return False
        one, other = jobs["first"], jobs["second"]
        assert one.state not in ENDED, one
        there = (one.stage, one.size, one.phase) == ("training", 4, "running")
        return (
            there and one.reshape_ups == 1 and (other.state, other.stage) == ("completed", "none")
        )

    killed = daemon.killed_after_every_step(*PAPER, until=down_and_up)
    assert killed >= STEPS_LEAST, daemon.log.read_text()
    assert daemon.container(first) == before
    jobs = daemon.jobs()
    assert jobs is not None
    one, newcomer = jobs["first"], jobs["second"]
    assert (one.reshape_downs, one.reshape_ups, one.process_restarts) == (1, 1, 2)
    assert newcomer.process_restarts == 0
    for seen in (one, newcomer):
        assert (seen.steps_lost, seen.failures, seen.container_restarts) == (0, 0, 0)
        assert seen.attempt == 1
    assert daemon.reshape("cancel", first).returncode == 0
    daemon.wait(first, "is cancelled", state="cancelled", stage="none")
    daemon.nothing_left()


def test_an_api_server_that_is_away_for_a_minute_during_a_hand_over_costs_no_step(
    own_cluster: Grounds, daemon: PodDaemon, one_node: None
) -> None:
    daemon.up()
    first = daemon.submit_keras("first", [2, 4], 900)
    daemon.trains(first, 4)
    before = daemon.container(first)
    second = daemon.submit_counting("second", [2], 40, max_wait_s=1)
    daemon.wait(first, "first is asked to shrink", state="adjusting")
    control_plane.stop_api_server()
    try:
        time.sleep(API_AWAY_S)
    finally:
        cluster.start_api_server()
    two = daemon.trains(first, 2)
    assert daemon.container(first) == before
    ended = daemon.wait(second, "completes", state="completed", stage="none")
    for seen in (two, ended):
        assert (seen.steps_lost, seen.failures, seen.attempt) == (0, 0, 1)
    assert daemon.reshape("cancel", first).returncode == 0
    daemon.wait(first, "is cancelled", state="cancelled", stage="none")
    daemon.nothing_left()


@pytest.mark.parametrize("way", ["cordon", "command"])
def test_a_drained_host_hands_its_job_to_another_from_its_checkpoint(
    daemon: PodDaemon, request: pytest.FixtureRequest, way: str
) -> None:
    if way == "cordon":
        request.getfixturevalue("own_cluster")

    def drain(node: str, wanted: bool) -> None:
        if way == "cordon":
            cordon(daemon.namespace, node, wanted)
        else:
            assert daemon.reshape("drain" if wanted else "undrain", node).returncode == 0

    daemon.up()
    job = daemon.submit_keras("mover", [4], 200)
    daemon.trains(job, 4)
    before = daemon.container(job)
    drain(before.node, True)
    try:
        moved = daemon.trains(job, 4, attempt=2)
        after = daemon.container(job, attempt=2)
        assert after.node != before.node
        assert after.uid != before.uid
        assert moved.checkpoint_step is not None
        ended = daemon.wait(job, "completes", state="completed", stage="none")
        assert (ended.steps_lost, ended.failures) == (0, 0)
        assert ended.step == 200
    finally:
        drain(before.node, False)
    daemon.nothing_left()


@pytest.mark.gate
def test_a_pod_that_somebody_deletes_is_launched_again_from_its_newest_checkpoint(
    daemon: PodDaemon,
) -> None:
    daemon.up()
    job = daemon.submit_keras("deleted", [4], 200)
    daemon.trains(job, 4)
    before = daemon.container(job)
    daemon.api.delete(daemon.namespace.path("pods", before.pod))
    daemon.wait(job, "a second attempt", attempt=2)
    daemon.trains(job, 4, attempt=2)
    assert daemon.container(job, attempt=2).uid != before.uid
    ended = daemon.wait(job, "completes", state="completed", stage="none")
    assert (ended.container_restarts, ended.failures) == (1, 0)
    assert ended.step == 200
    daemon.nothing_left()


def test_an_image_that_does_not_exist_fails_the_job_at_once_and_is_named(
    daemon: PodDaemon, one_node: None, absent_image: str
) -> None:
    daemon.up()
    job = daemon.submit_keras("nowhere", [4], 40, image=absent_image)
    ended = daemon.wait(job, "it fails", state="failed", stage="none")
    assert absent_image in ended.reason
    assert "not found" in ended.reason
    assert (ended.attempt, ended.container_restarts) == (1, 0), "no other attempt would find it"
    daemon.nothing_left()
