"""State of a script that no checkpoint holds is named, and no other state is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reshape_sidecar.wire import EXIT_SAVED
from tests.support.hook_bed import Ended, Job, plain

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "scripts"
NAMED, BETWEEN = SCRIPTS / "named.py", SCRIPTS / "between.py"
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
        ("rebound", []),
        ("tally", [("unknown", f"{OBJECTS} (Tallying.tally)")]),
        ("in_class", [("unknown", f"{OBJECTS} (Counting.counts)")]),
        ("restored_list", []),
        ("only_read", []),
        ("truncated", [("unknown", f"{FILES} (log)")]),
        ("appended", [("steps-only", f"{FILES} (appended.txt)")]),
        ("appended_between", [("steps-only", f"{FILES} (between.txt)")]),
        ("appended_in_fit", []),
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


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("endless", "the PyDataset changes rates, which no checkpoint can hold"),
        ("with_callback", "other code changes level, which the PyDataset uses"),
        ("counted", None),
        ("counted_by_workers", "several workers read a PyDataset that changes level"),
        ("caching", None),
        ("caching_by_workers", None),
        ("caching_draws", "the PyDataset changes drawn, which no checkpoint can hold"),
    ],
)
def test_state_of_data_that_no_checkpoint_holds_is_named(
    found: list[list[str]], case: str, wanted: str | None
) -> None:
    got = {(kind, reason) for name, kind, reason in found if name == case}
    assert got == ({("steps-only", wanted)} if wanted else set())


def test_what_was_named_stays_named_after_a_restart(tmp_path: Path) -> None:
    job = in_folder(tmp_path, "lists")
    first = job.run(STOP_AT="15")
    assert first.code == EXIT_SAVED, first.err
    second = job.run()
    assert second.code == 0, second.err
    assert second.lines("LIST") == ["LIST 5"], "the list of 20 losses begins again"
    written = (tmp_path / "lists.txt").read_text()
    assert written == "step\n" * 20, "what is appended in a fit is not named: it is complete"
    for ended in (first, second):
        assert_named(ended, "unknown", f"{OBJECTS} (losses)")


def assert_named(ended: Ended, kind: str, beginning: str) -> None:
    """Every report since the first step has the verdict."""
    reports = [report.progress for report in ended.reports if report.progress.step]
    assert reports
    for progress in reports[-3:]:
        assert progress.trajectory == kind
        assert (progress.trajectory_reason or "").startswith(beginning)


@pytest.mark.parametrize(
    ("cases", "stops"),
    [
        pytest.param(["best_file"], ["14"], marks=pytest.mark.gate),
        (["own_patience", "in_turn"], ["14", "22"]),
    ],
)
def test_code_between_finished_fits_sees_the_weights_of_their_ends(
    tmp_path: Path, cases: list[str], stops: list[str]
) -> None:
    wanted = plain(BETWEEN, *cases, FOLDER=str(tmp_path))
    job = Job(tmp_path / "job", BETWEEN, tuple(cases), {"FOLDER": str(tmp_path)})
    processes = [job.run(1, STOP_AT=stop) for stop in stops]
    assert [ended.code for ended in processes] == [EXIT_SAVED] * len(stops)
    last = job.run(1)
    assert last.code == 0, last.err
    for word in ("EVALUATED", "OTHER", "BEST"):
        assert last.lines(word) == wanted.lines(word), word
    steps = [line for ended in (*processes, last) for line in ended.lines("STEP")]
    assert steps == wanted.lines("STEP")
    assert last.reports[-1].progress.trajectory == "exact"


def test_weights_of_finished_fits_that_are_lost_are_named(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", BETWEEN, ("best_file",), {"FOLDER": str(tmp_path)})
    assert job.run(1, STOP_AT="14").code == EXIT_SAVED
    for folder in job.checkpoints.glob("fit-*"):
        shutil.rmtree(folder)
    second = job.run(1)
    assert second.code == 0, second.err
    assert_named(second, "unknown", "code between finished `fit` calls gets newer weights")
