"""One process per GPU: the ranks of a group stop after the same step, and end with each other."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar.ranks.boundary import RankBoundary
from reshape_sidecar.ranks.page import Page
from reshape_sidecar.ranks.run import Group
from reshape_sidecar.wire import EXIT_SAVED
from tests.support.rank_runs import WAIT_S, RankRun

JOINED = """
import os, sys, time, types
from pathlib import Path
from reshape_sidecar import session
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
group = types.SimpleNamespace(is_initialized=lambda: True, get_world_size=lambda: ranks)
sys.modules["torch.distributed"] = group
def say(*words):
    "Print a line by one write, for ranks share the log and their output has no buffer."
    print(" ".join(map(str, ("rank", rank, *words))) + "\\n", end="", flush=True)
"""
TRAINS = (
    JOINED
    + """
def meet(step):
    Path(f"met-{rank}-{step}").touch()
    while not all(Path(f"met-{other}-{step}").exists() for other in range(ranks)):
        time.sleep(0.001)

def save(folder):
    if Path("full").exists():
        raise OSError(28, "No space left on device")
    (folder / "state").write_text(str(job.step))

job = session.start(total_steps=int(sys.argv[1]))
while job.step < job.total_steps:
    meet(job.step)
    time.sleep(0.002 * (rank + 1))
    say("step", job.step + 1)
    job.step_done(save)
job.finished(save)
say("ends")
"""
)

BY_HAND = TRAINS.replace(
    "    job.step_done(save)\n",
    "    job.step_done()\n    if job.should_stop() and job.save(save):\n        job.leave()\n",
)
SHOWS_PHASES = """
from reshape_sidecar.hook.progress import ProgressReporter
report = ProgressReporter.phase
def phase(reporter, name):
    say("is", name)
    report(reporter, name)
