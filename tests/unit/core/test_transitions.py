"""The tables of legal changes: what they refuse, and that nothing in the core goes round them."""

from __future__ import annotations

import ast
import dataclasses
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core import transitions
from reshape_controller.core.coordinator import gpu_ledger
from reshape_controller.core.model import Gpu, GpuState, Job, JobId, JobState, Stage
from reshape_controller.core.state import RECENT_MAX, State
from reshape_controller.core.transaction import JobChanges, Transaction
from reshape_controller.core.transitions import (
    ANY,
    ANY_BUT_ENDING,
    GPU_CHANGES,
    GPU_LEGAL,
    LEGAL,
    STATE_CHANGES,
    WITH_GPUS,
    InvalidTransition,
)
from reshape_sidecar.wire import Outcome, OutcomeKind
from tests.support.hand_over_scenes import mid_shrink
from tests.support.world import World

CORE = Path(transitions.__file__).parent
CONSTANT = {"id", "spec", "place", "submitted_at_s", "stage"}
"""Fields of a job that never change, and the stage, which ``move`` alone changes."""
ILLEGAL = [pair for pair in product(Stage, Stage) if pair not in LEGAL]
ILLEGAL_STATES = [
    (before, after)
    for before, after in product(JobState, JobState)
    if before is not after and after not in STATE_CHANGES[before]
]


def with_job(**fields: object) -> tuple[Transaction, JobId]:
    """A transaction on the state of a cluster with one running job that got these fields."""
    world = World().boot(4)
    world.running("job", 2, 2)
    state = world.engine.state
    job = dataclasses.replace(world.job("job"), **fields)  # type: ignore[arg-type]
    state.put_job(job)
    return Transaction(state, world.now_s, keeps_history=True), job.id


@pytest.mark.parametrize(
    ("before", "after"), ILLEGAL, ids=[f"{a.value}-{b.value}" for a, b in ILLEGAL]
)
def test_a_stage_that_may_not_follow_is_refused_and_changes_nothing(
    before: Stage, after: Stage
) -> None:
    tx, job_id = with_job(stage=before)
    job = tx.state.jobs[job_id]
    with pytest.raises(InvalidTransition) as error:
        tx.move(job_id, after, reason="planted")
    assert tx.state.jobs[job_id] is job
    assert f"job: stage {before.value} must not become {after.value}" in str(error.value)


@pytest.mark.parametrize(
    ("before", "after"), sorted(LEGAL), ids=[f"{a.value}-{b.value}" for a, b in sorted(LEGAL)]
)
def test_a_legal_stage_is_taken(before: Stage, after: Stage) -> None:
    tx, job_id = with_job(stage=before)
    assert tx.move(job_id, after).stage is after
    assert tx.state.jobs[job_id].stage is after


@pytest.mark.parametrize(
    ("before", "after"), ILLEGAL_STATES, ids=[f"{a.value}-{b.value}" for a, b in ILLEGAL_STATES]
)
def test_a_state_that_may_not_follow_is_refused(before: JobState, after: JobState) -> None:
    tx, job_id = with_job(state=before)
    with pytest.raises(InvalidTransition, match=f"state {before.value} must not become"):
        tx.update(job_id, state=after)
    with pytest.raises(InvalidTransition, match=f"state {before.value} must not become"):
        tx.move(job_id, Stage.ENDING, state=after)
    assert tx.state.jobs[job_id].state is before


def test_every_stage_has_a_pair_that_is_refused_and_a_way_out() -> None:
    assert {before for before, _ in ILLEGAL} == set(Stage)
    assert {before for before, after in LEGAL if before is not after} == set(Stage)


def at(stage: Stage) -> tuple[World, str]:
    """A world that stands still, and the name of a job in this stage."""
    if stage in (Stage.READY, Stage.SAVING):
        return mid_shrink(), "b" if stage is Stage.READY else "a"
    world = World().boot(4)
    if stage in (Stage.TRAINING, Stage.STOPPING, Stage.ENDING):
        world.running("a", 2, 2, 4)
        world.auto = False
    else:
        world.auto = False
        world.submit("a", 2, 4)
    if stage is Stage.STOPPING:
        world.plan(("a", 4))
        stopping(world, "a")
    elif stage is Stage.ENDING:
        cancel(world, "a")
    elif stage in (Stage.LAUNCHING, Stage.STARTING):
        world.plan(("a", 2))
    if stage is Stage.STARTING:
        world.settle_until("a", stage)
    assert world.job("a").stage is stage
    return world, "a"


