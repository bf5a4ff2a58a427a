"""The figures of random logs, with crashes and kills: each event is counted once."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import Job, Mechanism
from reshape_controller.core.plan import Plan
from reshape_controller.core.record import LogRecord
from reshape_controller.http.figures import LogFigures
from reshape_sidecar import codec
from tests.property.test_handover import STEPS, Chaos
from tests.support.gate import examples
from tests.support.world import World

ASKED = ("shrink-asked", "grow-asked", "relaunch-asked")


class Reading:
    """A log read by the figures, beside sums over the jobs themselves."""

    def __init__(self, log: list[tuple[str, ...]]) -> None:
        self.figures, self.engine = LogFigures(), Engine()
        self.kinds: Counter[str] = Counter()
        self.ended: list[Job] = []
        for what, at, text, *_ in log:
            plans: tuple[Plan, ...] = ()
            if what == "event":
                event = codec.from_value(ev.Event, json.loads(text))
                step = self.engine.step(event, float(at))
            else:
                plans = (codec.loads(Plan, text),)
                step = self.engine.apply(plans[0], float(at))
            self.kinds.update(entry.kind for entry in step.history)
            record = cast(LogRecord, SimpleNamespace(plans=plans, at_s=float(at)))
            self.figures.take(self.engine.state, record, step.history)
            self.ended += self.engine.state.ended.values()
            self.engine.state.ended.clear()

    def total(self, name: str) -> float:
        samples = (
            sample for family in self.figures.registry.collect() for sample in family.samples
        )
        return sum(sample.value for sample in samples if sample.name == name)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mechanism=st.sampled_from([Mechanism.SIDECAR, Mechanism.TERMINATE]), steps=STEPS)
def test_the_figures_of_any_log_are_the_sums_over_its_jobs(
    mechanism: Mechanism, steps: list[tuple[str, str, int]]
) -> None:
    chaos = Chaos(mechanism)
    chaos.begin_hand_over()
    for step in steps:
        chaos.act(*step)
    found = Reading(chaos.world.log)
    jobs = [*found.ended, *found.engine.state.jobs.values()]
    assert found.total("reshape_steps_lost_total") == sum(job.steps_lost for job in jobs)
    assert found.total("reshape_jobs_submitted_total") == found.kinds["submitted"] == len(jobs)
    ends = sum(found.kinds[kind] for kind in ("completed", "failed", "cancelled"))
    assert found.total("reshape_job_completion_seconds_count") == ends
    asked = sum(found.kinds[kind] for kind in ASKED)
    outcomes = found.total("reshape_reshapes_total")
    assert outcomes == found.total("reshape_reshape_seconds_count")
    assert outcomes + len(found.figures.under_way) == asked


def test_steps_that_were_lost_are_counted_once_whatever_follows() -> None:
    world = World().boot(4)
    for name in ("a", "b"):
        world.running(name, 2, 2, retries=5)
    for _ in range(3):
        for name in ("a", "b"):
            world.train(name, 30)
            world.crash(name)
            world.settle()
    world.event(ev.CancelRequested(world.job("a").id, "op"))
    world.settle()
    found = Reading(world.log)
    lost = [job.steps_lost for job in (*found.ended, *found.engine.state.jobs.values())]
    assert min(lost) > 30
    assert found.total("reshape_steps_lost_total") == sum(lost)
    assert found.total("reshape_failures_total") == 6