ProgressReporter.phase = phase
"""


class Start(RankRun):
    """A group of ranks of one program."""

    def __init__(self, folder: Path, program: str, *arguments: str, ranks: int = 3) -> None:
        (folder / "train.py").write_text(program)
        super().__init__(folder, (sys.executable, "train.py", *arguments), ranks)

    def ends(self) -> int:
        """Wait for the end; return the exit code. No process is left at that moment."""
        code = self.process.wait(WAIT_S)
        assert self.pids() == [], "no rank outlives the training process"
        self.leaves_nothing()
        return code


@pytest.fixture
def started() -> Iterator[list[Start]]:
    starts: list[Start] = []
    yield starts
    for start in starts:
        start.kill()


def test_all_ranks_stop_after_the_same_step_and_the_next_start_goes_on(
    tmp_path: Path, started: list[Start]
) -> None:
    saved = 0
    for after, ranks in ((5, 3), (40, 2)):
        started.append(start := Start(tmp_path, TRAINS, "10000", ranks=ranks))
        start.prints(f"rank 1 step {after}\n")
        start.process.send_signal(signal.SIGTERM)
        assert start.ends() == EXIT_SAVED, start.text
        saved = start.saved_step() or 0
        assert saved >= after
        assert {start.steps()[rank] for rank in range(ranks)} == {saved}
        start.log.unlink()
    started.append(start := Start(tmp_path, TRAINS, str(saved + 20), ranks=1))
    assert start.ends() == 0, start.text
    assert re.findall(r"step (\d+)", start.text) == [str(saved + n) for n in range(1, 21)]


@pytest.mark.parametrize("killed", [0, 2])
def test_a_dead_rank_ends_the_others_at_once(
    tmp_path: Path, started: list[Start], killed: int
) -> None:
    started.append(start := Start(tmp_path, TRAINS, "10000"))
    start.prints("rank 1 step 3\n")
    pid = start.rank(killed)
    os.kill(pid, signal.SIGKILL)
    began_s = time.monotonic()
    assert start.ends() == 128 + signal.SIGKILL
    assert time.monotonic() - began_s < 5
    said = f"rank {killed} of 3 (pid {pid}) was ended by signal 9"
    assert f"reshape: {said}, and 2 others end with it" in start.text


ABORTS_AS_PYTHON_ENDS = "import atexit, os, sys\natexit.register(os.abort)\n"
"""As PyTorch does now and then."""
ABORTED = 128 + signal.SIGABRT


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("", 0),
        ("sys.exit(0)", 0),
        ("os.abort()", ABORTED),
        ("sys.exit(3)", ABORTED),
        ("raise ValueError", ABORTED),
        (TRAINS, 0),
        (TRAINS + "raise ValueError", ABORTED),
    ],
)
def test_an_abort_as_python_ends_is_no_failure_of_a_script_that_has_ended(
    tmp_path: Path, started: list[Start], program: str, code: int
) -> None:
    started.append(start := Start(tmp_path, ABORTS_AS_PYTHON_ENDS + program, "5", ranks=2))
    assert start.ends() == code, start.text
    assert start.text.count("aborted after its script: this is no failure") == (0 if code else 2)


def test_no_rank_outlives_the_kill_of_its_parent(tmp_path: Path, started: list[Start]) -> None:
    started.append(start := Start(tmp_path, TRAINS, "10000"))
    start.prints("rank 1 step 3\n")
    start.process.kill()
    start.process.wait()
    start.leaves_nothing()


def test_a_release_waits_for_each_rank(tmp_path: Path, started: list[Start]) -> None:
    """R4: rank 0 is gone, and another one does not end; the devices are not free."""
    program = JOINED + "time.sleep(600 if rank else 0.5)\n"
    started.append(start := Start(tmp_path, program, ranks=2))
    give_up_s = time.monotonic() + WAIT_S
    while len(start.pids()) != 2:
        assert time.monotonic() < give_up_s
        time.sleep(0.01)
    while len(start.pids()) != 1:
        assert time.monotonic() < give_up_s
        time.sleep(0.01)
    time.sleep(0.5)
    assert len(start.pids()) == 1
    assert start.process.poll() is None, "the training process runs as long as one of its ranks"


MEETING = """
import os
from pathlib import Path
given = os.environ.get("RESHAPE_RENDEZVOUS_FD")
open_files = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.exists()]
sockets = [name for name in open_files if name.startswith("socket:")]
text = f"rank {os.environ['RANK']} meets at {os.environ['MASTER_PORT']} by {len(sockets)} {given}"
os.write(1, f"{text}\\n".encode())
"""


def test_ranks_without_the_hook_meet_where_the_agent_says(tmp_path: Path) -> None:
    run = RankRun(tmp_path, (sys.executable, "-c", MEETING), 2)
    try:
        assert run.ends() == 0, run.text
        said = [f"rank {rank} meets at {run.port} by 0 None" for rank in range(2)]
        assert sorted(run.text.splitlines()) == said
    finally:
        run.kill()


def test_rank_0_alone_has_the_socket_at_which_ranks_with_the_hook_meet(
    tmp_path: Path, started: list[Start]
) -> None:
    started.append(start := Start(tmp_path, MEETING, ranks=3))
    assert start.ends() == 0, start.text
    said = re.findall(r"rank (\d) meets at (\d+) by (\d) None", start.text)
    assert sorted((rank, sockets) for rank, _, sockets in said) == [
        ("0", "1"),
        ("1", "0"),
        ("2", "0"),
    ]
    ports = {port for _, port, _ in said}
    assert len(ports) == 1
    assert str(start.port) not in ports


def test_ranks_train_on_if_a_request_is_withdrawn(tmp_path: Path, started: list[Start]) -> None:
    started.append(start := Start(tmp_path, TRAINS, "300"))
    start.prints("rank 1 step 3\n")
    (tmp_path / "keep-running").touch()
    start.process.send_signal(signal.SIGTERM)
    assert start.ends() == 0
    assert start.steps() == {0: 300, 1: 300, 2: 300}


def test_ranks_train_on_if_the_save_fails_and_stop_once_there_is_room(
    tmp_path: Path, started: list[Start]
) -> None:
    (tmp_path / "full").touch()
    started.append(start := Start(tmp_path, TRAINS, "100000"))
    start.prints("rank 1 step 3\n")
    start.process.send_signal(signal.SIGTERM)
    start.prints("is not saved|No space left")
    failed = max(start.steps().values())
    start.prints(f"rank 2 step {failed + 20}\n")
    (tmp_path / "full").unlink()
    assert start.ends() == EXIT_SAVED, start.text
    assert set(start.steps().values()) == {start.saved_step()}


def test_a_failed_save_by_hand_ends_and_the_request_can_be_withdrawn(
    tmp_path: Path, started: list[Start]
) -> None:
    (tmp_path / "full").touch()
    started.append(start := Start(tmp_path, BY_HAND, "200", ranks=2))
    start.prints("rank 1 step 3\n")
    start.process.send_signal(signal.SIGTERM)
    start.prints("is not saved|No space left")
    failed = max(start.steps().values())
    start.prints(f"rank 1 step {failed + 5}\n")
    (tmp_path / "keep-running").touch()
    (tmp_path / "full").unlink()
    assert start.ends() == 0, start.text
    assert start.steps() == {0: 200, 1: 200}


def test_rank_0_alone_writes_and_reports_that_it_saves_until_it_leaves(
    tmp_path: Path, started: list[Start]
) -> None:
    program = BY_HAND.replace("def save(folder):", "def save(folder):\n    say('writes')")
    started.append(start := Start(tmp_path, JOINED + SHOWS_PHASES + program, "10000", ranks=2))
    start.prints("rank 1 step 3\n")
    start.process.send_signal(signal.SIGTERM)
    assert start.ends() == EXIT_SAVED, start.text
    assert re.findall(r"rank 0 is (\w+)", start.text)[-3:] == ["training", "saving", "saved"]
    assert re.findall(r"(\d) writes", start.text) == ["0"]
    assert set(start.steps().values()) == {start.saved_step()}


def test_a_rank_that_has_not_joined_the_group_ends_the_start_by_name(
    tmp_path: Path, started: list[Start]
) -> None:
    alone = TRAINS.replace("is_initialized=lambda: True", "is_initialized=lambda: False")
    started.append(start := Start(tmp_path, alone, "100"))
    assert start.ends() == 1
    assert re.search(r"rank \d of 3 trains without the others", start.text)
    assert "`processes: one` in the job's record" in start.text


def test_ranks_without_a_session_get_the_signal_themselves(
    tmp_path: Path, started: list[Start]
) -> None:
    program = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "print('rank ' + os.environ['RANK'] + ' waits\\n', end='', flush=True)\n"
        "time.sleep(600)\n"
    )
    started.append(start := Start(tmp_path, program))
    for rank in range(3):
        start.prints(f"rank {rank} waits")
    start.process.send_signal(signal.SIGTERM)
    assert start.ends() == EXIT_SAVED


@pytest.mark.parametrize("late_s", [0.0, 0.5])
def test_a_rank_that_a_sigterm_ends_before_it_takes_part_ends_the_others(
    tmp_path: Path, started: list[Start], late_s: float
) -> None:
    """Rank 0 waits for it, as in `init_process_group`; it begins before the signal, or later."""
    program = (
        JOINED
        + "import signal\n"
        + "signal.signal(signal.SIGTERM, signal.SIG_IGN if rank == 0 else signal.SIG_DFL)\n"
        + f"late_s = {late_s}\n"
        + "if late_s or rank: say('waits')\n"
        + "time.sleep(600 if rank else late_s)\n"
        + "job = session.start()\n"
        + "say('waits')\n"
        + "time.sleep(600)\n"
    )
    started.append(start := Start(tmp_path, program, ranks=2))
    for rank in range(2):
        start.prints(f"rank {rank} waits")
    start.process.send_signal(signal.SIGTERM)
    began_s = time.monotonic()
    assert start.ends() == 128 + signal.SIGTERM, start.text
    assert time.monotonic() - began_s < 5


def test_a_rank_that_has_passed_the_target_moves_it() -> None:
    page = Page.create(2)
    ranks = [RankBoundary(Page(page.path, 2), rank) for rank in range(2)]
    for rank in ranks:
        rank.take_part(10)
    group = Group(page, [])
    group.ask()
    group.advance(0.0)
    assert page.target == 11
    page.park(0, 11)  # rank 1 has read the page, and has not yet written that it goes on
    page.begin(1, 12)
    group.advance(0.0)
    assert (page.target, page.committed) == (12, 0)
    assert not ranks[0].stops_after(11)
    for number in range(2):
        assert page.committed == 0
        page.park(number, 12)
        group.advance(0.0)
    assert page.committed == 12
    assert all(rank.stops_after(12) for rank in ranks)


def test_a_stop_commits_at_a_boundary_of_several_steps() -> None:
    page = Page.create(2)
    for rank in range(2):
        page.begin(rank, 9)  # eight steps are done, and the boundary before counted four
    group = Group(page, [])
    group.ask()
    group.advance(0.0)
    page.park(0, 12)
    group.advance(0.0)
    assert (page.target, page.committed) == (9, 0)
    page.park(1, 12)
    group.advance(0.0)
    assert (page.target, page.committed) == (12, 12)
    assert all(RankBoundary(page, rank).stops_after(12) for rank in range(2))


@pytest.mark.parametrize("late", range(3))
def test_nothing_is_committed_while_a_rank_is_not_parked(late: int) -> None:
    page = Page.create(3)
    for rank in range(3):
        page.begin(rank, 11)
    group = Group(page, [])
    group.ask()
    group.advance(0.0)
    for rank in {0, 1, 2} - {late}:
        page.park(rank, 11)
    group.advance(0.0)
    group.advance(0.0)  # twice: the first could only have raised the target
    assert (page.target, page.committed) == (11, 0)
    page.begin(late, 12)  # it had read the page before the target was written
    group.advance(0.0)
    assert (page.target, page.committed) == (12, 0)


class Told:
    """A rank that notes its signals and may have ended."""

    pid = 0

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.code: int | None = None

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def poll(self) -> int | None:
        return self.code


def test_a_rank_that_takes_no_part_any_longer_gets_a_pending_request_once() -> None:
    page, processes_ = Page.create(2), [Told(), Told()]
    ranks = [RankBoundary(Page(page.path, 2), number) for number in range(2)]
    for rank in ranks:
        rank.take_part(10)
    group = Group(page, processes_)  # type: ignore[arg-type]
    group.ask()
    group.advance(0.0)
    ranks[1].rest()
    for _ in range(2):
        group.advance(0.0)
    assert [told.signals for told in processes_] == [[], [signal.SIGTERM]]


def test_a_rank_that_fails_because_rank_0_has_left_on_request_is_no_failure() -> None:
    page, (chief, other) = Page.create(2), (Told(), Told())
    group = Group(page, [chief, other])  # type: ignore[list-item]
    page.begin(1, 11)  # it waits for rank 0, which has ended a loop and begun no other
    group.ask()
    chief.code = EXIT_SAVED
    assert group._ended() is None
    other.code = 1
    assert group._ended() == EXIT_SAVED


def test_a_save_that_rank_0_announces_comes_after_the_next_step_of_each_rank() -> None:
    page = Page.create(2)
    chief, other = (RankBoundary(Page(page.path, 2), number) for number in range(2))
    assert not chief.saves_after(5, is_due=True)
    for rank in (chief, other):
        assert [step for step in (6, 7, 8) if rank.saves_after(step, is_due=False)] == [6]


def test_a_rank_that_has_launched_the_next_step_hears_of_the_save_that_rank_0_announces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU's steps are launched ahead: rank 0 is still before its announcement."""
    page = Page.create(2)
    chief, other = (RankBoundary(Page(page.path, 2), number) for number in range(2))
    assert not chief.saves_after(4, is_due=False)
    monkeypatch.setattr(time, "sleep", lambda _: chief.saves_after(5, is_due=True))
    assert other.saves_after(6, is_due=False)


