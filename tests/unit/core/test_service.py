"""The attained service of a job equals what is integrated from outside, at every moment."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import LOCAL
from reshape_controller.core.model import JobId, Service
from reshape_controller.core.service import served_until
from reshape_controller.core.state import State
from tests.property.random_plans import RandomPlans
from tests.support.world import World

Account = dict[tuple[JobId, str, str], float]


@dataclass
class Integral:
    """Integrates the GPUs of each job over time, from the state between two events."""

    at_s: float = 0.0
    seconds: Account = field(default_factory=dict)

    def add(self, state: State, now_s: float) -> None:
        """Add the time since the last call, in which the state was as now."""
        for job in state.jobs.values():
            for gpu in job.gpus:
                kind = state.hosts[state.gpus[gpu].host].gpu_type
                key = (job.id, kind, job.stage.value)
                self.seconds[key] = self.seconds.get(key, 0.0) + now_s - self.at_s
        self.at_s = now_s


def account(state: State, now_s: float) -> Account:
    return {
        (job.id, each.gpu_type, each.phase): each.gpu_s
        for job in state.jobs.values()
        for each in served_until(job, now_s, state.gpus, state.hosts)
    }


class Integrated(World):
    """A world in which each event and plan adds to the integral first."""

    integral = Integral()

    def event(self, event: ev.Event) -> None:
        self.integral.add(self.engine.state, self.now_s)
        super().event(event)


def test_the_account_of_each_live_job_equals_the_integral() -> None:
    assert sum(compared(seed) for seed in range(40)) > 1000


def compared(seed: int) -> int:
    """Compare after each event of a random run. Returns the number of figures above 0."""
    chaos = RandomPlans(random.Random(seed))
    world = Integrated(mechanism=chaos.world.mechanism)
    world.integral = Integral()
    world.boot(gpus=4, hosts=2)
    world.auto = False
    chaos.world = world
    chaos.kills = "never"
    submitted: Counter[JobId] = Counter()
    rng, figures = chaos.rng, 0
    for _ in range(80):
        job = rng.choice(("a", "b", "c", "d"))
        what = rng.choice(("submit", "plan", "plan", "converge", "converge", "verify", "wait"))
        if what == "submit" and submitted[JobId(job)]:
            continue  # one job of each id, so that ids tell them apart
        submitted[JobId(job)] += what == "submit"
        chaos.act(what, job, rng.randint(0, 29))
        world.integral.add(world.engine.state, world.now_s)
        for key, gpu_s in account(world.engine.state, world.now_s).items():
            assert gpu_s == pytest.approx(world.integral.seconds.get(key, 0.0), abs=1e-6), key
            figures += gpu_s > 0.0
    return figures


def test_the_account_names_gpu_type_and_phase_and_survives_a_pause() -> None:
    world = World().boot(4)
    world.running("a", 2, 2)
    world.wait(100.0)
    world.event(ev.HaltRequested(JobId("a")))
    a = world.job("a")
    assert [(each.gpu_type, each.phase, each.gpu_s) for each in a.served] == [
        ("V100", "training", 200.0)
    ]
    assert a.serves_since_s is None
    world.wait(50.0)
    world.event(ev.ResumeRequested(JobId("a")))
    world.plan(("a", 2))
    world.wait(10.0)
    view = next(job for job in world.engine.snapshot().running if job.id == "a")
    assert view.served_s(world.now_s) == 220.0


def test_another_type_of_its_gpus_begins_another_line_of_the_account() -> None:
    world = World().boot(2)
    world.running("a", 2, 2)
    world.wait(100.0)
    host = next(iter(world.engine.state.hosts.values()))
    world.event(ev.HostAdded(host.id, "A100", host.gpus))
    world.wait(10.0)
    world.finish("a")
    assert {each.gpu_type: each.gpu_s for each in world.job("a").served} == {
        "A100": 20.0,
        "V100": 200.0,
    }


def test_a_log_of_an_earlier_release_has_no_account() -> None:
    world = World(limits=replace(LOCAL, service_rules=0)).boot(2)
    world.running("a", 2, 2)
    world.wait(10.0)
    world.finish("a")
    assert (world.job("a").served, world.job("a").serves_since_s) == ((), None)


@pytest.mark.parametrize(
    ("rules", "gap_s", "charged_s"),
    [(2, 864_000.0, 0.0), (2, 50.0, 50.0), (1, 864_000.0, 864_000.0)],
)
def test_a_long_gap_without_a_controller_is_charged_to_nobody(
    rules: int, gap_s: float, charged_s: float
) -> None:
    world = World(limits=replace(LOCAL, service_rules=rules)).boot(2)
    world.running("a", 2, 2)
    world.now_s += 10.0
    world.train("a", 5)
    before_s = sum(each.gpu_s for each in served(world))
    world.now_s += gap_s
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    world.now_s += 10.0
    total_s = sum(each.gpu_s for each in served(world))
    assert total_s - before_s == pytest.approx(2 * (charged_s + 10.0))


def served(world: World) -> tuple[Service, ...]:
    state = world.engine.state
    return served_until(world.job("a"), world.now_s, state.gpus, state.hosts)
