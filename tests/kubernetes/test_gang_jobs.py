"""A real job of two workers on two nodes: it trains as a whole, loses a node, and goes on.

Each test has a daemon and a namespace of its own; at its end nothing of its jobs is left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from reshape_gpu.values import JobView
from tests.kubernetes import cgroups, cluster, network
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.layout import NODES, Node
from tests.kubernetes.namespace import eventually
from tests.kubernetes.pod_daemon import TENSORFLOW_S, PodDaemon
from tests.support import multi_worker
from tests.support.gang_program import LOCKSTEP

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]
FFDL = ("--policy", "ffdl")
STEP_S = 0.2
"""Seconds of a step on one GPU of each worker."""
SAVE_EVERY = 10
WORKERS = ("worker-0", "worker-1")
"""The folders of their logs."""
PACE = {"4": 0.4, "8": 0.2}
"""Seconds of a step of the TensorFlow job. Its own work is small beside them, so that four GPUs are
worth a reshape on a busy machine too."""
PROFILES = """
[[profile]]
job_type = "linear"
speed = [["simulated", 4, 0.4, "paced", 2], ["simulated", 8, 0.2, "paced", 2]]
[profile.overhead]
job_init_s = 3.0
process_init_s = 6.0
checkpoint_s = 0.5
process_stop_s = 0.5
job_stop_s = 1.0