def stopping(world: World, name: str) -> None:
    """Its SideCar answers that it stops, and its processes are not gone yet."""
    container, generation = world.container(name), world.job(name).generation
    container.sequence += 1
    outcome = Outcome(generation, OutcomeKind.STOPPING, 3)
    observed = dataclasses.replace(container.observed(), generation=generation, outcome=outcome)
    world.event(ev.SideCarReported(observed))


def start_fails(world: World, name: str) -> None:
    world.container(name).crashes = True
    world.converge(world.container(name))


def cancel(world: World, name: str) -> None:
    world.event(ev.CancelRequested(JobId(name), "ann"))


def plan(world: World, name: str) -> None:
    world.plan((name, 4))


def go_on(world: World, name: str) -> None:
    world.container("a").saves = True
    world.settle()


def wait(world: World, name: str) -> None:
    world.wait(3600.0)


SCENES: dict[tuple[Stage, Stage], Callable[[World, str], None]] = {
    (Stage.NONE, Stage.NONE): cancel,
    (Stage.NONE, Stage.LAUNCHING): plan,
    (Stage.LAUNCHING, Stage.READY): go_on,
    (Stage.READY, Stage.STARTING): go_on,
    (Stage.STARTING, Stage.TRAINING): go_on,
    (Stage.STARTING, Stage.STARTING): start_fails,
    (Stage.TRAINING, Stage.SAVING): plan,
    (Stage.TRAINING, Stage.STARTING): World.crash,
    (Stage.SAVING, Stage.STOPPING): go_on,
    (Stage.SAVING, Stage.TRAINING): World.save_deadline_passes,
    (Stage.STOPPING, Stage.STARTING): go_on,
    (Stage.ENDING, Stage.ENDING): wait,
    **{(stage, Stage.NONE): World.kill_container for stage in ANY},
    **{(stage, Stage.ENDING): cancel for stage in ANY_BUT_ENDING},
    **{(stage, Stage.LAUNCHING): World.suspend for stage in (Stage.READY, *WITH_GPUS)},
}
"""What makes a job in the first stage move to the second."""


def test_every_legal_pair_has_a_scene() -> None:
    assert set(SCENES) == LEGAL, "a pair that never happens is not legal"


