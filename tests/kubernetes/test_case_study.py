"""The README's case study on pods: the demo's own two jobs, with real TensorFlow.

In the living pod under `paper` and `adaptive`; under `case-study-termination` the very things that
stay the same there are different, so what the other tests assert can fail.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.kubernetes.pod_daemon import KERAS, Container, PodDaemon
from tests.support.daemon_bed import ROOT

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
DEMO = ROOT / "examples" / "demo"


def submit(daemon: PodDaemon, name: str, **changes: Any) -> str:
    """Submit the demo's record, with its code on the shared volume; the job's id."""
    record = yaml.safe_load((DEMO / f"{name}.yaml").read_text())
    assert record["code"] == "../mnist_like"
    record |= {"code": daemon.place("train", KERAS), **changes}
    path = daemon.folder / f"{name}.json"
    path.write_text(json.dumps(record))
    return str(daemon.json("submit", str(path))["id"])


def begin(daemon: PodDaemon, preset: str) -> tuple[str, str, Container]:
    """Job 1 trains on all GPUs and Job 2 arrives; both ids, and where Job 1 is.

    Job 2 does not wait for what would be best: on a slow machine that is not to start it at all.
    """
    daemon.truth = DEMO / "device_truth.json"
    profile = str(DEMO / "profile.toml")
    daemon.up("--launch-by", "ansible", "--preset", preset, "--profiles", profile)
    first = submit(daemon, "job-1")
    daemon.trains(first, 4)
    before = daemon.container(first)
    return first, submit(daemon, "job-2", max_wait_s=1), before


@pytest.mark.parametrize("preset", ["paper", pytest.param("adaptive", marks=pytest.mark.gate)])
def test_job_1_gives_way_to_job_2_in_its_living_pod(
    daemon: PodDaemon, one_node: None, preset: str
) -> None:
    first, second, before = begin(daemon, preset)
    four = daemon.view(first)
    assert four is not None
    two = daemon.trains(first, 2)
    assert daemon.container(first) == before
    assert two.pid != four.pid
    assert daemon.trains(second, 2).host == before.node
    newcomer = daemon.wait(second, "job 2 completes", state="completed")
    if preset == "paper":  # which always takes what is idle; `adaptive` weighs what it costs
        again = daemon.trains(first, 4)
        assert again.pid not in (two.pid, four.pid)
    assert daemon.container(first) == before
    assert before.restarts == 0
    ended = daemon.wait(first, "job 1 completes", state="completed", stage="none")
    for job in (ended, newcomer):
        assert job.step == job.total_steps
        assert (job.steps_lost, job.failures, job.attempt) == (0, 0, 1)
    assert ended.reshape_downs == 1
    assert ended.process_restarts == ended.reshape_downs + ended.reshape_ups
    daemon.nothing_left()


def test_by_termination_neither_pod_nor_container_is_the_same_afterwards(
    daemon: PodDaemon, one_node: None
) -> None:
    first, second, before = begin(daemon, "case-study-termination")
    two = daemon.trains(first, 2, attempt=2)
    after = daemon.container(first, attempt=2)
    assert after.pod != before.pod
    assert after.uid != before.uid
    assert after.container != before.container
    assert two.container_restarts == 1
    assert (two.steps_lost, two.failures) == (0, 0)
    for key in (first, second):
        assert daemon.reshape("cancel", key).returncode == 0
        daemon.wait(key, "is cancelled", state="cancelled", stage="none")
    daemon.nothing_left()
