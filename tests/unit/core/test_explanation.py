"""Decisions told to somebody who never saw the code, and to programs."""

from __future__ import annotations

import json

import pytest

from reshape_controller.core.explanation import costs_of, explain_json, explain_text
from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.phrases import duration
from reshape_controller.core.plan import Note, Option, Plan, Target
from reshape_controller.core.record import HistoryEntry, PhaseCost
from reshape_controller.policies import make_policy
from reshape_controller.scheduling.planner import Planner
from reshape_sidecar.wire import StartKind
from tests.support.clusters import PAPER, Cluster
from tests.support.world import World

NAMES = {JobId("job1"): "resnet", JobId("job2"): "vgg"}


def decision() -> Plan:
    cluster = Cluster().runs("job1", 4, speed=PAPER, left=800).waits("job2", speed=PAPER)
    return make_policy("adaptive").decide(cluster.snapshot())


def test_a_decision_reads_as_what_was_done_why_and_what_else_was_weighed() -> None:
    assert explain_text(decision(), at="12:00:00", policy="adaptive", names=NAMES) == (
        "12:00:00  job2 starts on 2 GPUs of a; job1 goes from 4 to 2. "
        "All jobs end in 20 min 0 s instead of 45 min 20 s if it waited (predicted).\n"
        "  decided by policy adaptive, reason shrinks-for-newcomer\n"
        "  2 options were compared:\n"
        "  -> vgg on 2 GPUs of a, resnet down to 2   20 min 0 s  chosen\n"
        "     wait                                  45 min 20 s\n"
        "  time: predicted time until all accepted jobs end"
    )


def test_the_json_has_its_five_keys_and_every_option() -> None:
    document = json.loads(explain_json(decision(), at_s=7.0, policy="adaptive", names=NAMES))
    assert {"event", "options", "chosen", "reason_code", "text"} <= set(document)
    assert document["event"] == {"at_s": 7.0, "policy": "adaptive", "job": "job2", "name": "vgg"}
    assert document["chosen"] == 0
    assert document["options"][0]["targets"] == [
        {"job": "job2", "name": "vgg", "gpus": 2, "host": "a"},
        {"job": "job1", "name": "resnet", "gpus": 2, "host": "a"},
    ]
    assert document["options"][1] == {
        "targets": [],
        "makespan_s": 2720.0,
        "completion_sum_s": 680.0 + 2720.0,
        "note": "wait",
        "refused": "",
    }
    assert document["weighed"] == 2


def test_the_json_is_the_same_for_the_same_decision() -> None:
    texts = {explain_json(decision(), at_s=7.0, policy="p", names=NAMES) for _ in range(3)}
    assert len(texts) == 1


def test_an_option_that_was_better_but_not_enough_says_so() -> None:
    """Growing would save 4 % of the job's time; it takes 5."""
    cluster = Cluster().runs("job", 2, speed={2: 1.0, 4: 0.96})
    plan = make_policy("adaptive").decide(cluster.snapshot())
    assert plan.targets == ()
    assert plan.reason_code == "keeps-sizes"
    assert explain_text(plan, at="now", policy="adaptive", names={}).splitlines() == [
        "now  GPUs stay idle: no running job would gain enough from them",
        "  decided by policy adaptive, reason keeps-sizes",
        "  2 options were compared:",
        "     job on 4 GPUs of a   16 min 0 s  saves too little time",
        "     change nothing      16 min 40 s",
        "  time: predicted time until all accepted jobs end",
    ]


def test_a_job_that_waits_is_told_why() -> None:
    cluster = Cluster({"a": ("V100", 8)}).runs("long", 4, speed={4: 1.0}, left=50_000)
    cluster.runs("job1", 4, speed={2: 6.0, 4: 2.0}, left=100)
    cluster.waits("job2", speed={2: 1.0}, left=3000)
    plan = make_policy("adaptive").decide(cluster.snapshot())
    text = explain_text(plan, at="now", policy="adaptive", names={})
    assert text.splitlines()[0] == "now  job2 waits for GPUs: no reshape would save enough time"
    assert "reason waits-gain-too-small" in text


def test_a_job_that_nothing_fits_is_told_what_it_needs() -> None:
    cluster = Cluster().runs("job1", 4, speed={4: 1.0}).waits("job2", speed={4: 1.0})
    plan = make_policy("adaptive").decide(cluster.snapshot())
    assert plan.reason_code == "waits-nothing-fits"
    assert plan.text == (
        "job2 waits: no usable host has the 4 GPUs that it needs at least,"
        " idle or taken from running jobs"
    )


