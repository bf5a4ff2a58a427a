"""What a cluster does to a pod, or does not do for it, is told in words."""

from __future__ import annotations

import pytest

from tests.kubernetes.grounds import Grounds
from tests.kubernetes.namespace import eventually, open_to_all
from tests.kubernetes.pod_daemon import PodDaemon

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]
EATS_MEMORY = """
held = []
while True:
    held.append(b"x" * 10_000_000)
"""
ASKS_FOR_ITS_USER = """
import getpass, pathlib
(pathlib.Path.home() / getpass.getuser()).write_text("here")
"""


def tells(daemon: PodDaemon, job: str, words: str) -> None:
    """Wait until the reason of a job has these words, while its container comes up."""

    def told() -> bool:
        view = daemon.view(job)
        assert view is not None
        assert (view.attempt, view.stage) == (1, "launching"), view
        return words in view.reason

    eventually(f"its reason has {words!r}", told)


def quota(daemon: PodDaemon, pods: int) -> str:
    """No more pods than these may be made, as soon as that counts; the path of the quota."""
    hard = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": str(pods)}}}
    daemon.api.create(daemon.namespace.path("resourcequotas"), hard)
    made = daemon.namespace.path("resourcequotas", "few")
    eventually("the quota counts", lambda: "hard" in daemon.api.get(made).get("status", {}))
    return made


def test_a_quota_is_named_while_it_forbids_the_pod_and_the_job_trains_once_it_is_lifted(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up()
    forbids = quota(daemon, 0)
    job = daemon.submit_counting("waits", [4], 100_000)

    tells(daemon, job, "exceeded quota: few")
    daemon.api.delete(forbids)
    seen = daemon.trains(job, 4)
    assert (seen.attempt, seen.failures, seen.reason) == (1, 0, "")


def test_a_quota_that_forbids_one_of_two_workers_is_named(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up()
    quota(daemon, 1)
    job = daemon.submit_counting("waits", [4], 100_000, workers=2)
    tells(daemon, job, "no pod for it beside 1 of 2: FailedCreate")


def test_a_volume_that_cannot_be_mounted_is_named_and_the_job_trains_once_it_can(
    daemon: PodDaemon, one_node: None, own_cluster: Grounds
) -> None:
    folder = daemon.namespace.folder / "not-there-yet"
    daemon.namespace.claim("late", folder)
    daemon.open_claims("late")
    daemon.up()
    job = daemon.submit_counting("waits", [4], 100_000, dataset="claim:late")
    tells(daemon, job, "FailedMount")
    open_to_all(folder)
    seen = daemon.trains(job, 4)
    assert (seen.attempt, seen.failures, seen.reason) == (1, 0, "")


def test_an_eviction_is_named_and_the_job_goes_on_in_another_pod(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up()
    job = daemon.submit_counting("evicted", [4], 100_000)
    daemon.trains(job, 4)
    pod = daemon.container(job).pod
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    daemon.api.create(daemon.namespace.path("pods", pod) + "/eviction", eviction)
    seen = daemon.trains(job, 4, attempt=2)
    assert (seen.failures, seen.container_restarts) == (0, 1), "it is not the job's fault"
    history = " ".join(daemon.history(job).split())
    assert "EvictionByEvictionAPI" in history or "a deletion or an eviction" in history, history
    assert "ended on request" not in history


def test_a_program_that_runs_out_of_memory_is_told_as_that(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up()
    limit = {"memory": "200Mi"}
    job = daemon.submit_program("hungry", EATS_MEMORY, [4], 10, retries=0, resources=limit)
    ended = daemon.wait(job, "it fails", state="failed")
    assert "out of memory" in ended.reason or "OOMKilled" in ended.reason, ended.reason


def test_a_program_may_ask_for_its_user_and_write_to_its_home(
    daemon: PodDaemon, one_node: None
) -> None:
    daemon.up()
    job = daemon.submit_program("asks", ASKS_FOR_ITS_USER, [4], 1, retries=0)
    daemon.wait(job, "completes", state="completed")