def test_a_request_that_follows_a_withdrawn_one_waits_for_ranks_that_are_still_parked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    withdrawn = tmp_path / "keep-running"
    monkeypatch.setenv("RESHAPE_KEEP_RUNNING", str(withdrawn))
    page = Page.create(2)
    for rank in range(2):
        page.begin(rank, 12)
    group = Group(page, [])
    group.ask()
    group.advance(0.0)
    page.park(0, 12)
    withdrawn.touch()
    group.advance(0.0)
    assert (page.target, page.committed) == (0, 0)
    withdrawn.unlink()
    group.ask()
    group.advance(0.0)
    page.park(1, 12)
    group.advance(0.0)
    assert (page.target, page.committed) == (0, 0), "rank 0 goes on as soon as it runs"
    page.begin(1, 13)
    assert not RankBoundary(page, 0).stops_after(12)
    group.advance(0.0)
    assert (page.target, page.committed) == (13, 0)


def test_a_stop_at_any_moment_neither_hangs_nor_loses_a_step(
    tmp_path: Path, started: list[Start]
) -> None:
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        started.append(start := Start(folder, TRAINS, "40"))
        start.prints("rank 0 step 1\n")
        time.sleep(0.007 * number)
        start.process.send_signal(signal.SIGTERM)
        assert start.ends() in (0, EXIT_SAVED), start.text
        assert set(start.steps().values()) == {start.saved_step()}