def test_of_many_options_the_best_are_shown_and_the_number_of_all() -> None:
    cluster = Cluster({"a": ("V100", 64)})
    for number in range(16):
        cluster.runs(f"job{number}", 4, speed=PAPER, left=800 + number)
    plan = make_policy("adaptive").decide(cluster.waits("new", speed=PAPER).snapshot())
    text = explain_text(plan, at="now", policy="adaptive", names={})
    assert "17 options were compared; 8 are shown:" in text
    assert sum("down to" in line for line in text.splitlines()[1:]) == 8
    assert text.count("chosen") == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.2 s"),
        (9.0, "9.0 s"),
        (61.0, "61 s"),
        (120.0, "2 min 0 s"),
        (7199.0, "119 min 59 s"),
        (7200.0, "2 h 0 min"),
        (90061.0, "25 h 1 min"),
    ],
)
def test_durations_are_told_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def entry(job: str, at_s: float, kind: str, *costs: PhaseCost) -> HistoryEntry:
    return HistoryEntry(JobId(job), at_s, kind, "", costs=costs)


DONOR = (
    entry("job1", 5.0, "start-cost", PhaseCost("process start", 6.0, 7.0)),
    entry("job1", 10.0, "shrink-asked"),
    entry(
        "job1",
        20.0,
        "reshape-cost",
        PhaseCost("checkpoint", 1.0, 0.25),
        PhaseCost("process start", 6.0, 22.125),
        PhaseCost("whole reshape", 8.0, 23.0),
    ),
    entry("job1", 90.0, "reshape-cost", PhaseCost("process start", 6.0, 1.0)),
)
NEWCOMER = (
    entry("job2", 11.0, "start-cost", PhaseCost("job start", 3.0, 0.9)),
    entry("job2", 21.0, "start-cost", PhaseCost("process start", 6.0, 9.0)),
)


def test_a_later_reshape_is_no_cost_of_a_decision_that_spared_its_donor() -> None:
    spared = (entry("job2", 10.5, "replanned"), *NEWCOMER)
    costs = costs_of(decision(), 10.0, {JobId("job1"): DONOR, JobId("job2"): spared})
    assert {cost.job for cost in costs} == {JobId("job2")}
    later = (*NEWCOMER, entry("job2", 8.0, "replanned"))
    costs = costs_of(decision(), 10.0, {JobId("job1"): DONOR, JobId("job2"): later})
    assert {cost.job for cost in costs} == {JobId("job1"), JobId("job2")}


def test_what_a_decision_cost_is_told_beside_what_was_predicted() -> None:
    plan = decision()
    costs = costs_of(plan, 10.0, {JobId("job1"): DONOR, JobId("job2"): NEWCOMER})
    text = explain_text(plan, at="12:00:00", policy="adaptive", names=NAMES, costs=costs)
    assert text.partition("accepted jobs end\n")[2] == (
        "  time of each phase:\n"
        "                            predicted  measured\n"
        "     vgg     job start          3.0 s    0.90 s\n"
        "             process start      6.0 s     9.0 s\n"
        "     resnet  checkpoint         1.0 s    0.25 s\n"
        "             process start      6.0 s    22.1 s\n"
        "             whole reshape      8.0 s    23.0 s"
    )
    document = json.loads(
        explain_json(plan, at_s=10.0, policy="adaptive", names=NAMES, costs=costs)
    )
    assert document["costs"][0] == {
        "job": "job2",
        "name": "vgg",
        "phase": "job start",
        "predicted_s": 3.0,
        "measured_s": 0.9,
        "how": None,
        "fallback": None,
    }


def test_a_cost_says_how_the_process_was_started_and_why_not_faster() -> None:
    start = PhaseCost("process start", 0.5, 6.0, StartKind.COLD, "its zygote ended")
    entries = (entry("job1", 20.0, "reshape-cost", PhaseCost("checkpoint", 1.0, 0.25), start),)
    plan = decision()
    costs = costs_of(plan, 10.0, {JobId("job1"): entries})
    text = explain_text(plan, at="12:00:00", policy="adaptive", names=NAMES, costs=costs)
    assert text.splitlines()[-2:] == [
        "     resnet  checkpoint         1.0 s    0.25 s",
        "             process start     0.50 s     6.0 s  cold (its zygote ended)",
    ]
    document = json.loads(
        explain_json(plan, at_s=10.0, policy="adaptive", names=NAMES, costs=costs)
    )
    assert [(cost["how"], cost["fallback"]) for cost in document["costs"]] == [
        (None, None),
        ("cold", "its zygote ended"),
    ]


