"""What people see and steer of decisions, by the real command on a real daemon."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def test_a_job_is_pinned_and_unpinned_by_the_command_and_bad_input_has_its_exit_code(
    bed: Bed,
) -> None:
    bed.up()
    job = bed.submit("job", steps=100_000)
    bed.reaches(job, "running", size=4)
    done = bed.reshape("pin", "job", "4")
    assert (done.returncode, done.stdout) == (0, f"{job}: is fixed at 4 GPUs\n")
    assert bed.job(job)["pinned"] == 4
    down = bed.reshape("pin", "job", "2")
    assert down.stdout == f"{job}: is fixed at 2 GPUs; it goes from 4 to 2\n"
    bed.reaches(job, "running", size=2)
    assert "job goes from 4 to 2 GPUs: it is pinned there" in bed.reshape("explain", "job").stdout
    wrong = bed.reshape("pin", "job", "3")
    assert wrong.returncode == 5
    assert f"3 is not a GPU count of {job}" in wrong.stderr
    assert "one of: 2, 4" in wrong.stderr
    assert bed.reshape("pin", "nobody", "2").returncode == 3
    assert bed.reshape("pin", "job", "two").returncode == 2
    done = bed.reshape("unpin", "job")
    assert (done.returncode, done.stdout) == (0, f"{job}: may use 2 or 4 GPUs\n")
    bed.reshape("cancel", "job")
    bed.reaches(job, "cancelled")
    ended = bed.reshape("pin", "job", "2")
    assert ended.returncode == 5
    assert "is cancelled and cannot be pinned" in ended.stderr


def test_a_pin_that_is_inserted_into_the_store_is_taken_and_nonsense_changes_nothing(
    bed: Bed,
) -> None:
    bed.up()
    job = bed.submit("job", steps=100_000)
    bed.reaches(job, "running", size=4)
    bodies: list[Any] = [{"job": "job"}, {"job": "job", "size": 3}, {"job": "job", "size": "x"}]
    bodies.append({"job": "job", "size": 2, "user": "eve"})
    with closing(sqlite3.connect(bed.home / "store.sqlite")) as store, store:
        for body in bodies:
            store.execute("INSERT INTO inbox (kind, body) VALUES ('pin', ?)", (json.dumps(body),))
    eventually(lambda: bed.job(job)["pinned"] == 2, text="the pin is taken")
    history = bed.reshape("describe", "job").stdout
    assert "fixed at 2 GPUs, by eve" in history
    assert history.count(" pinned ") == 1


def test_explain_shows_what_a_hand_over_cost_beside_what_was_predicted(bed: Bed) -> None:
    bed.up("--seed", "42")
    bed.submit("first", steps=100_000)
    bed.reaches("first", "running", size=4)
    bed.submit("second", steps=100_000, optional_gpus=[2])
    bed.reaches("second", "running", size=2)

    def known() -> Any:
        (decision,) = bed.json("explain", "second")["decisions"]
        phases = {(cost["name"], cost["phase"]) for cost in decision["costs"]}
        return decision if ("first", "whole reshape") in phases else None

    decision = eventually(known, text="what the reshape cost")
    assert all(cost["measured_s"] >= 0 for cost in decision["costs"])
    shown = bed.reshape("explain", "first").stdout
    assert "time of each phase:" in shown
    assert "whole reshape" in shown
    assert max(map(len, shown.splitlines())) <= 200, "the columns of the terminal"
    assert "seed=42" in bed.log.read_text()
