"""Random reports of SideCars that lie: whatever the hub lets through, the engine takes.

``python -m tests.property.random_reports SEEDS`` tries many (``seeds``). The fields of a report are
drawn by their types, and the hub's own check decides which of them set their attempt apart.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import random
import sys
import types
import typing
from dataclasses import replace
from typing import Any

from reshape_controller.core import events as ev
from reshape_controller.core.model import Length, LengthUnit, Mechanism
from reshape_controller.core.record import LogRecord
from reshape_controller.core.state import State
from reshape_controller.fits.convergence import Refits
from reshape_controller.live.projection import changes_of
from reshape_controller.live.sidecar_hub import Contradiction, check
from reshape_controller.policies import BUILT_IN, make_policy
from reshape_controller.scheduling.planner import Planner
from reshape_profiles.schema import Profile, SpeedPoint
from reshape_sidecar import codec
from reshape_sidecar.wire import Desired, Observed, Phase
from tests.property import seeds
from tests.support.container import Container
from tests.support.world import World

STEPS = 200
JOBS_MAX = 6
WHOLE = (0, 0, 1, 1, 2, 3, 5, 50, 1000, 10**6, 10**12, 10**15)
REAL = (0.0, 5e-324, 1e-9, 0.1, 0.5, 1.0, 2.5, 60.0, 3600.0, 86_400.0, 1.0000001)
WILD = (1e308, -1e308, -0.0, -1.0)
TEXTS = ("", "x", "GPU-0-0", "GPU-0-1", "loss", "accuracy", "exact", "steps-only", "a\nb")
SIZES = ((1,), (1, 2), (2, 4), (1, 2, 4, 8), (8,), (3, 6))
LENGTHS = (
    None,
    Length(LengthUnit.STEPS, 1000.0),
    Length(LengthUnit.EPOCHS, 3.0),
    Length(LengthUnit.TARGET_ACCURACY, 0.9),
)
KIND = Profile("kind", speed=(SpeedPoint("V100", 1, 4.0), SpeedPoint("V100", 2, 2.0)))
GIVEN = ("job", "attempt", "worker", "version", "sequence", "epoch", "generation")
_hints = functools.cache(typing.get_type_hints)


def value(rng: random.Random, kind: Any, name: str) -> Any:
    """A value of a type that a report may have."""
    parts = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Union | types.UnionType:
            inner = next(each for each in parts if each is not type(None))
            return None if rng.random() < 0.3 else value(rng, inner, name)
        case origin if origin is tuple and parts[-1] is Ellipsis:
            count = rng.choice((0, 1, 1, 2, 4))
            return tuple(value(rng, parts[0], name) for _ in range(count))
        case origin if origin is tuple:
            return tuple(value(rng, each, name) for each in parts)
    if issubclass(kind, enum.Enum):
        return rng.choice(list(kind))
    if dataclasses.is_dataclass(kind):
        made: Any = kind
        hints = _hints(made)
        return made(**{part: value(rng, hints[part], part) for part in hints})
    if kind is float:
        return rng.choice(REAL if rng.random() < 0.8 else WILD)
    drawn: dict[Any, tuple[Any, ...]] = {bool: (True, False), int: WHOLE, str: TEXTS}
    return rng.choice(drawn[kind])


def lie(rng: random.Random, seen: Observed, desired: Desired) -> Observed:
    """A report of which some fields are drawn."""
    hints = {name: kind for name, kind in _hints(Observed).items() if name not in GIVEN}
    names = rng.sample(list(hints), rng.choice((1, 1, 2, 4, 8, 16)))
    drawn = {name: value(rng, hints[name], name) for name in names}
    newest = desired.generation
    generation = newest if rng.random() < 0.9 else rng.randint(0, newest)
    if "stopped_generation" in drawn:
        drawn["stopped_generation"] = rng.choice((0, generation))
    if drawn.get("outcome") is not None:
        drawn["outcome"] = replace(drawn["outcome"], generation=rng.choice((0, generation)))
    if rng.random() < 0.4:
        drawn["phase"] = rng.choice((Phase.RUNNING, Phase.RUNNING, Phase.SAVING, Phase.STARTING))
    if rng.random() < 0.5:
        progress = drawn.get("progress", seen.progress)
        seconds = rng.choice((None, 1e-6, 0.1, 80_000.0))
        step = rng.randrange(100_000)
        drawn["progress"] = replace(progress, step=step, seconds_per_step=seconds)
    return replace(seen, generation=generation, epoch=desired.epoch, **drawn)


class Liars:
    """A cluster under a policy, on which each SideCar may say anything at any time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.submitted = rng, 0
        self.world = World(mechanism=rng.choice(list(Mechanism))).boot(8, hosts=rng.choice((1, 2)))
        self.planner = Planner(make_policy(rng.choice(list(BUILT_IN))))
        self.refits = Refits()
        if rng.random() < 0.7:
            self.world.event(ev.ProfileRecorded(KIND))

    def run(self) -> int:
        """Let things happen; return the number of reports that were taken."""
        taken = 0
        for _ in range(STEPS):
            taken += self.act()
            self.world.now_s += self.rng.choice((0.0, 0.0, 0.1, 1.0, 5.0))
            for fitted in self.refits.due(self.world.engine.state):
                self.world.event(fitted)
            self.plan()
            self.check()
        parts = self.world.engine.state.dump()
        assert State.load(parts).dump() == parts
        return taken

    def act(self) -> bool:
        """Do one thing; return whether it was a report that was taken."""
        rng, world, jobs = self.rng, self.world, list(self.world.engine.state.jobs.values())
        chance = rng.random()
        if chance < 0.1 and len(jobs) < JOBS_MAX:
            self.submit()
        elif chance < 0.16 and jobs:
            job = rng.choice(jobs).id
            asked = (ev.CancelRequested(job, "u"), ev.HaltRequested(job, "u"))
            pins = (ev.ResumeRequested(job, "u"), ev.PinRequested(job, rng.choice((None, 1, 2))))
            world.event(rng.choice((*asked, *pins)))
        elif chance < 0.2:
            world.wait(rng.choice((0.1, 1.0, 10.0, 70.0, 200.0, 2000.0)))
        elif chance < 0.25 and jobs:
            ended = rng.choice(jobs)
            if (ended.id, ended.attempt) in world.containers:
                world.kill_container(ended.id)
        elif chance < 0.3 and jobs:
            silent = rng.choice(jobs)
            world.event(ev.SideCarFellSilent(silent.id, silent.attempt))
        else:
            speaking = [world.containers.get((job.id, job.attempt)) for job in jobs]
            found = [each for each in speaking if each is not None]
            return bool(found) and self.say(rng.choice(found))
        return False

    def submit(self) -> None:
        """Submit a job that any policy may reshape."""
        rng = self.rng
        self.submitted += 1
        self.world.submit(
            f"job-{self.submitted}",
            *rng.choice(SIZES),
            length=rng.choice(LENGTHS),
            job_type=rng.choice((None, "kind", "array-1")),
            user=rng.choice(("ann", "eve")),
            priority=rng.choice((0, 0, 1)),
            max_wait_s=rng.choice((None, 1.0)),
            may_restart=rng.random() < 0.3,
            retries=rng.choice((0, 1, 3)),
            progress_timeout_s=rng.choice((None, 5.0)),
            max_run_s=rng.choice((None, 20.0)),
        )

    def say(self, container: Container) -> bool:
        """Have a SideCar say something; return whether it was taken."""
        desired = self.world.engine.desired(container.job)
        if desired is None:
            return False
        container.sequence += 1
        report = lie(self.rng, container.observed(), desired)
        report = codec.loads(Observed, codec.dumps(report))
        try:
            check(desired, report, None)
        except Contradiction as error:
            told = ev.SideCarContradicted(container.job, container.attempt, str(error))
            self.world.event(told)
            return False
        self.world.event(ev.SideCarReported(report))
        return True

    def plan(self) -> None:
        """Have the policy decide until it wants nothing more; it never fails."""
        engine = self.world.engine
        while engine.wants_plan():
            done = self.planner.decide(engine, self.world.now_s)
            assert done.failure is None, done.failure.text
            self.world._done("plan", codec.dumps(done.plan), done.step.commands)

    def check(self) -> None:
        """Every row that people read can be written (``World.check`` looks at the GPUs)."""
        world = self.world
        record = LogRecord(1, 1, "", "", world.now_s, (), (), (), "")
        changes = changes_of(world.engine, record, tuple(world.history[-20:]))
        codec.dumps((*(row.job for row in changes.jobs), *changes.history))
        codec.dumps(tuple(row.learned for row in changes.profiles))


def run(seed: int) -> int:
    """Try one seed; return the number of reports that were taken."""
    return Liars(random.Random(seed)).run()


if __name__ == "__main__":
    sys.exit(seeds.main("tests.property.random_reports", run, "reports"))