def test_the_phases_within_a_start_stand_below_it_and_an_unknown_prediction_is_a_dash() -> None:
    costs = (PhaseCost("process start", 0.5, 0.3), PhaseCost("restore", None, 0.05))
    plan, entries = decision(), (entry("job1", 20.0, "reshape-cost", *costs),)
    found = costs_of(plan, 10.0, {JobId("job1"): entries})
    text = explain_text(plan, at="12:00:00", policy="adaptive", names=NAMES, costs=found)
    assert text.splitlines()[-2:] == [
        "     resnet  process start     0.50 s    0.30 s",
        "               restore              -    0.05 s",
    ]


def test_costs_of_what_was_decided_before_or_after_are_not_this_decisions() -> None:
    plan = decision()
    failed = (entry("job2", 11.0, "hand-over-ended"), *NEWCOMER[1:])
    assert costs_of(plan, 10.0, {JobId("job2"): failed}) == ()
    lost = (NEWCOMER[0], entry("job2", 12.0, "host-lost"), NEWCOMER[1])
    assert [c.phase.phase for c in costs_of(plan, 10.0, {JobId("job2"): lost})] == ["job start"]
    assert [c.phase.measured_s for c in costs_of(plan, 10.0, {JobId("job1"): DONOR})] == [
        0.25,
        22.125,
        23.0,
    ]
    assert costs_of(plan, 10.0, {}) == ()


def tied(*options: tuple[float, float], refused: str = "") -> Plan:
    """A plan that chose the first of these options: makespan, sum of completion times."""
    rows = [
        Option((), makespan_s, "", total_s, refused if number else "")
        for number, (makespan_s, total_s) in enumerate(options)
    ]
    return Plan(options=tuple(rows), chosen=0)


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (tied((10.0, 20.0), (11.0, 15.0)), ""),
        (tied((10.0, 20.0), (10.0, 15.0), refused="saves too little time"), ""),
        (tied((10.0, 20.0), (10.0, 25.0)), "the smallest sum of completion times decided"),
        (tied((10.0, 20.0), (10.0, 20.0)), "fewer moved GPUs decided, or else the lower ids"),
    ],
)
def test_the_tie_break_that_decided_is_named(plan: Plan, text: str) -> None:
    found = explain_text(plan, at="now", policy="adaptive", names={})
    assert text in found
    assert ("tie: " in found) == bool(text)


def test_assumed_inputs_are_named_by_the_planner() -> None:
    world = World().boot(4)
    world.submit("a", 1, 2, length=None)
    plan = Planner(make_policy("adaptive")).plan(world.engine)
    assert plan.assumed == (
        "a: length unknown: 1 h of one GPU assumed",
        "a: speed unknown: 1.7 times as fast on 2 GPUs, 2.4 times on 4 assumed",
    )
    text = explain_text(plan, at="now", policy="adaptive", names={})
    assert "  assumed: a: length unknown: 1 h of one GPU assumed" in text.splitlines()


def test_the_text_of_a_plan_without_words_names_its_targets() -> None:
    plan = Plan((Target(JobId("a"), 2, HostId("h")), Target(JobId("b"), 1, HostId("h"))))
    names = {JobId("a"): "first"}
    text = explain_text(plan, at="now", policy="p", names=names)
    assert text.splitlines()[0] == "now  first on 2 GPUs of h, b down to 1"
    assert explain_text(Plan(), at="now", policy="p", names={}).startswith("now  Nothing was")


def test_the_notes_of_a_plan_are_shown_with_the_names_of_their_jobs() -> None:
    plan = Plan(notes=(Note(JobId("a"), "best", "2"), Note(JobId("b"), "tries")))
    names = {JobId("a"): "first"}
    lines = explain_text(plan, at="now", policy="p", names=names).splitlines()
    assert lines[-2:] == ["  note on first: best: 2", "  note on b: tries: removed"]
    document = json.loads(explain_json(plan, at_s=0.0, policy="p", names=names))
    assert document["notes"] == [
        {"job": "a", "name": "best", "text": "2"},
        {"job": "b", "name": "tries", "text": ""},
    ]