[[profile]]
job_type = "lockstep"
speed = [["simulated", 4, 0.1, "paced", 2]]
"""
"""What their user knows of both jobs on two nodes."""


def submit(
    daemon: PodDaemon,
    sizes: list[int],
    steps: int,
    name: str = "gang",
    *settings: str,
    **fields: object,
) -> str:
    """Submit a program whose two workers make each step together; its id. ``settings``: variables
    of the program."""
    words = ["python", f"{name}.py", str(steps), str(STEP_S), str(SAVE_EVERY)]
    return daemon.submit_record(
        name,
        LOCKSTEP,
        command=["env", *settings, *words] if settings else words,
        framework="other",
        optional_gpus=sizes,
        workers=2,
        steps=steps,
        **fields,
    )


def output(daemon: PodDaemon, job: str, folder: str, attempt: int = 1) -> str:
    """The training log of a worker, as it is on the shared volume."""
    path = daemon.namespace.shared / job / f"attempt-{attempt}" / folder / "logs" / "training.log"
    return path.read_text() if path.exists() else ""


def submit_tensorflow(daemon: PodDaemon, steps: int) -> str:
    """Submit a job of two workers under MultiWorkerMirroredStrategy, for four GPUs or eight."""
    record = multi_worker.record("gang", [4, 8], steps, "linear")
    return daemon.submit_record("gang", multi_worker.SCRIPT.read_text(), **record)


def makes_steps_after(daemon: PodDaemon, job: str, step: int) -> None:
    """Wait until steps beyond this one are made; a hooked job counts as running without one."""

    def further() -> bool:
        made = multi_worker.losses(output(daemon, job, WORKERS[1]))
        return bool(made) and made[-1][0] > step + 3

    eventually(f"steps after {step}", further, TENSORFLOW_S)


def begins_after(daemon: PodDaemon, job: str, attempt: int) -> int:
    """The step after which the chief of an attempt begins."""

    def begun() -> list[str]:
        text = output(daemon, job, WORKERS[0], attempt)
        return re.findall(r"^worker 0 begins after step (\d+)", text, re.M)

    found = eventually("the chief begins", begun)
    assert len(found) == 1, found
    return int(found[0])


def test_a_job_larger_than_a_node_trains_on_two_nodes_to_its_end(daemon: PodDaemon) -> None:
    daemon.up(*FFDL)
    job = submit(daemon, [8], 200, span="if-needed")
    daemon.trains(job, 8)
    first, second = daemon.containers(job, 2)
    assert first.node != second.node, "a pod on each node"
    held = {gpu["host"] for gpu in daemon.json("gpus")["gpus"] if gpu["state"] == "in use"}
    assert held == {first.node, second.node}
    ended = daemon.wait(job, "completes", state="completed", stage="none")
    assert (ended.step, ended.steps_lost, ended.failures, ended.attempt) == (200, 0, 0, 1)
    for number, folder in enumerate(WORKERS):
        text = output(daemon, job, folder)
        assert re.search(rf"^worker {number} done$", text, re.M), text
        (devices,) = re.findall(rf"^worker {number} begins after step 0 on (\S+)", text, re.M)
        assert len(devices.split(",")) == 4, "its own half"
    eventually("all GPUs are idle", lambda: daemon.idle_gpus() == 4 * len(NODES))
    daemon.nothing_left()


def test_a_gang_gives_half_of_each_node_in_its_living_pods_and_gets_it_back(
    daemon: PodDaemon,
) -> None:
    daemon.up("--policy", "halve-gangs", program="tests.support.gang_policy")
    job = submit(daemon, [4, 8], 1_000_000, span="any")
    eight = daemon.trains(job, 8)
    before = daemon.containers(job, 2)
    newcomer = submit(daemon, [4], 1_000_000, "newcomer", span="any")
    four = daemon.trains(job, 4)
    daemon.trains(newcomer, 4)
    assert daemon.containers(job, 2) == before
    assert len({one.node for one in daemon.containers(newcomer, 2)}) == 2
    gpus = {gpu["id"]: gpu for gpu in daemon.json("gpus")["gpus"]}
    for key in (job, newcomer):
        seen = daemon.view(key)
        assert seen is not None
        assert [gpus[gpu]["owner"] for gpu in seen.gpus] == [key] * 4
        assert len({gpus[gpu]["host"] for gpu in seen.gpus}) == 2
    assert daemon.reshape("cancel", newcomer).returncode == 0
    daemon.wait(newcomer, "the newcomer is gone", state="cancelled", stage="none")
    again = daemon.trains(job, 8)
    assert daemon.containers(job, 2) == before
    assert len({eight.pid, four.pid, again.pid}) == 3
    assert (again.steps_lost, again.failures, again.attempt) == (0, 0, 1)
    assert (again.reshape_downs, again.reshape_ups) == (1, 1)
    for number, folder in enumerate(WORKERS):
        text = output(daemon, job, folder)
        begun = re.findall(rf"^worker {number} begins after step (\d+) on (\S+)", text, re.M)
        saved = [int(n) for n in re.findall(rf"^worker {number} saves step (\d+)", text, re.M)]
        assert [len(devices.split(",")) for _, devices in begun] == [4, 2, 4]
        assert int(begun[0][0]) == 0
        assert all(int(step) in saved for step, _ in begun[1:]), "no step is made twice"
    assert daemon.reshape("cancel", job).returncode == 0
    daemon.wait(job, "is cancelled", state="cancelled", stage="none")
    daemon.nothing_left()


def test_a_tensorflow_job_lends_four_gpus_in_place_and_trains_as_one_process_would(
    daemon: PodDaemon,
) -> None:
    daemon.truth.write_text(json.dumps({"seconds_per_step": {"linear": PACE}}))
    profiles = daemon.folder / "profiles.toml"
    profiles.write_text(PROFILES)
    daemon.up("--policy", "adaptive", "--profiles", str(profiles))
    job = submit_tensorflow(daemon, 100_000)
    eight = daemon.trains(job, 8)
    makes_steps_after(daemon, job, 0)
    before = daemon.containers(job, 2)
    assert len({one.node for one in before}) == 2, "a pod on each node"
    newcomer = submit(daemon, [4], 100, "newcomer", span="any", job_type="lockstep")
    four = daemon.trains(job, 4)
    daemon.trains(newcomer, 4)
    assert len({one.node for one in daemon.containers(newcomer, 2)}) == 2
    daemon.wait(newcomer, "the newcomer completes", state="completed", stage="none")
    again = daemon.trains(job, 8)
    makes_steps_after(daemon, job, again.step)
    assert daemon.containers(job, 2) == before, "the same pods, and none was restarted"
    assert len({eight.pid, four.pid, again.pid}) == 3
    assert daemon.reshape("cancel", job).returncode == 0
    ended = daemon.wait(job, "is cancelled", state="cancelled", stage="none")
    assert (ended.steps_lost, ended.failures, ended.attempt) == (0, 0, 1)
    assert (ended.reshape_downs, ended.reshape_ups) == (1, 1)
    texts = [output(daemon, job, folder) for folder in WORKERS]
    assert texts[0].count("going on after step") == 2
    here, there = (multi_worker.losses(text) for text in texts)
    made = min(len(here), len(there))
    assert here[:made] == there[:made], "both see the loss over all samples of each step"
    assert made > again.step
    wanted = multi_worker.alone(daemon, made)
    assert [step for step, _ in wanted] == list(range(1, made + 1))
    assert [step for step, _ in here[:made]] == [step for step, _ in wanted], "each is made once"
    found = [loss for _, loss in here[:made]]
    assert found == pytest.approx([loss for _, loss in wanted], abs=multi_worker.ROUNDING)
    daemon.nothing_left()


@pytest.mark.parametrize(
    ("worker", "lose", "find"),
    [(1, cgroups.kill, cluster.start_node), (0, network.cut, network.join)],
    ids=["the second worker's, without power", "the chief's, cut off"],
)
def test_the_loss_of_a_node_ends_the_whole_attempt_and_the_job_goes_on_from_its_checkpoint(
    daemon: PodDaemon,
    own_cluster: Grounds,
    worker: int,
    lose: Callable[[Node], None],
    find: Callable[[Node], None],
) -> None:
    daemon.up(*FFDL, program="tests.support.impatient_daemon")
    job = submit(daemon, [4], 1_000_000, span="any", placement="spread")
    daemon.trains(job, 4)
    before = daemon.containers(job, 2)
    assert len({one.node for one in before}) == 2
    saved = eventually("a checkpoint", lambda: checkpoint_step(daemon, job))
    chief = daemon.wait(job, "its chief's node", state="running").host
    (other,) = {one.node for one in before} - {chief}
    lost = next(node for node in NODES if node.name == (chief, other)[worker])
    lose(lost)
    try:
        after = daemon.trains(job, 4, attempt=2)
        placed = [one for one in daemon.containers(job, 2, attempt=2) if one.node != lost.name]
        assert len(placed) == 2, "both workers are on the node that is left"
        gpus = {gpu["id"]: gpu for gpu in daemon.json("gpus")["gpus"]}
        assert all(gpus[gpu]["host"] != lost.name for gpu in after.gpus)
        states = {gpu["state"] for gpu in gpus.values() if gpu["host"] == lost.name}
        assert states == {"lost"}, "what runs there is not known"
        assert begins_after(daemon, job, attempt=2) >= saved
        assert after.failures == 0, daemon.history(job)
    finally:
        find(lost)
    eventually("the node is back", lambda: cluster.ready()[lost.name])
    eventually("the old copy is gone", lambda: daemon.running_attempts(job) <= {2})
    eventually("its GPUs are idle", lambda: daemon.idle_gpus() == 4)
    assert daemon.reshape("cancel", job).returncode == 0
    daemon.wait(job, "is cancelled", state="cancelled", stage="none")
    eventually("all GPUs are idle", lambda: daemon.idle_gpus() == 4 * len(NODES))
    daemon.nothing_left()


SAVE_S = 8
"""Seconds of a save in which a node is lost."""


def is_launched(gang: JobView, newcomer: JobView) -> bool:
    return newcomer.stage == "launching"


def is_saved(gang: JobView, newcomer: JobView) -> bool:
    return gang.stage == "saving"


def has_half(gang: JobView, newcomer: JobView) -> bool:
    return gang.size == 4 and gang.stage in ("starting", "training")


@pytest.mark.parametrize(
    ("reached", "settings", "worker", "lose", "find"),
    [
        (is_launched, (), 1, cgroups.kill, cluster.start_node),
        (is_saved, (f"SAVE_S={SAVE_S}",), 0, cgroups.kill, cluster.start_node),
        (has_half, (), 1, network.cut, network.join),
    ],
    ids=["the newcomer is launched", "the gang saves", "the gang starts, and the node is cut off"],
)
def test_a_node_lost_in_a_hand_over_ends_what_is_on_it_and_both_gangs_train_again(
    daemon: PodDaemon,
    own_cluster: Grounds,
    reached: Callable[[JobView, JobView], bool],
    settings: tuple[str, ...],
    worker: int,
    lose: Callable[[Node], None],
    find: Callable[[Node], None],
) -> None:
    daemon.up("--policy", "halve-gangs", program="tests.support.impatient_daemon")
    gang = submit(daemon, [4, 8], 1_000_000, "gang", *settings, span="any")
    daemon.trains(gang, 8)
    saved = eventually("a checkpoint", lambda: checkpoint_step(daemon, gang))
    nodes = [one.node for one in daemon.containers(gang, 2)]
    newcomer = submit(daemon, [4], 1_000_000, "newcomer", span="any")

    def there() -> bool:
        one, other = daemon.view(gang), daemon.view(newcomer)
        return one is not None and other is not None and reached(one, other)

    eventually("the hand-over is there", there, TENSORFLOW_S)
    lost = next(node for node in NODES if node.name == nodes[worker])
    lose(lost)

    def on_the_other_node() -> str | None:
        for key in (gang, newcomer):
            seen = daemon.view(key)
            if seen is not None and (seen.stage, seen.hosts, seen.size) == ("training", (), 4):
                return key
        return None

    try:
        trains = eventually("a gang is on the node that is left", on_the_other_node, TENSORFLOW_S)
        gpus = {gpu["id"]: gpu for gpu in daemon.json("gpus")["gpus"]}
        assert {gpu["state"] for gpu in gpus.values() if gpu["host"] == lost.name} == {"lost"}
        seen = daemon.trains(trains, 4)
        assert all(gpus[gpu]["host"] != lost.name for gpu in seen.gpus)
        assert seen.failures == 0, daemon.history(trains)
        if trains == gang:
            assert begins_after(daemon, gang, seen.attempt) >= saved
    finally:
        find(lost)
    eventually("the node is back", lambda: cluster.ready()[lost.name])
    newest = seen.attempt
    eventually("no old copy is left", lambda: daemon.running_attempts(trains) <= {newest})
    assert daemon.reshape("cancel", trains).returncode == 0
    (waits,) = {gang, newcomer} - {trains}
    size = 4 if waits == newcomer else 8
    assert daemon.trains(waits, size).failures == 0, daemon.history(waits)
    assert daemon.reshape("cancel", waits).returncode == 0
    eventually("all GPUs are idle", lambda: daemon.idle_gpus() == 4 * len(NODES))
    daemon.nothing_left()


def checkpoint_step(daemon: PodDaemon, job: str) -> int | None:
    seen = daemon.view(job)
    return None if seen is None else seen.checkpoint_step
