"""Sizes that no trace says: three choices, their effects, and how many jobs have such sizes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape_controller.replay import traces
from reshape_controller.replay.conversion import Choices, Columns
from reshape_controller.replay.convert import convert
from reshape_controller.replay.demand import Asked, demand_of
from reshape_controller.replay.elastic import (
    Effect,
    Elastic,
    assumed_text,
    effects,
    sizes_under,
)
from reshape_controller.replay.inputs import ReplayError
from reshape_profiles.loader import bundled

TYPES = [profile.job_type for profile in bundled().profiles]
HEAD = "submit_s,job_type,optional_gpus,steps,known_gpus\n"


@pytest.mark.parametrize(
    ("choice", "number", "workers", "sizes"),
    [
        (Elastic.NONE, 4, 1, (4,)),
        (Elastic.HALVE, 4, 1, (1, 2, 4)),
        (Elastic.HALVE, 6, 1, (3, 6)),
        (Elastic.HALVE, 5, 1, (5,)),
        (Elastic.HALVE, 12, 4, (12,)),
        (Elastic.FREE, 3, 1, (1, 2, 3, 4, 8)),
        (Elastic.FREE, 16, 2, (2, 4, 8, 16)),
    ],
)
def test_a_choice_gives_a_job_these_sizes(
    choice: Elastic, number: int, workers: int, sizes: tuple[int, ...]
) -> None:
    assert sizes_under(choice, number, workers, 8) == sizes


def test_what_a_trace_says_is_told_from_what_is_assumed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("at,gpus,seconds,sizes\n0,4,600,\n5,1,600,\n9,2,600,1 2\n")
    columns = Columns("at", "gpus", duration="seconds")
    jobs = convert([path], columns, bundled(), Choices(elastic=Elastic.HALVE)).jobs
    assert [job.optional_gpus for job in jobs] == [(1, 2, 4), (1,), (1, 2)]
    assert assumed_text(jobs) == "elastic sizes are assumed for 2 of 3 jobs"
    assert effects(jobs, 8) == {
        Elastic.NONE: Effect(0, 7, 7),
        Elastic.HALVE: Effect(2, 3, 7),
        Elastic.FREE: Effect(3, 3, 24),
    }
    said = Columns("at", "gpus", duration="seconds", sizes="sizes")
    assert assumed_text(convert([path], said, bundled(), Choices()).jobs) == ""


@pytest.mark.parametrize("jsonl", [False, True])
def test_a_workload_keeps_what_is_assumed(tmp_path: Path, jsonl: bool) -> None:
    source, target = tmp_path / "t.csv", tmp_path / "jobs"
    source.write_text("at,gpus,seconds\n0,4,600\n5,1,600\n")
    columns = Columns("at", "gpus", duration="seconds")
    found = convert([source], columns, bundled(), Choices(elastic=Elastic.HALVE))
    with target.open("w") as file:
        traces.write_converted(found.jobs, file, jsonl=jsonl)
    workload = traces.parse(target.read_text(), "jobs", TYPES, jsonl=jsonl)
    assert [job.known_gpus for job in workload.jobs] == [(4,), ()]
    text = traces.jsonl_text(workload) if jsonl else traces.csv_text(workload)
    assert traces.parse(text, "jobs", TYPES, jsonl=jsonl) == workload


def test_a_size_that_a_job_may_not_take_is_no_known_one() -> None:
    with pytest.raises(ReplayError, match="line 2: known_gpus is '3', which optional_gpus lacks"):
        traces.parse(f"{HEAD}0,{TYPES[0]},1 2,9,3\n", "jobs.csv", TYPES, jsonl=False)


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(1, 64), st.floats(1, 1e5)), min_size=1, max_size=30
    ),
    st.integers(1, 50),
)
def test_the_gpus_over_time_are_those_of_the_jobs(
    jobs: list[tuple[float, int, float]], parts: int
) -> None:
    found = demand_of([Asked(*job) for job in jobs], parts)
    width_s = (max(at + s for at, _, s in jobs) - min(at for at, _, _ in jobs)) / parts
    drawn_s = sum(part.gpus for part in found.parts) * width_s
    assert math.isclose(drawn_s, sum(gpus * s for _, gpus, s in jobs), rel_tol=1e-6)
    assert all(part.gpus >= -1e-6 for part in found.parts)
    assert math.isclose(found.gpu_hours, drawn_s / 3600, rel_tol=1e-6)
