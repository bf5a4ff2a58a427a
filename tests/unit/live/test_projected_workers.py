"""Each GPU's row names the worker of its job that trains on it, after every reshape."""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.core.events import SideCarReported
from reshape_controller.core.record import LogRecord
from reshape_controller.live.projection import changes_of
from tests.support.world import World


def workers(world: World) -> dict[str, int]:
    """The workers in the rows of what changed since the last call."""
    found = changes_of(world.engine, LogRecord(1, 1, "", "x", world.now_s, (), (), (), ""), ())
    assert {gpu for gpu, _ in found.workers} <= {gpu.id for gpu in found.gpus}
    return {str(gpu): worker for gpu, worker in found.workers}


def test_workers_share_the_gpus_of_their_job_equally_and_in_order() -> None:
    world = World().boot(4)
    world.running("one", 4, 2, 4, workers=2)
    assert workers(world) == {"GPU-0-0": 0, "GPU-0-1": 0, "GPU-0-2": 1, "GPU-0-3": 1}


def test_a_gpu_that_another_worker_gets_in_a_reshape_has_a_new_row() -> None:
    world = World().boot(4)
    world.running("one", 4, 2, 4, workers=2)
    workers(world)
    world.submit("two", 2)
    world.plan(("one", 2), ("two", 2), about="two")
    world.settle()
    kept = world.job("one").gpus
    found = workers(world)
    assert [found[gpu] for gpu in kept] == [0, 1]
    assert [found[gpu] for gpu in world.job("two").gpus] == [0, 0]


def test_a_report_that_moves_no_worker_writes_no_gpu() -> None:
    world = World().boot(4)
    world.running("one", 4, 2, 4, workers=2)
    workers(world)
    seen = world.container("one").observed()
    progress = replace(seen.progress, step=seen.progress.step + 50)
    world.event(SideCarReported(replace(seen, sequence=seen.sequence + 1, progress=progress)))
    record = LogRecord(1, 1, "", "x", world.now_s, (), (), (), "")
    found = changes_of(world.engine, record, ())
    assert [row.id for row in found.jobs] == ["one"]
    assert found.gpus == ()


def test_a_gpu_without_training_has_no_worker() -> None:
    world = World().boot(4)
    world.running("one", 2, 2)
    world.finish("one")
    world.settle()
    assert workers(world) == {}
