"""The usage of random logs, with crashes and kills: every GPU-second is there, once."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.limits import GAP_S
from reshape_controller.core.model import GpuState, Job, Mechanism, Stage
from reshape_controller.core.plan import Plan
from reshape_controller.core.service import served_until
from reshape_controller.core.state import State
from reshape_controller.http.timeline import Recorder
from reshape_controller.http.usage import Use
from reshape_gpu.usage import By
from reshape_sidecar import codec
from tests.property.test_handover import STEPS, Chaos
from tests.support.gate import examples
from tests.support.world import World

FIELDS = {use: f"{use.value}_gpu_s" for use in Use}
WITHOUT_JOB = {
    GpuState.IDLE: Use.FREE,
    GpuState.QUARANTINED: Use.QUARANTINED,
    GpuState.LOST: Use.SILENT,
}
IN_USE = {Stage.TRAINING: Use.TRAINED, Stage.STARTING: Use.STARTING}


def uses(state: State) -> dict[tuple[str, Use], int]:
    """Number of GPUs by owner and use, straight from the state."""
    found: dict[tuple[str, Use], int] = defaultdict(int)
    for gpu in state.gpus.values():
        use = WITHOUT_JOB.get(gpu.state, Use.SAVING)
        if gpu.state is GpuState.RESERVED:
            use = Use.WAITING
        elif gpu.state is GpuState.IN_USE and gpu.owner in state.jobs:
            use = IN_USE.get(state.jobs[gpu.owner].stage, Use.SAVING)
        found[gpu.owner or "", use] += 1
    return found


def trained(job: Job, now_s: float, state: State) -> float:
    """The attained service of a job in training."""
    account = served_until(job, now_s, state.gpus, state.hosts)
    return sum(each.gpu_s for each in account if each.phase == "training")


class Reading:
    """A log read by the recorder, beside a sum that looks at each GPU after each entry."""

    def __init__(self, log: list[tuple[str, ...]], snapshot: State | None = None) -> None:
        """``snapshot``: where the log begins, if its oldest part is gone."""
        self.recorder, self.engine = Recorder(), Engine(snapshot)
        self.recorder.begin(self.engine, 0)
        self.moments: list[tuple[float, dict[tuple[str, Use], int]]] = []
        self.trained: dict[str, float] = defaultdict(float)
        """Attained service in training of the jobs that have ended, by id: these runs use an id
        again once its job has ended."""
        for seq, (what, at, text, *_) in enumerate(log, 1):
            if what == "event":
                event = codec.from_value(ev.Event, json.loads(text))
                if isinstance(event, ev.ControllerStarted) and float(at) - self._now_s > GAP_S:
                    self._pass_gap(float(at))
                self.engine.step(event, float(at))
            else:
                self.engine.apply(codec.loads(Plan, text), float(at))
            for job in self.engine.state.ended.values():
                self.trained[job.id] += trained(job, float(at), self.engine.state)
            self.recorder.record(self.engine, seq, float(at))
            self.moments.append((float(at), uses(self.engine.state)))

    @property
    def _now_s(self) -> float:
        return self.recorder.now_s

    def _pass_gap(self, to_s: float) -> None:
        """No controller ran meanwhile: whatever a GPU did, nobody is charged for it."""
        self.recorder.usage.pass_gap(self._now_s, to_s)
        self.moments.append((self._now_s, {("", Use.SILENT): len(self.engine.state.gpus)}))

    def by_job(self, from_s: float, to_s: float) -> dict[tuple[str, Use], float]:
        return self.sums(By.JOB, from_s, to_s)

    def sums(self, by: By, from_s: float, to_s: float) -> dict[tuple[str, Use], float]:
        found = self.recorder.usage.usage(by, from_s, to_s)
        sums = {(row.name, use): getattr(row, FIELDS[use]) for row in found.rows for use in Use}
        assert sum(sums.values()) == pytest.approx(found.all_gpu_s, rel=1e-9, abs=1e-6)
        return {key: gpu_s for key, gpu_s in sums.items() if gpu_s > 1e-9}

    def expected(self, from_s: float, to_s: float) -> dict[tuple[str, Use], float]:
        found: dict[tuple[str, Use], float] = defaultdict(float)
        ends = [at_s for at_s, _ in self.moments[1:]] + [float("inf")]
        for (begin_s, counts), end_s in zip(self.moments, ends, strict=True):
            seconds = min(end_s, to_s) - max(begin_s, from_s)
            for key, gpus in counts.items():
                found[key] += gpus * max(0.0, seconds)
        return {key: gpu_s for key, gpu_s in found.items() if gpu_s > 1e-9}


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    mechanism=st.sampled_from([Mechanism.SIDECAR, Mechanism.TERMINATE]),
    steps=STEPS,
    cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_usage_of_any_stretch_is_what_each_gpu_did(
    mechanism: Mechanism, steps: list[tuple[str, str, int]], cuts: tuple[float, float]
) -> None:
    chaos = Chaos(mechanism)
    chaos.begin_hand_over()
    for step in steps:
        chaos.act(*step)
    reading, end_s = Reading(chaos.world.log), chaos.world.now_s + 5.0
    assert reading.by_job(0.0, end_s) == pytest.approx(reading.expected(0.0, end_s))
    from_s, to_s = sorted(reading.moments[0][0] + cut * end_s for cut in cuts)
    assert reading.by_job(from_s, to_s) == pytest.approx(reading.expected(from_s, to_s))


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    mechanism=st.sampled_from([Mechanism.SIDECAR, Mechanism.TERMINATE]),
    steps=STEPS,
    cut=st.floats(0, 1),
    stretch=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
@example(mechanism=Mechanism.SIDECAR, steps=[], cut=1.0, stretch=(0.0, 1.0))
@example(  # the job has ended before the snapshot, and its GPUs are not free yet
    mechanism=Mechanism.SIDECAR,
    steps=[*[("submit", "a", 0)] * 9, ("finish", "a", 0), ("converge", "a", 0)],
    cut=1.0,
    stretch=(0.0, 0.0),
)
def test_a_log_whose_oldest_part_is_gone_counts_from_its_snapshot_on_and_says_so(
    mechanism: Mechanism,
    steps: list[tuple[str, str, int]],
    cut: float,
    stretch: tuple[float, float],
) -> None:
    chaos = Chaos(mechanism)
    chaos.begin_hand_over()
    for step in steps:
        chaos.act(*step)
    log, end_s = chaos.world.log, chaos.world.now_s + 5.0
    first = 2 + round(cut * (len(log) - 2))
    snapshot = State.load(Reading(log[:first]).engine.state.dump())
    since_s = snapshot.now_s
    whole, rest = Reading(log), Reading(log[first:], snapshot)
    assert rest.recorder.usage.usage(By.JOB, 0.0, end_s).from_s == since_s
    from_s, to_s = sorted(since_s + part * (end_s - since_s) for part in stretch)
    for by in By:
        for begin_s in (since_s, from_s):
            expected = whole.sums(by, begin_s, to_s)
            assert rest.sums(by, begin_s, to_s) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
@example(
    steps=[
        *13 * [("submit", "a", 0)],
        ("wait", "a", 13),
        ("plan", "a", 4),
        ("converge", "a", 0),
        ("cancel", "a", 0),
        ("submit", "a", 0),
    ]
)
def test_the_usage_of_training_is_the_attained_service(
    steps: list[tuple[str, str, int]],
) -> None:
    chaos = Chaos(Mechanism.SIDECAR)
    chaos.begin_hand_over()
    for step in steps:
        chaos.act(*step)
    reading, state = Reading(chaos.world.log), chaos.world.engine.state
    now_s = state.now_s
    found = reading.by_job(0.0, now_s)
    served = defaultdict(float, reading.trained)
    for job in state.jobs.values():
        served[job.id] += trained(job, now_s, state)
    for job_id, gpu_s in served.items():
        assert found.get((job_id, Use.TRAINED), 0.0) == pytest.approx(gpu_s, abs=1e-6)
    assert {job_id for job_id, use in found if use is Use.TRAINED} <= served.keys()


def test_two_hundred_jobs_with_kills_are_accounted_for_to_the_second() -> None:
    """The sum by user, type and host is the number of GPUs times the time."""
    dice, world = random.Random(36), World().boot(8, hosts=2)
    for number in range(200):
        name = f"job-{number}"
        world.submit(name, 1, 2, user=f"user-{number % 7}")
        world.plan((name, dice.choice((1, 2))), host=f"host-{number % 2}")
        world.wait(dice.uniform(1, 500))
        match dice.choice(("finish", "crash", "kill", "restart", "finish")):
            case "finish":
                world.finish(name)
            case "crash":
                world.crash(name)
            case "kill":
                world.kill_container(name)
            case "restart":
                epoch = world.engine.state.epoch + 1
                world.event(ev.ControllerStarted(epoch, "test", Mechanism.SIDECAR))
        if world.job(name).stage is not Stage.NONE or name in world.engine.state.jobs:
            world.event(ev.CancelRequested(world.job(name).id, "op"))
        world.settle()
    book = Reading(world.log).recorder.usage
    end_s = world.now_s + 1.0
    wall_s = end_s - float(world.log[0][1])
    for by in By:
        found = book.usage(by, 0.0, end_s)
        summed = sum(getattr(row, name) for row in found.rows for name in FIELDS.values())
        assert summed == pytest.approx(16 * wall_s, rel=1e-3)
        assert summed == pytest.approx(found.all_gpu_s)
    users = {row.name for row in book.usage(By.USER, 0.0, end_s).rows}
    assert {f"user-{number}" for number in range(7)} <= users
