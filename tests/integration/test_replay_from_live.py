"""``replay --from-live``: a daemon's queue goes on in virtual time, and the daemon as it was."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from reshape_controller.cli.home import Home
from reshape_gpu.client import Client
from reshape_gpu.requests import Request, Response
from reshape_gpu.target import of_home
from tests.support.daemon_bed import Bed
from tests.support.daemon_bed import bed as make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def test_what_becomes_of_the_queue_is_told_and_nothing_is_changed(bed: Bed) -> None:
    bed.up("--mechanism", "terminate")
    first = bed.submit("first", steps=3000, optional_gpus=[4], env={"TOKEN": "do-not-tell"})
    bed.reaches(first, "running", size=4)
    second = bed.submit("second", steps=3000, optional_gpus=[4])
    words = ("replay", "--from-live", "--add-gpus", "4")
    found = bed.json(*words)
    ends = {line["job"]: line for line in found["jobs"]}
    assert set(ends) == {first, second}
    assert found["as_it_is"]["policy"] == "adaptive+terminate"
    assert found["what_if"]["makespan_s"] < found["as_it_is"]["makespan_s"]
    assert ends[second]["what_if_s"] < ends[second]["as_it_is_s"]
    assert ends[first]["gpus"] == 4
    there = bed.reshape("replay", "--from-live", "--add-host", "8xB300")
    assert "no profile has speeds of first, second on B300" in there.stderr
    shown = bed.reshape(*words)
    assert "with 4 GPUs added to each" in shown.stdout
    state = bed.reshape("get", second)
    assert "submitted" in state.stdout
    other = bed.json("replay", "--from-live", "--policy", "default")
    assert other["what_if"]["policy"] == "default+none"


def test_the_end_of_a_job_that_reports_nothing_comes_nearer(bed: Bed) -> None:
    bed.up()
    job = bed.submit("still", command=["sleep", "600"], framework="other", steps=1000)
    bed.reaches(job, "running")
    ends = []
    for _ in range(4):
        time.sleep(2.0)
        ends.append(bed.json("replay", "--from-live")["as_it_is"]["makespan_s"])
    assert all(later <= sooner - 2.0 for sooner, later in pairwise(ends)), ends


def test_where_no_job_ends_no_end_is_shown(bed: Bed) -> None:
    bed.up()
    job = bed.submit("first", steps=3000)
    bed.reaches(job, "running")
    found = bed.json("replay", "--from-live", "--drain", "local")
    assert found["as_it_is"]["unending"] == 0
    assert found["what_if"] == {**found["what_if"], "makespan_s": None, "unending": 1}
    shown = bed.reshape("replay", "--from-live", "--drain", "local").stdout
    assert re.search(r"what if +adaptive\+sidecar +never +never +1\n", shown), shown


def test_without_a_daemon_a_job_or_a_host_of_that_name_it_says_so(bed: Bed) -> None:
    alone = bed.reshape("replay", "--from-live")
    assert alone.returncode == 4
    assert "no daemon" in alone.stderr
    bed.up()
    empty = bed.reshape("replay", "--from-live")
    assert empty.returncode == 1
    assert "no unfinished job" in empty.stderr
    nowhere = bed.reshape("replay", "--from-live", "--drain", "mars")
    assert nowhere.returncode == 2
    assert "use one of: local" in nowhere.stderr


def test_the_state_that_the_api_gives_has_no_environment_of_a_job(bed: Bed) -> None:
    bed.up()
    job = bed.submit("first", steps=3000, env={"TOKEN": "do-not-tell"})
    bed.reaches(job, "running")

    text = (
        Client.at(of_home(Home(bed.home))).ask(Request("GET", "/v1/state", Response)).body.decode()
    )
    assert job in text
    assert "do-not-tell" not in text
