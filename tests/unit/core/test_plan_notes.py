"""The notes of plans: bounds, whose they are, and what they survive."""

from __future__ import annotations

import json

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import JobView, Note, Plan, Snapshot, Target
from reshape_controller.core.plan_notes import (
    JOB_NOTES_MAX,
    NOTE_NAME_MAX,
    NOTE_TEXT_MAX,
    PLAN_NOTES_MAX,
)
from reshape_controller.core.record import LogRecord
from reshape_controller.core.state import State
from reshape_controller.http.render import job_view
from reshape_controller.live.projection import changes_of
from reshape_controller.scheduling.planner import FailureKind, Planner
from reshape_controller.scheduling.rounds import redo, run
from reshape_controller.store.conventions import jobs_of
from reshape_controller.store.protocol import JobRow
from reshape_gpu.values import NoteView
from reshape_sidecar import codec
from tests.support.world import HOST, World

A, B = JobId("a"), JobId("b")


def two_jobs() -> World:
    """Job ``a`` trains on two of four GPUs; ``b`` is queued for four."""
    world = World().boot(4)
    world.running("a", 2, 1, 2)
    world.submit("b", 4)
    return world


def write(world: World, *notes: Note, targets: tuple[Target, ...] = ()) -> None:
    world.apply(Plan(targets, "test", notes=notes))


def views(engine: Engine) -> dict[str, JobView]:
    snapshot = engine.snapshot()
    return {job.id: job for job in (*snapshot.queued, *snapshot.running)}


def test_each_job_has_the_notes_that_plans_wrote_about_it_and_no_others() -> None:
    world = two_jobs()
    write(world, Note(A, "phase", "warm up"), Note(B, "seen", "1"))
    write(world, Note(A, "best", "2"))
    found = views(world.engine)
    assert found["a"].notes == (("best", "2"), ("phase", "warm up"))
    assert found["b"].notes == (("seen", "1"),)
    assert (found["a"].note("phase"), found["b"].note("phase")) == ("warm up", "")


def test_a_new_text_replaces_a_note_and_an_empty_text_removes_it() -> None:
    world = two_jobs()
    write(world, Note(A, "n", "1"), Note(A, "m", "1"))
    write(world, Note(A, "n", "2"), Note(A, "m"))
    assert views(world.engine)["a"].notes == (("n", "2"),)
    write(world, Note(A, "n"))
    assert views(world.engine)["a"].notes == ()


def test_a_plan_with_notes_and_no_targets_ends_the_planning() -> None:
    world = two_jobs()
    assert world.engine.wants_plan()
    write(world, Note(A, "n", "1"))
    assert not world.engine.wants_plan()


def test_a_plan_with_targets_writes_its_notes_too() -> None:
    world = two_jobs()
    write(world, Note(A, "n", "1"), targets=(Target(A, 1, HOST),))
    assert (len(world.job("a").gpus), world.job("a").notes) == (1, (("n", "1"),))


def test_notes_stay_while_a_job_shrinks_ends_its_container_and_starts_again() -> None:
    world = two_jobs()
    write(world, Note(A, "n", "1"))
    world.plan(("a", 1))
    world.crash("a")
    world.kill_container("a")
    world.wait(10.0)
    world.plan(("a", 2))
    assert (world.job("a").attempt, world.job("a").notes) == (2, (("n", "1"),))


def test_notes_end_with_their_job() -> None:
    world = two_jobs()
    write(world, Note(A, "n", "1"))
    world.finish("a")
    world.submit("a", 1)
    assert views(world.engine)["a"].notes == ()


def test_notes_survive_a_dump_and_the_log_read_by_another_engine() -> None:
    world = two_jobs()
    write(world, Note(A, "n", "1"), Note(B, "m", "2"))
    before = views(world.engine)
    assert views(Engine(State.load(world.engine.state.dump()))) == before
    fresh = Engine()
    for what, at, text, *_ in world.log:
        if what == "event":
            fresh.step(codec.from_value(ev.Event, json.loads(text)), float(at))
        else:
            fresh.apply(codec.loads(Plan, text), float(at))
    assert views(fresh) == before


