"""Costs from a job's history, and files of costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.profiles.costs import record_of
from reshape_controller.cli.profiles.measured_costs import samples_of
from reshape_controller.cli.replays.inputs import costs_of
from reshape_gpu.values import EventView
from reshape_profiles.loader import bundled

HISTORY = (
    *(("launched", 1.0), ("initialized", 1.4), ("granted", 1.5), ("first-step", 1.75)),
    *(("shrink-asked", 10.0), ("stopping", 10.25), ("stopped", 10.5), ("first-step", 11.25)),
    *(("grow-asked", 20.0), ("stopping", 20.75), ("stopped", 20.75), ("first-step", 21.0)),
    *(("completed", 30.0), ("container-gone", 31.0)),
)
COST = '"job_init_s": 1, "process_init_s": 2, "checkpoint_s": 3, "process_stop_s": 4'


def events(*entries: tuple[str, float]) -> list[EventView]:
    return [EventView("j", at_s, kind, "") for kind, at_s in entries]


def test_each_phase_lies_between_two_entries_of_the_history() -> None:
    found = samples_of([events(*HISTORY)])
    assert found.samples == {
        "job_init_s": (0.4,),
        "process_init_s": (0.25, 0.75, 0.25),
        "checkpoint_s": (0.25, 0.75),
        "process_stop_s": (0.25, 0.0),
        "job_stop_s": (1.0,),
    }
    overhead = found.overhead("measured here")
    assert (overhead.process_init_s, overhead.checkpoint_s) == (0.25, 0.5)
    assert overhead.source == "measured here"


def test_a_phase_that_was_never_seen_is_no_zero() -> None:
    with pytest.raises(CliError, match="checkpoint_s was not measured"):
        samples_of([events(*HISTORY[:4], *HISTORY[-2:])])


def test_a_phase_begins_with_the_last_request_before_it() -> None:
    unanswered = events(("grow-asked", 5.0), *HISTORY)
    assert samples_of([unanswered]).samples["checkpoint_s"] == (0.25, 0.75)


def test_costs_of_a_file_are_named_after_set_and_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(
        f'{{"costs": {{"here": {{{COST}, "job_stop_s": 5}}}}, "provenance": {{"a": 1}}}}'
    )
    found = costs_of(bundled(), str(file))
    assert (found.name, found.overhead.process_stop_s) == ("here of mine.json", 4.0)
    assert costs_of(bundled(), "paper").name == "paper"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "unknown set of costs"),
        ('{"costs": {}}', "has 0 sets"),
        (f'{{"costs": {{"here": {{{COST}}}}}}}', "job_stop_s missing"),
        ("{", "is not valid JSON"),
    ],
)
def test_what_is_no_file_of_one_set_is_refused(tmp_path: Path, text: str | None, what: str) -> None:
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CliError, match=what):
        costs_of(bundled(), str(file))


def test_of_a_record_only_what_is_run_is_taken(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ncommand: python train.py\noptional_gpus: [2]\nglobal_batch: 64\n")
    found = record_of(str(file), tmp_path)
    assert found["command"] == "python train.py"
    assert found["code"] == str(tmp_path)
    assert not {"name", "optional_gpus", "global_batch", "steps"} & set(found)


def test_without_a_record_the_paced_program_is_copied_and_run(tmp_path: Path) -> None:
    found = record_of(None, tmp_path)
    assert found["framework"] == "other"
    assert "session" in (Path(found["code"]) / "train.py").read_text()
