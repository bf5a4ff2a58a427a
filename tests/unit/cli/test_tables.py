"""Tables and figures as people see them."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from reshape_controller.cli.jobs import tables as job_tables
from reshape_controller.cli.jobs.cluster import gpus_table
from reshape_controller.cli.jobs.explain import explanation_of
from reshape_controller.cli.replays import tables
from reshape_controller.cli.serve import doctor
from reshape_controller.cli.words import bar, duration, one_line, size
from reshape_controller.core.states import DeadlineKind
from reshape_controller.replay.rows import Interval
from reshape_gpu.values import EventView, GpuView, JobView, NoteView
from reshape_launcher.kubernetes.finding import Finding
from reshape_sidecar.wire import (
    Evaluation,
    PhaseTimes,
    Prepared,
    PrepareStage,
    Standby,
    StandbyState,
    StartKind,
)

TOO_LONG = "none for checkpoints: every record has to name its own, and that is a long sentence"
NOW_S = 1_795_247_500.0


def lines(drawn: RenderableType, columns: int = 100) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=columns, no_color=True, markup=False, highlight=False).print(drawn)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def job(**fields: object) -> JobView:
    given = {
        "id": "train-0a1b2c3d",
        "name": "train",
        "user": "ada",
        "state": "running",
        "stage": "training",
        "reason": "",
        "seq": 9,
        "submitted_at_s": NOW_S - 125,
        "optional_gpus": (2, 4),
        **fields,
    }
    return JobView(**given)  # type: ignore[arg-type]


def test_a_length_that_only_the_program_knows_is_named_as_such() -> None:
    for fields, said in (
        ({"length": "12 epochs", "total_steps": 90}, "12 epochs"),
        ({"total_steps": 90}, "90 steps, as the program says"),
        ({}, "unknown"),
    ):
        shown = lines(job_tables.describe(job(**fields), (), NOW_S))
        assert [line.split(maxsplit=1)[1] for line in shown if line.startswith("length")] == [said]


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140, 220])
def test_the_reason_of_a_job_is_whole_in_a_list_at_every_width(columns: int) -> None:
    crash = "training ended with exit code 1\n" + "Traceback\n" * 20 + "SystemError: no layer"
    fault = "failed to start on 1 GPU; last error: no first training step within 120 s"
    jobs = (job(), job(state="failed", reason=crash), job(state="submitted", reason=fault))
    shown = lines(job_tables.jobs_table(jobs, NOW_S), columns)
    assert max(len(line) for line in shown) <= columns
    at = shown[0].index("WHY") if "WHY" in shown[0] else 0
    states = r"(running|failed|submitted) +\S+ of \S+ +\S+"
    why = " ".join(re.sub(states, "", line[at:]).strip() for line in shown[1:])
    assert columns < 60 or "training ended with exit code 1: SystemError: no layer" in why
    assert columns < 60 or fault in why
    assert why.rstrip().endswith("120 s")


def test_a_very_long_reason_takes_four_lines_and_ends_with_its_error() -> None:
    shown = lines(job_tables.jobs_table((job(state="failed", reason="word " * 99 + "the end"),), 0))
    assert len(shown) == 5
    assert shown[-1].endswith("the end")


def test_columns_give_their_room_to_reasons() -> None:
    short, long = job(state="failed", reason="no"), job(state="failed", reason="word " * 20)
    assert "AGE" in lines(job_tables.jobs_table((short,), NOW_S), 80)[0]
    assert "AGE" not in lines(job_tables.jobs_table((long,), NOW_S), 80)[0]


def test_the_reason_that_no_plan_reshapes_a_job_is_in_its_row_and_in_its_description() -> None:
    why = "its trajectory is unknown (the list L), and reshape_if is exact"
    fixed = job(phase="running", trajectory="unknown", fixed_because=why)
    assert f"not reshaped: {why}" in "\n".join(lines(job_tables.jobs_table((fixed,), NOW_S), 160))
    assert any(why in line for line in lines(describe(fixed)))


AGREES = "4 → 2 GPUs at step 900: first step agrees (loss 0.5013, 4e-8)"
BESIDE = "state beside training is not in the proof"
DIFFERS = "4 → 2 GPUs at step 900: first step differs: loss 0.86 instead of 0.77, same batch"


@pytest.mark.parametrize(
    ("fields", "trajectory", "proof"),
    [
        ({"trajectory": "exact"}, "exact", ""),
        (
            {"trajectory": "exact", "proofs_agreed": 1, "proof_result": AGREES},
            f"exact, proved once; {BESIDE}",
            AGREES,
        ),
        (
            {"trajectory": "exact", "proofs_agreed": 3, "proof_result": AGREES},
            f"exact, proved 3 times; {BESIDE}",
            AGREES,
        ),
        (
            {"trajectory": "exact", "trajectory_reason": "for means", "proofs_agreed": 2},
            f"exact, proved 2 times (for means); {BESIDE}",
            "",
        ),
        (
            {"trajectory": "exact", "proofs_agreed": 3, "proofs_missing": 1, "proof_result": "x"},
            f"exact, proved in 3 of 4 restarts; {BESIDE}",
            "x",
        ),
        (
            {"trajectory": "steps-only", "trajectory_reason": "dropout", "proofs_agreed": 2},
            "steps-only (dropout)",
            "",
        ),
        (
            {
                "trajectory": "unknown",
                "trajectory_reason": DIFFERS,
                "first_difference": DIFFERS,
                "proof_result": DIFFERS,
            },
            f"unknown ({DIFFERS})",
            DIFFERS,
        ),
        ({"trajectory": "exact", "proof": "off"}, "exact", "off, as its record says"),
    ],
)
def test_a_description_says_what_the_first_steps_have_proved(
    fields: dict[str, Any], trajectory: str, proof: str
) -> None:
    found = {line.partition("  ")[0]: line for line in lines(describe(job(**fields)), 200)}
    assert found["trajectory"].removeprefix("trajectory").strip() == trajectory
    assert found.get("proof", "").removeprefix("proof").strip() == proof


def test_an_explanation_says_what_the_newest_proof_found_and_why_no_plan_reshapes_the_job() -> None:
    why = "a first step after a restart differed, and its record does not say reshape_if: any"
    shown = lines(explanation_of(job(fixed_because=why, proof_result=DIFFERS), (), every=True), 300)
    assert shown[1:3] == [f"  not reshaped: {why}", f"  proof: {DIFFERS}"]


@pytest.mark.parametrize(
    ("fields", "head"),
    [
        ({"size": 2, "host": "node-1"}, "train-0a1b2c3d  running on 2 GPUs of node-1"),
        ({"size": 0, "state": "submitted", "reason": "is queued"}, "submitted: is queued"),
        ({"state": "completed", "reason": "training finished"}, "completed: training finished"),
    ],
)
def test_an_explanation_begins_with_what_the_job_does(fields: dict[str, Any], head: str) -> None:
    assert lines(explanation_of(job(**fields), (), every=False))[0].endswith(head)


def test_what_a_job_waits_for_is_told_in_words() -> None:
    for kind in DeadlineKind:
        waits = job(deadline=kind.value, deadline_at_s=NOW_S + 202)
        (line,) = [line for line in lines(describe(waits)) if line.startswith("waits for")]
        assert kind in job_tables.AWAITED
        assert line.split(maxsplit=2)[2] == f"{job_tables.AWAITED[kind]}; 3m22s left"


def test_a_history_has_its_day_and_one_of_several_days_the_day_of_each_entry() -> None:
    def shown(*times: float) -> str:
        events = tuple(EventView("job", at_s, "decided", "grows") for at_s in times)
        return "\n".join(lines(job_tables.describe(job(), events, NOW_S)))

    assert "history (UTC, 2026-11-21)\n  07:51:40  decided" in shown(NOW_S, NOW_S + 1)
    later = shown(NOW_S, NOW_S + 86400)
    assert "history (UTC)\n  2026-11-21 07:51:40  decided" in later
    assert "2026-11-22 07:51:40" in later


def test_a_job_on_several_hosts_is_described_with_all_of_them() -> None:
    gang = job(size=4, host="node-1", hosts=("node-1", "node-2"))
    assert any("4 of 2,4 on node-1 and node-2" in each for each in lines(describe(gang)))
    assert any("4 of 2,4 on node-1" in each for each in lines(describe(job(size=4, host="node-1"))))


def describe(shown: JobView) -> RenderableType:
    return job_tables.describe(shown, (), NOW_S)


@pytest.mark.parametrize(
    ("steps", "known", "said", "cell"),
    [
        (0, True, "0 steps;", "0"),
        (1, True, "1 step;", "1"),
        (24, False, "at least 24 steps;", "≥24"),
        (0, False, "an unknown number of steps;", "unknown"),
    ],
)
def test_lost_steps_are_said_as_far_as_they_are_known(
    steps: int, known: bool, said: str, cell: str
) -> None:
    lost = job(steps_lost=steps, steps_lost_known=known)
    assert any(line.startswith("lost") and said in line for line in lines(describe(lost)))
    (_, row) = lines(job_tables.jobs_table((lost,), NOW_S, wide=True), 200)
    assert cell in row.split()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"may_restart": True}, "its own; samples per step change with the GPUs (4 → 2)"),
        (
            {"may_restart": True, "size": 1, "size_before": 4, "reshape_downs": 1},
            "its own; samples per step change with the GPUs (4 → 1)",
        ),
        (
            {"may_restart": True, "processes": "one"},
            "its own; samples per step may change with the GPUs (4 → 2)",
        ),
        ({"may_restart": True, "optional_gpus": (2,)}, "its own"),
        ({"reshape_ups": 1}, "unknown (its program tells no verdict)"),
        ({"reshape_ups": 1, "trajectory": "exact"}, "exact"),
        ({}, None),
    ],
)
def test_a_reshaped_job_has_a_trajectory(fields: dict[str, object], said: str | None) -> None:
    program = "may restart" if "may_restart" in fields else None
    shown = job(**{"processes": "per-gpu", "program": program, **fields})
    found = [line for line in lines(describe(shown)) if line.startswith("trajectory")]
    assert [" ".join(line.split()[1:]) for line in found] == ([] if said is None else [said])


def test_a_job_of_micro_batches_says_how_many_a_step_has() -> None:
    fields = {"framework": "pytorch", "processes": "per-gpu", "processes_reason": "its script"}
    shown = lines(describe(job(**fields, micro_batches=4)))
    assert any("per-gpu, with 4 micro-batches a step: its script" in line for line in shown)


def test_a_halted_job_is_shown_as_paused() -> None:
    paused = job(state="halted", stage="none", reason="paused by ada")
    for shown in (job_tables.jobs_table((paused,), NOW_S), describe(paused)):
        text = "\n".join(lines(shown))
        assert "paused" in text
        assert "halted" not in text


def test_a_very_long_id_is_not_cut_and_leaves_room_for_the_rest() -> None:
    long = "x" * 63 + "-00000000"
    shown = lines(job_tables.jobs_table((job(id=long, size=2),), NOW_S))
    assert max(len(line) for line in shown) <= 100
    assert "".join(line.split()[0] for line in shown[1:]) == long
    assert "2 of 2,4" in shown[1]


def test_a_row_has_size_progress_and_age() -> None:
    row = lines(job_tables.jobs_table((job(size=2, step=50, progress_ratio=0.5),), NOW_S))[1]
    assert row.split()[:5] == ["train-0a1b2c3d", "running", "2", "of", "2,4"]
    assert "████····  50%" in row
    assert "2m05s" in row


def test_an_empty_list_tells_how_to_begin() -> None:
    assert "reshape submit" in lines(job_tables.jobs_table((), NOW_S))[0]


def test_a_description_fits_and_has_phases_and_history() -> None:
    view = job(
        times=PhaseTimes(save_s=0.21, stop_s=0.05, import_s=2.0, first_step_s=0.5),
        next_gpus=("gpu-0", "gpu-1"),
        donors=("other-11112222",),
        error="line one\nline two",
    )
    event = EventView("train-0a1b2c3d", NOW_S, "granted", "2 GPUs: gpu-0, gpu-1 " * 9, size=2)
    shown = lines(job_tables.describe(view, (event,), NOW_S))
    text = "\n".join(shown)
    assert max(len(line) for line in shown) <= 100
    assert "save 0.21 + stop 0.05 + import 2.00 + first step 0.50 = 2.76 s" in text
    assert "2 GPUs (gpu-0, gpu-1), from other-11112222" in text
    assert "  line two" in shown


def test_a_description_says_how_its_process_started_and_what_is_prepared_for_the_next() -> None:
    view = job(
        times=PhaseTimes(
            position_s=0.25,
            first_step_s=0.5,
            how=StartKind.COLD,
            fallback="its successor ended",
            prepare_s=4.0,
        ),
        standby=Standby(StandbyState.OFF, "TF_XLA_FLAGS differs"),
        prepared=Prepared(("gpu-0",), PrepareStage.EFFECT_BARRIER, "open log.txt", 3.21),
    )
    text = "\n".join(lines(job_tables.describe(view, (), NOW_S)))
    for part in (
        "started as  cold (its successor ended)",
        "standby     off: TF_XLA_FLAGS differs",
        "successor   for 1 GPU: effect-barrier, open log.txt, after 3.2 s",
        "position 0.25 + first step 0.50 = 0.75 s, prepared in 4.00 s",
    ):
        assert part in text
    plain = "\n".join(lines(job_tables.describe(job(), (), NOW_S)))
    assert not any(word in plain for word in ("started as", "standby", "successor"))


def test_a_description_names_the_targets_of_notifications() -> None:
    words = [
        line.split()
        for line in lines(job_tables.describe(job(notify=("chat", "on-call")), (), NOW_S))
    ]
    assert ["notifies", "chat,", "on-call"] in words
    plain = lines(job_tables.describe(job(), (), NOW_S))
    assert not any(line.split()[:1] == ["notifies"] for line in plain)


def test_a_description_has_the_newest_evaluation_of_each_metric_and_the_notes() -> None:
    points = (Evaluation("val_loss", 10, 0.5), Evaluation("f1", 20, 0.9))
    newest = Evaluation("val_loss", 20, 0.25)
    view = job(evaluations=(*points, newest), notes=(NoteView("job", "tries-from", "2"),))
    shown = lines(job_tables.describe(view, (), NOW_S))
    words = [line.split() for line in shown]
    assert any("f1 0.9 at step 20; val_loss 0.25 at step 20" in line for line in shown)
    assert ["note", "tries-from", "2"] in words
    judged = lines(job_tables.describe(job(evaluations=points, metric="f1"), (), NOW_S))
    assert not any(line.split()[:1] == ["evaluated"] for line in judged)


def test_one_gpu_that_comes_next_is_one_gpu() -> None:
    shown = lines(job_tables.describe(job(next_gpus=("gpu-0",)), (), NOW_S))
    assert any(line.split() == ["next", "1", "GPU", "(gpu-0)"] for line in shown)


def test_gpus_show_who_has_them_and_who_is_next() -> None:
    gpu = GpuView(
        "gpu-0", "local", 0, "a100", "in use", "a-1", "first", "b-2", "second", drained=True
    )
    row = lines(gpus_table((gpu,)))[1]
    assert row.split() == [
        "local",
        "(drained)",
        "0",
        "gpu-0",
        "a100",
        "in",
        "use",
        "first",
        "second",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-3, "0.0s"),
        (0.04, "0.0s"),
        (9.96, "10.0s"),
        (59.6, "1m00s"),
        (125, "2m05s"),
        (7265, "2h01m"),
        (90_000, "1d01h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_bars_are_as_long_as_asked_for() -> None:
    assert [bar(ratio, 4) for ratio in (0.0, 0.5, 1.0, 7.0, -1.0)] == [
        "····",
        "██··",
        "████",
        "████",
        "····",
    ]
    assert all(len(bar(number / 100, 8)) == 8 for number in range(101))


def test_a_text_of_many_lines_is_its_first_and_its_last() -> None:
    assert (
        one_line("exit code 1\nTraceback\n  x\nValueError: no\n") == "exit code 1: ValueError: no"
    )
    assert one_line("one") == "one"
    assert one_line(" \n") == ""


def test_sizes() -> None:
    assert [size(n) for n in (512, 2048, 3 << 30, 5 << 40)] == [
        "512 B",
        "2.0 KiB",
        "3.0 GiB",
        "5120.0 GiB",
    ]


def test_what_doctor_found_and_what_to_do_are_read_whole_in_a_narrow_terminal() -> None:
    right = Finding("may create leases.coordination.k8s.io", True, "the first makes the lease")
    wrong = Finding("claim", False, TOO_LONG, "make the claim with kubectl")
    drawn = lines(doctor.table(doctor.DoctorReport(False, (right, wrong))), columns=80)
    assert not any("\u2026" in line for line in drawn), "nothing is cut"
    words = " ".join(" ".join(drawn).split())
    assert f"claim FAILED {TOO_LONG} remedy: make the claim with kubectl" in words
    assert "may create leases.coordination.k8s.io ok the first makes the lease" in words


@pytest.mark.parametrize("columns", [80, 220])
def test_a_comparison_is_not_cut_however_wide_the_terminal_is(columns: int) -> None:
    figures = {name: Interval(17_855.25, 17_630.0, 18_079.0) for name, _, _ in tables.SHOWN}
    policies = ("adaptive", "adaptive+terminate")
    found = tables.many(dict.fromkeys(policies, figures), [], "about", seeds=30)
    drawn = lines(found, columns)
    assert not any("\u2026" in line for line in drawn)
    words = " ".join(drawn).split()
    assert set(words) >= {*policies, "MAKESPAN", "OVERHEAD", "17,855", "17,630..18,079"}


def test_one_seed_has_no_interval() -> None:
    figures = {name: Interval(0.5, 0.5, 0.5) for name, _, _ in tables.SHOWN}
    saved = [("adaptive", "default", {"makespan_s": figures["makespan_s"]})]
    drawn = lines(tables.many({"adaptive": figures}, saved, "about", seeds=1), 220)
    assert not any(".." in line for line in drawn)
    assert drawn[-1].split() == ["default", "adaptive", "50.0%", "-"]