@pytest.mark.parametrize(
    ("notes", "rule"),
    [
        ((Note(JobId("x"), "n", "1"),), "x: no such job, so it gets no note 'n'"),
        ((Note(A, "n", "1"), Note(A, "n", "2")), "a: the plan writes its note n twice"),
        ((Note(A, "", "1"),), "a: the name of a note has 0 characters; 1 to 40 are allowed"),
        ((Note(A, "n" * (NOTE_NAME_MAX + 1), "1"),), "the name of a note has 41 characters"),
        ((Note(A, "n", "x" * (NOTE_TEXT_MAX + 1)),), "the text of a note has 201 characters"),
        ((Note(A, "n", "two\nlines"),), "a: the text of a note is not one line of plain text"),
        ((Note(A, "n", "\ud800"),), "a: the text of a note is not one line of plain text"),
        ((Note(A, "n\t", "1"),), "a: the name of a note is not one line of plain text"),
        (
            tuple(Note(A, f"n{i}", "1") for i in range(JOB_NOTES_MAX)),
            "a: would have 17 notes; 16 are the most; an empty text removes a note",
        ),
        (
            tuple(Note(A, f"n{i}") for i in range(PLAN_NOTES_MAX)),
            "the plan writes 257 notes; 256 are the most",
        ),
    ],
)
@pytest.mark.parametrize("targets", [(), (Target(A, 1, HOST),)], ids=["empty", "shrinks"])
def test_a_plan_beyond_a_bound_is_refused_whole_with_its_rule(
    notes: tuple[Note, ...], rule: str, targets: tuple[Target, ...]
) -> None:
    world = two_jobs()
    write(world, Note(A, "before", "1"))
    before = world.engine.state.dump()[1:]
    with pytest.raises(PlanRejected) as rejected:
        write(world, Note(B, "other", "1"), *notes, targets=targets)
    assert rule in rejected.value.reason
    assert world.engine.state.dump()[1:] == before


def test_sixteen_notes_of_the_longest_texts_are_taken_and_the_seventeenth_is_not() -> None:
    world = two_jobs()
    longest = "ß" * NOTE_TEXT_MAX
    names = [f"{i:0{NOTE_NAME_MAX}}" for i in range(JOB_NOTES_MAX)]
    write(world, *[Note(A, name, longest) for name in names])
    assert len(world.job("a").notes) == JOB_NOTES_MAX
    with pytest.raises(PlanRejected, match="would have 17 notes"):
        write(world, Note(A, "more", "1"))
    write(world, Note(A, "more", "1"), Note(A, names[0]))
    assert len(world.job("a").notes) == JOB_NOTES_MAX


def test_the_notes_of_a_plan_whose_targets_are_refused_are_not_written() -> None:
    world = two_jobs()
    with pytest.raises(PlanRejected, match="3 is not in its GPU counts"):
        write(world, Note(A, "n", "1"), targets=(Target(A, 3, HOST),))
    assert world.job("a").notes == ()


class Counts:
    """Counts in a note how often it was asked."""

    name = "counts"

    def decide(self, snapshot: Snapshot) -> Plan:
        (job,) = (*snapshot.queued, *snapshot.running)
        count = int(job.note("count") or "0") + 1
        note = Note(job.id, "count", str(count))
        return Plan(notes=(note,), wake_at_s=snapshot.now_s + 10.0)


def test_a_policy_counts_on_over_restarts_and_a_replay_of_its_log_asks_it_for_nothing() -> None:
    world = World().boot(4)
    world.submit("a", 8)
    engine, records = world.engine, []
    replayed = Engine(State.load(engine.state.dump()))
    for number in range(4):
        planner = Planner(Counts())  # a new controller each time: no memory but the notes
        done = run(engine, planner, (), float(number))
        text = codec.dumps(
            LogRecord(number, 1, "", "counts", float(number), (), done.plans, done.commands, "")
        )
        records.append(codec.loads(LogRecord, text))
        engine = Engine(State.load(engine.state.dump()))
        engine.state.plan_wanted = True
    assert engine.state.jobs[A].notes == (("count", "4"),)
    for record in records:
        redo(replayed, record)
    assert replayed.state.jobs[A].notes == engine.state.jobs[A].notes


class TooLong:
    """Writes a note that is too long."""

    name = "too-long"

    def decide(self, snapshot: Snapshot) -> Plan:
        return Plan(notes=(Note(snapshot.queued[0].id, "n", "x" * 1000),))


def test_a_round_puts_an_empty_plan_with_the_rule_in_the_place_of_a_plan_beyond_a_bound() -> None:
    world = World().boot(4)
    world.submit("a", 8)
    (decision,) = run(world.engine, Planner(TooLong()), (), 0.0).decisions
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.PLAN_REJECTED
    assert "the text of a note has 1000 characters" in decision.plan.text
    assert decision.plan.notes == ()
    assert world.engine.state.jobs[A].notes == ()


def test_a_plan_without_notes_is_stored_as_by_the_version_before() -> None:
    plan = Plan((Target(A, 1, HostId("host-0")),), "test")
    assert "notes" not in codec.dumps(plan)
    world = two_jobs()
    assert all('"notes"' not in part for part in world.engine.state.dump())


def test_a_decision_that_only_writes_notes_is_shown_for_the_jobs_of_its_notes() -> None:
    world = two_jobs()
    plan = Plan(notes=(Note(A, "n", "1"), Note(B, "m", "2")))
    world.apply(plan)
    record = LogRecord(1, 1, "", "test", 0.0, (), (plan,), (), "")
    (decision,) = changes_of(world.engine, record, ()).decisions
    assert jobs_of(decision) == (A, B)
    row = JobRow(A, "a", "", world.job("a").state, 1, 0.0, world.job("a"))
    assert job_view(row).notes == (NoteView("a", "n", "1"),)
