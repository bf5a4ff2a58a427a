"""State of a script that no checkpoint holds is named, and no other state is."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.wire import EXIT_SAVED
from tests.support.hook_bed import Ended, Job

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

NAMED = Path(__file__).parent / "scripts" / "named.py"
OBJECTS, FILES = "callbacks change objects of the script", "the script holds files open for writing"
DRAWS = "several workers read a PyDataset that draws random numbers"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What is named of each case, all of them in one process: case, verdict and reason."""
    folder = tmp_path_factory.mktemp("named")
    ended = in_folder(folder, "all").run()
    assert ended.code == 0, ended.err
    return [line.removeprefix("FOUND ").split("|") for line in ended.lines("FOUND")]


def in_folder(folder: Path, case: str) -> Job:
    """A job whose script writes its files to ``folder``."""
    return Job(folder / "job", NAMED, (case,), {"FOLDER": str(folder)})


@pytest.mark.gate
@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("lists", [("unknown", f"{OBJECTS} (losses)")]),
        ("rebound", [("unknown", f"{OBJECTS} (best)")]),
        ("tally", [("unknown", f"{OBJECTS} (Tallying.tally)")]),
        ("in_class", [("unknown", f"{OBJECTS} (Counting.counts)")]),
        ("restored_list", []),
        ("only_read", []),
        ("truncated", [("unknown", f"{FILES} (log)")]),
        ("appended", [("steps-only", f"{FILES} (appended.txt)")]),
        ("logged", [("unknown", f"{FILES} (run.log)")]),
        ("written_each_time", []),
        ("of_keras", []),
        ("workers", [("steps-only", f"{DRAWS} (np.random.normal)")]),
        ("processes", [("steps-only", f"{DRAWS} (self.rng")]),
        ("workers_by_index", []),
    ],
)
def test_state_of_the_script_is_named_with_its_remedy(
    found: list[list[str]], case: str, wanted: list[tuple[str, str]]
) -> None:
    got = [(kind, reason) for name, kind, reason in found if name == case]
    assert [kind for kind, _ in got] == [kind for kind, _ in wanted], got
    for (_, reason), (_, beginning) in zip(got, wanted, strict=True):
        assert reason.startswith(beginning)
        assert ": " in reason, "the remedy"


def test_what_was_named_stays_named_after_a_restart(tmp_path: Path) -> None:
    job = in_folder(tmp_path, "lists")
    first = job.run(STOP_AT="15")
    assert first.code == EXIT_SAVED, first.err
    second = job.run()
    assert second.code == 0, second.err
    assert second.lines("LIST") == ["LIST 5"], "the list of 20 losses begins again"
    for ended in (first, second):
        assert_named(ended, "unknown", f"{OBJECTS} (losses)")


def assert_named(ended: Ended, kind: str, beginning: str) -> None:
    """Every report since the first step has the verdict."""
    reports = [report.progress for report in ended.reports if report.progress.step]
    assert reports
    for progress in reports[-3:]:
        assert progress.trajectory == kind
        assert (progress.trajectory_reason or "").startswith(beginning)
