"""A loop with a session ends at a target accuracy, also after restarts; real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.contract import HookPhase
from reshape_sidecar.wire import EXIT_SAVED, Evaluation, TargetProgress
from tests.support.hook_bed import ROOT, Ended, Job, plain

LOOP = """
import json, os, signal
from reshape_sidecar import session

job = session.start(total_steps=60)
print("BEGIN", job.step, job.target_reached, flush=True)
names = os.environ.get("NAMES", "val_accuracy").split(",")
scores = [float(word) for word in os.environ["SCORES"].split(",")]

def save(folder):
    (folder / "step.json").write_text(json.dumps(job.step))

while job.step < job.total_steps:
    if job.step and job.step % 5 == 0:
        ends = [job.evaluated(name, scores[job.step // 5 - 1]) for name in names]
        print("EVALUATED", job.step, ends, flush=True)
        if any(ends):
            continue
    if str(job.step + 1) == os.environ.get("STOP_AT"):
        os.kill(os.getpid(), signal.SIGTERM)
    job.step_done(save, accuracy=0.99)
job.finished(save)
print("AFTER", job.step, job.target_reached)
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    settings = {"PYTHONPATH": str(ROOT / "sidecar"), "RESHAPE_TARGET_ACCURACY": "0.8"}
    return Job(tmp_path / "job", script, (), settings)


def test_a_loop_without_a_target_reports_its_evaluations_to_an_agent_that_knows_them(
    tmp_path: Path,
) -> None:
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    job = Job(tmp_path / "job", script, (), {"PYTHONPATH": str(ROOT / "sidecar")})
    first = job.run(SCORES=",".join(["0.5"] * 12), NAMES="f1,loss", STOP_AT="13")
    assert first.reports[-1].progress.evaluations == tuple(
        Evaluation(metric, step, 0.5) for step in (5, 10) for metric in ("f1", "loss")
    )
    scores = {"SCORES": ",".join(["0.7"] * 12), "NAMES": "f1"}
    found = job.run(**scores).reports[-1].progress.evaluations
    assert [each.step for each in found] == list(range(15, 60, 5)), "of this process"
    older = Job(tmp_path / "older", script, (), {"PYTHONPATH": str(ROOT / "sidecar")})
    reports = older.run(**scores, RESHAPE_REPORT_LEVEL="3").reports
    assert reports[-1].progress.step == 60
    assert not any(report.progress.evaluations for report in reports)


def judged(ended: Ended) -> TargetProgress:
    target = ended.reports[-1].progress.target
    assert target is not None
    return target


def test_a_loop_ends_at_the_evaluation_that_reaches_the_target(job: Job) -> None:
    ended = job.run(SCORES="0.2,0.5,0.85")
    assert ended.lines("AFTER") == ["AFTER 15 True"], ended.err
    assert judged(ended).evaluations == ((5, 0.2), (10, 0.5), (15, 0.85))
    assert ended.reports[-1].phase is HookPhase.FINISHED
    again = job.run(SCORES="0")
    assert again.lines("BEGIN") == ["BEGIN 15 True"]
    assert (again.lines("EVALUATED"), again.lines("AFTER")) == ([], ["AFTER 15 True"])
    assert judged(again).evaluations == judged(ended).evaluations


def test_a_row_of_evaluations_survives_a_stop_and_one_that_is_repeated_counts_once(
    job: Job,
) -> None:
    row = {"SCORES": "0.9,0.9,0.9,0.9", "RESHAPE_EPOCHS_IN_A_ROW": "3"}
    first = job.run(STOP_AT="8", **row)
    assert first.code == EXIT_SAVED, first.err
    second = job.run(STOP_AT="10", **row)
    assert (second.code, job.newest().manifest.step) == (EXIT_SAVED, 10), second.err
    last = job.run(**row)
    assert last.lines("EVALUATED") == ["EVALUATED 10 [False]", "EVALUATED 15 [True]"], last.err
    assert judged(last).evaluations == ((5, 0.9), (10, 0.9), (15, 0.9))


def test_the_validation_accuracy_is_judged_among_several_metrics(job: Job) -> None:
    ended = job.run(NAMES="accuracy,val_accuracy,val_loss", SCORES="0.1,0.9")
    assert ended.lines("EVALUATED")[-1] == "EVALUATED 10 [False, True, False]", ended.err
    assert judged(ended).metric == "val_accuracy", ended.err
    assert [step for step, _ in judged(ended).evaluations] == [5, 10]


def test_a_metric_that_the_loop_does_not_evaluate_is_named_and_it_trains_on(job: Job) -> None:
    named = job.run(SCORES=",".join(["0.9"] * 11), RESHAPE_METRIC="top5")
    assert named.lines("AFTER") == ["AFTER 60 False"], named.err
    assert "there is no metric top5 among the evaluated ones (val_accuracy)" in named.err
    assert "there is no metric top5" in judged(named).note


def test_a_percentage_is_refused_with_the_remedy(job: Job) -> None:
    ended = job.run(SCORES="93.5")
    assert ended.code == 1
    assert "val_accuracy is 93.5" in ended.err
    assert "93.5 % is 0.935" in ended.err


def test_without_a_target_every_evaluation_goes_on(job: Job) -> None:
    del job.environment["RESHAPE_TARGET_ACCURACY"]
    scores = ",".join(["93.5"] * 11)
    ended = job.run(SCORES=scores)
    assert ended.lines("AFTER") == ["AFTER 60 False"], ended.err
    assert all(report.progress.target is None for report in ended.reports)
    assert sorted(path.name for path in job.newest().path.iterdir()) == [
        "manifest.json",
        "step.json",
    ]
    by_hand = plain(job.script, PYTHONPATH=str(ROOT / "sidecar"), SCORES=scores)
    assert by_hand.lines("AFTER") == ["AFTER 60 False"], by_hand.err


def test_a_value_that_is_no_number_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(
        "from reshape_sidecar import session\nsession.start().evaluated('val_accuracy', None)\n"
    )
    ended = plain(script, PYTHONPATH=str(ROOT / "sidecar"))
    assert "the value of val_accuracy is None; give a number" in ended.err
    script.write_text("from reshape_sidecar import session\nsession.start().evaluated(0.9, 0.9)\n")
    ended = plain(script, PYTHONPATH=str(ROOT / "sidecar"))
    assert "0.9 is no name of a metric" in ended.err