@pytest.mark.parametrize(
    ("before", "after"), sorted(SCENES), ids=[f"{a.value}-{b.value}" for a, b in sorted(SCENES)]
)
def test_every_legal_pair_happens(
    before: Stage, after: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, name = at(before)
    moves = []
    move = Transaction.move

    def recorded(tx: Transaction, job_id: JobId, stage: Stage, **changes: Any) -> Job:
        moves.append((job_id, tx.state.jobs[job_id].stage, stage))
        return move(tx, job_id, stage, **changes)

    monkeypatch.setattr(Transaction, "move", recorded)
    SCENES[before, after](world, name)
    assert (JobId(name), before, after) in moves


def test_the_error_has_the_last_ten_history_entries_of_the_job() -> None:
    tx, job_id = with_job()
    for number in range(12):
        tx.note(tx.state.jobs[job_id], "planted", f"entry {number}.")
    tx.note(None, "planted", "an entry of the cluster")
    with pytest.raises(InvalidTransition) as error:
        tx.move(job_id, Stage.READY)
    text = str(error.value)
    assert text.count("planted (attempt 1, generation 2): entry") == RECENT_MAX == 10
    assert "entry 1." not in text
    assert text.index("entry 2.") < text.index("entry 11.")
    assert "cluster" not in text
    assert str(pickle.loads(pickle.dumps(error.value))) == text


def test_the_history_for_errors_is_neither_dumped_nor_kept_for_an_ended_job() -> None:
    world = World().boot(4)
    world.running("job", 2, 2)
    state = world.engine.state
    assert [entry.kind for entry in state.recent_history(JobId("job"))][-1] == "first-step"
    assert State.load(state.dump()).recent_history(JobId("job")) == ()
    world.finish("job")
    assert JobId("job") not in state.jobs
    assert state.recent_history(JobId("job")) == ()


def test_an_update_starts_from_the_value_of_the_state() -> None:
    tx, job_id = with_job()
    stale = tx.state.jobs[job_id]
    tx.update(job_id, failures=2)
    changed = tx.update(stale.id, reason="another")
    assert (changed.failures, changed.reason) == (2, "another")
    assert tx.state.jobs[job_id] is changed


def test_the_changes_name_every_field_that_may_change_with_its_type() -> None:
    fields = get_type_hints(Job)
    names = {field.name for field in dataclasses.fields(Job)} - CONSTANT
    assert get_type_hints(JobChanges) == {name: fields[name] for name in names}


def test_nothing_in_the_core_changes_a_job_but_a_transaction() -> None:
    """``put_job`` is called by the transaction, for a job that is submitted, and for a load."""
    callers: dict[str, int] = {}
    stages = set()
    for path in sorted(CORE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr == "put_job":
                callers[path.stem] = callers.get(path.stem, 0) + 1
            if isinstance(node, ast.keyword) and node.arg == "stage":
                stages.add(path.stem)
            if isinstance(node, ast.Constant) and node.value == "stage":
                stages.add(path.stem)
    assert callers == {"engine": 1, "state": 1, "transaction": 2}
    assert stages == {"transaction", "transitions"}, "another module changes a stage"


def with_gpu(state: GpuState) -> tuple[Transaction, Gpu]:
    """A transaction on the state of a cluster, and a GPU in this state with its owner."""
    world = World().boot(4)
    world.running("job", 2, 2)
    engine = world.engine.state
    used = next(gpu for gpu in engine.gpus.values() if gpu.state is GpuState.IN_USE)
    owned = state in (GpuState.RESERVED, GpuState.IN_USE, GpuState.RELEASING)
    gpu = dataclasses.replace(used, state=state, owner=used.owner if owned else None)
    engine.put_gpu(gpu)
    return Transaction(engine, world.now_s, keeps_history=True), gpu


GPU_CALLS: dict[GpuState, Callable[[Transaction, Gpu], None]] = {
    GpuState.RESERVED: lambda tx, gpu: gpu_ledger.reserve(tx, (gpu.id,), JobId("other")),
    GpuState.IN_USE: lambda tx, gpu: gpu_ledger.use(tx, (gpu.id,), JobId("job")),
    GpuState.RELEASING: lambda tx, gpu: gpu_ledger.release(tx, JobId("job"), (gpu.id,), 1),
    GpuState.QUARANTINED: lambda tx, gpu: gpu_ledger.quarantine(tx, gpu, "planted"),
}
"""How the coordinator moves a GPU to a state; it may be lost from any, and become idle from any."""
ILLEGAL_OF_GPU = [pair for pair in product(GpuState, GPU_CALLS) if pair not in GPU_LEGAL]


@pytest.mark.parametrize(
    ("before", "after"), ILLEGAL_OF_GPU, ids=[f"{a.value}-{b.value}" for a, b in ILLEGAL_OF_GPU]
)
def test_a_gpu_state_that_may_not_follow_is_refused_and_changes_nothing(
    before: GpuState, after: GpuState
) -> None:
    tx, gpu = with_gpu(before)
    with pytest.raises(InvalidTransition) as error:
        GPU_CALLS[after](tx, gpu)
    assert tx.state.gpus[gpu.id] is gpu
    assert f"{gpu.id}: state {before.value} must not become {after.value}" in str(error.value)
    assert ("trains on 2 GPUs" in str(error.value)) == (gpu.owner is not None)


def test_a_gpu_that_a_job_uses_reaches_no_other_job_without_a_release() -> None:
    assert [after for after in GpuState if (GpuState.IN_USE, after) in GPU_LEGAL] == [
        GpuState.IDLE,
        GpuState.RELEASING,
        GpuState.LOST,
    ]
    cleaned = [c for c in GPU_CHANGES if GpuState.IN_USE in c.before and c.after is GpuState.IDLE]
    assert [change.event for change in cleaned] == [
        "its host was cleaned (rebooted, replaced, an operator's word)"
    ]


def test_only_the_gpu_ledger_changes_the_state_of_a_gpu() -> None:
    for path in sorted(CORE.rglob("*.py")):
        if path.name == "gpu_ledger.py":
            continue
        for call in [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]:
            states = [ast.unparse(k.value) for k in call.keywords if k.arg == "state"]
            assert not any(state.startswith("GpuState.") for state in states), f"{path}: {states}"
