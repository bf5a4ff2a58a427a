"""Random plans with every kind of receiver, among random failures, with a controller that is killed
at random, or at every append.

``python -m tests.property.random_plans SEEDS`` tries many (``seeds``).
"""

from __future__ import annotations

import functools
import random
import sys

from reshape_controller.core import events as ev
from reshape_controller.core import state as states
from reshape_controller.core.engine import Engine
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import (
    ChangeKind,
    HostId,
    JobId,
    JobState,
    Mechanism,
    Stage,
)
from reshape_controller.core.plan import Note, Plan, Preemption, Target
from reshape_controller.core.state import State
from reshape_controller.core.states import PreemptionReason
from reshape_sidecar.wire import OnSaveTimeout
from tests.property import seeds
from tests.property.test_handover import ACTIONS, HOSTS, JOBS, SIZES, Chaos, values_of

STEPS_MAX = 90
TRIES = 8
"""Plans that are tried at each decision, until one is accepted."""
PLAN_SHARE = 0.3


class RandomPlans(Chaos):
    """Chaos whose plans name any receiver, any donors, and any sizes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        mechanism = rng.choice((Mechanism.SIDECAR, Mechanism.SIDECAR, Mechanism.TERMINATE))
        super().__init__(mechanism, rng.choice(((), (), ("a",), ("b", "c"))))
        self.kills = rng.choice(("never", "at random", "at every append"))
        self.accepted = 0
        self.asked: dict[tuple[JobId, int], None] = {}
        """Requests to leave for another job that were examined, by job and generation."""
        self.notes: dict[JobId, dict[str, str]] = {}
        """What the accepted plans wrote about the live jobs."""

    def plan(self, job: str, number: int) -> None:
        state = self.world.engine.state
        if state.observing:
            return
        for _ in range(TRIES):
            before = values_of(state)
            plan = self._random_plan()
            try:
                self.world.apply(plan)
            except PlanRejected:
                assert values_of(state) == before
            else:
                self.accepted += 1
                for note in plan.notes:
                    self.notes.setdefault(note.job, {})[note.name] = note.text
                return

    def submit(self, job: str, number: int) -> None:
        """Submit a job of a random priority; most may be preempted at once."""
        if JobId(job) in self.world.engine.state.jobs:
            return
        self.notes.pop(JobId(job), None)  # a job of this name may have ended at a kill just now
        self.world.verified = [each for each in self.world.verified if each.job != job]
        self.delayed = [each for each in self.delayed if each.job != job]
        self.world.submit(
            job,
            *SIZES[number % 5],
            priority=number % 3,
            min_runtime_s=(0.0, 0.0, 100.0)[self.rng.randint(0, 2)],
            may_restart=number % 7 == 0,
            on_save_timeout=OnSaveTimeout.KILL if number % 4 == 0 else OnSaveTimeout.REFUSE,
        )

    def check_requests(self) -> None:
        """As of every plan; each job has its own notes; and no program that loses steps is
        preempted."""
        super().check_requests()
        jobs = self.world.engine.state.jobs
        for ended in self.notes.keys() - jobs.keys():
            del self.notes[ended]
        for job in jobs.values():
            wrote = {name: text for name, text in self.notes.get(job.id, {}).items() if text}
            assert dict(job.notes) == wrote, job
        for job in self.world.engine.state.jobs.values():
            change = job.change
            if change is None or change.for_job is None or job.stage is not Stage.SAVING:
                continue
            if change.kind is ChangeKind.LEAVE and (job.id, job.generation) not in self.asked:
                self.asked[job.id, job.generation] = None
                assert not job.program.loses, job

    def _random_plan(self) -> Plan:
        rng, host = self.rng, HostId(self.rng.choice(HOSTS))
        state = self.world.engine.state
        trains = [j.id for j in state.jobs.values() if j.stage is Stage.TRAINING and j.host == host]
        names: list[JobId] = rng.sample(trains, rng.randint(0, len(trains)))
        targets = [Target(job, rng.choice((0, 0, 1, 1, 2)), host) for job in names]
        if rng.random() < 0.8:
            receiver = JobId(rng.choice(JOBS))
            if receiver not in names:
                targets.insert(0, Target(receiver, rng.choice((1, 2, 4, 4)), host))
        about = targets[0].job if targets else None
        reason = rng.choice((None, *PreemptionReason, PreemptionReason.PRIORITY))
        why = Preemption(reason) if reason is not None else None
        return Plan(tuple(targets), "random", about=about, preemption=why, notes=self._notes())

    def _notes(self) -> tuple[Note, ...]:
        """Some notes, right and wrong ones."""
        rng = self.rng
        if rng.random() < 0.7:
            return ()
        jobs = [*self.world.engine.state.jobs, *rng.sample(JOBS, rng.random() < 0.1)]
        texts = ("", "1", "2", "x" * (200 + (rng.random() < 0.1)))
        return tuple(
            Note(JobId(rng.choice(jobs)), rng.choice("mn"), rng.choice(texts))
            for _ in range(rng.randint(1, 3) if jobs else 0)
        )

    def kill_controller(self) -> None:
        """kill -9 of the controller; the next reads the state of the log, and all answer it."""
        world = self.world
        world.held.clear()
        world.effects = True
        world.engine = Engine(State.load(world.engine.state.dump()))
        self.epoch += 1
        world.event(ev.ControllerStarted(self.epoch, "test", world.mechanism, world.limits))
        for command in world.engine.outstanding():
            world.carry_out(command)
        self.lost_containers()
        for container in list(world.containers.values()):
            if (container.job, container.attempt) not in world.containers or container.mute:
                continue
            if container.reachable:
                world.report(container)
            else:
                world.event(ev.SideCarFellSilent(container.job, container.attempt))

    def run(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(20, STEPS_MAX)):
            what = "plan" if rng.random() < PLAN_SHARE else rng.choice(ACTIONS)
            if self.kills == "at every append" and rng.random() < 0.5:
                self.world.effects = False  # the kill comes before the effects
            self.act(what, rng.choice(JOBS), rng.randint(0, 29))
            if self.kills == "at every append" or (
                self.kills == "at random" and rng.random() < 0.1
            ):
                self.kill_controller()
                self.world.check()
        self.heal()
        self.check_end()

    def check_end(self) -> None:
        """Everything is at rest: each job trains or waits with a reason, and no GPU is reserved."""
        state = self.world.engine.state
        for job in state.jobs.values():
            assert job.stage in (Stage.NONE, Stage.TRAINING), job
            assert job.hand_over is None or job.stage is Stage.NONE, job
            if job.stage is Stage.NONE:
                assert job.state in (JobState.SUBMITTED, JobState.HALTED), job
                assert job.reason, job
        owned = {gpu for job in state.jobs.values() for gpu in job.gpus}
        for gpu in state.gpus.values():
            assert (gpu.id in owned) == (gpu.state.value == "in use"), gpu
            assert gpu.state.value in ("idle", "in use", "quarantined"), gpu
        if self.kills == "never":
            assert self.world.replay() == self.world.log


def run(seed: int) -> int:
    """Try one seed. Returns the number of accepted plans."""
    chaos = RandomPlans(random.Random(seed))
    chaos.run()
    return chaos.accepted


def prepare() -> None:
    """Prepare a process that tries many seeds: rows of a dump that did not change since the last
    kill are decoded once, as the values are frozen."""
    states.row_of = functools.lru_cache(maxsize=5_000)(states.row_of)


if __name__ == "__main__":
    sys.exit(seeds.main("tests.property.random_plans", run, "accepted plans", prepare))
