"""The launch of a job says which shortcuts its starts may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.core.model import (
    Batch,
    GpuId,
    HostId,
    JobId,
    OnDifference,
    ProofUse,
)
from reshape_controller.live.launching import LaunchSettings, launch_spec
from reshape_launcher.spec import DeviceMode
from reshape_sidecar import codec
from reshape_sidecar.contract import (
    ENV_MICRO_BATCHES,
    ENV_PROOF,
    ENV_SAVE_DEADLINE_S,
    ENV_SIZES,
)
from reshape_sidecar.wire import Processes, Shortcut
from tests.support.world import World

AUTO, OFF = Shortcut.AUTO, Shortcut.OFF


@pytest.mark.parametrize(
    ("daemon", "record", "found"),
    [(AUTO, AUTO, AUTO), (AUTO, OFF, OFF), (OFF, AUTO, OFF), (OFF, OFF, OFF)],
)
def test_the_daemon_caps_what_a_record_allows(
    daemon: Shortcut, record: Shortcut, found: Shortcut
) -> None:
    world = World().boot()
    world.submit("a", 1, standby=record)
    world.submit("b", 1, overlap=record)
    settings = LaunchSettings(
        "http://127.0.0.1:1", Path("/srv"), DeviceMode.SIMULATED, standby=daemon, overlap=daemon
    )
    specs = [
        launch_spec(settings, world.engine.state.jobs[JobId(name)], HostId("h"), (), 1, 60.0)
        for name in ("a", "b")
    ]
    assert (specs[0].standby, specs[1].overlap) == (found, found)
    assert specs[1].may_overlap is (found is AUTO)


def test_no_successor_is_prepared_on_real_gpus_or_for_several_workers() -> None:
    world = World().boot()
    for number, workers in enumerate((1, 2)):
        world.submit(f"job-{number}", 2, workers=workers)
    for mode in DeviceMode:
        settings = LaunchSettings("http://127.0.0.1:1", Path("/srv"), mode)
        for number, workers in enumerate((1, 2)):
            job = world.engine.state.jobs[JobId(f"job-{number}")]
            spec = launch_spec(settings, job, HostId("h"), (GpuId("g"),), 1, 60.0)
            assert spec.may_overlap is (mode is DeviceMode.SIMULATED and workers == 1)


def test_a_sidecar_of_the_release_before_reads_the_launch_of_a_plain_record() -> None:
    world = World().boot()
    world.submit("a", 1)
    settings = LaunchSettings("http://127.0.0.1:1", Path("/srv"))
    spec = launch_spec(settings, world.engine.state.jobs[JobId("a")], HostId("h"), (), 1, 60.0)
    written = codec.to_value(spec.sidecar_spec())
    assert not {"standby", "overlap", "processes"} & written.keys()


def test_the_processes_of_a_pytorch_job_know_the_sizes_that_it_may_have() -> None:
    world = World().boot()
    world.submit("one", 1, 2, env=(("A", "1"),))
    world.submit("several", 1, 2, env=(("A", "1"),), processes=Processes.PER_GPU)
    world.submit("together", 1, 2, processes=Processes.PER_GPU, batch=Batch.MICRO)
    settings = LaunchSettings("http://127.0.0.1:1", Path("/srv"))
    jobs = world.engine.state.jobs
    found = {
        name: launch_spec(settings, jobs[JobId(name)], HostId("h"), (), 1, 60.0).env
        for name in ("one", "several", "together")
    }
    deadline = (ENV_SAVE_DEADLINE_S, "60")
    assert found == {
        "one": (("A", "1"), deadline),
        "several": (("A", "1"), (ENV_SIZES, "1,2"), deadline),
        "together": ((ENV_SIZES, "1,2"), (ENV_MICRO_BATCHES, "2"), deadline),
    }


def test_every_training_process_knows_whether_it_proves_its_restart() -> None:
    world = World().boot()
    world.submit("plain", 1)
    world.submit("without", 1, proof=ProofUse.OFF)
    world.submit("strict", 1, on_difference=OnDifference.STOP, processes=Processes.PER_GPU)
    settings, jobs = LaunchSettings("http://127.0.0.1:1", Path("/srv")), world.engine.state.jobs
    found = {
        name: dict(launch_spec(settings, jobs[JobId(name)], HostId("h"), (), 1, 7.5).env)
        for name in ("plain", "without", "strict")
    }
    assert {name: env.get(ENV_PROOF) for name, env in found.items()} == {
        "plain": None,
        "without": "off",
        "strict": "stop",
    }
    assert {env[ENV_SAVE_DEADLINE_S] for env in found.values()} == {"7.5"}
    of_no_end = launch_spec(settings, jobs[JobId("plain")], HostId("h"), (), 0, 0.0)
    assert of_no_end.env == ()
