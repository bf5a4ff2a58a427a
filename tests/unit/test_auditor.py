"""The campaign's auditor: a /proc in a folder, and ledgers, with each violation planted."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.chaos import auditor
from tests.chaos.auditor import Auditor, Proc, value_at

HOME = "/srv/home"
GROUP = "reshape-0123456789ab"


class Machine:
    """A folder that looks as /proc does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "proc").mkdir()
        (folder / "ledgers").mkdir()
        self.auditor = Auditor(Proc(HOME, folder / "proc"), folder / "ledgers")

    def process(
        self,
        pid: int,
        job: str = "",
        generation: str = "1",
        *,
        attempt: int = 1,
        gpus: str = "sim-0",
        group: str = "/",
        words: str = "python",
        began: int = 1,
        state: str = "S",
        size: int = 4096,
    ) -> None:
        place = self.folder / "proc" / str(pid)
        place.mkdir(exist_ok=True)
        zeros = " ".join("0" * 18)
        (place / "stat").write_text(f"{pid} (py) thon) {state} {zeros} {began} {size} 0")
        named = {
            "RESHAPE_JOB": job,
            "RESHAPE_ATTEMPT": attempt,
            "RESHAPE_GENERATION": generation,
            "RESHAPE_SOCKET": f"{HOME}/jobs/{job}/attempt-1/run/agent.sock",
            "CUDA_VISIBLE_DEVICES": "",
            "RESHAPE_DEVICES": gpus,
        }
        env = "\0".join(f"{name}={value}" for name, value in named.items()) if job else ""
        (place / "environ").write_text(env)
        (place / "cgroup").write_text(f"0::{group}\n")
        (place / "cmdline").write_text(f"{words}\0")

    def line(
        self, name: str, start: str, what: str, step: int, at_s: float, gpus: str = "sim-0"
    ) -> None:
        """Append to a ledger; ``start``: job, attempt and generation."""
        text = f"{start} {what} {step} {value_at(step)} {at_s} {gpus}\n"
        with (self.folder / "ledgers" / f"{name}.ledger").open("a") as file:
            file.write(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def group_of(job: str, generation: int) -> str:
    return f"/{GROUP}/{job}.attempt-1/generation-{generation}"


def test_two_jobs_on_two_gpus_are_right(machine: Machine) -> None:
    machine.process(10, "a-1", gpus="sim-0,sim-1")
    machine.process(11, "b-1", gpus="sim-2")
    machine.process(12, "a-1", gpus="sim-0,sim-1")
    assert machine.auditor.look() == []
    assert machine.auditor.summary()["starts"] == 2


def test_a_planted_double_grant_is_seen_once(machine: Machine) -> None:
    machine.process(10, "a-1", gpus="sim-0,sim-1")
    machine.process(11, "b-1", gpus="sim-1,sim-2")
    (found,) = machine.auditor.look()
    assert found.startswith("two hold a GPU: sim-1")
    assert "a-1" in found
    assert "b-1" in found
    assert machine.auditor.look() == []


@pytest.mark.parametrize("other", [("a-1", "2", 1), ("a-1", "1", 2)])
def test_two_starts_of_one_job_on_one_gpu_are_a_double_grant(
    machine: Machine, other: tuple[str, str, int]
) -> None:
    machine.process(10, "a-1")
    machine.process(11, other[0], other[1], attempt=other[2])
    assert len(machine.auditor.look()) == 1


@pytest.mark.parametrize("ended", [{"state": "Z"}, {"state": "X"}, {"size": 0}])
def test_a_process_that_has_ended_holds_nothing(
    machine: Machine, ended: dict[str, str | int]
) -> None:
    machine.process(10, "a-1", **ended)  # type: ignore[arg-type]
    machine.process(11, "b-1")
    assert machine.auditor.look() == []


def test_a_process_that_ends_during_the_look_is_no_violation(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(10, "a-1")
    machine.process(11, "b-1")
    monkeypatch.setattr(Proc, "lives", lambda _, process: process.pid != 10)
    assert machine.auditor.look() == []


def test_a_successor_and_a_zygote_hold_nothing(machine: Machine) -> None:
    machine.process(10, "a-1")
    machine.process(11, "a-1", "w_________")
    machine.process(12, "b-1", "")
    assert machine.auditor.look() == []


def test_an_escape_without_environment_is_seen_by_its_cgroup(machine: Machine) -> None:
    machine.process(10, "a-1", group=group_of("a-1", 1))
    assert machine.auditor.look() == []
    machine.process(10, state="Z")
    machine.process(11, group=group_of("a-1", 1))
    machine.process(12, "b-1", group=group_of("b-1", 1))
    assert len(machine.auditor.look()) == 1


def test_an_escape_without_environment_and_group_is_seen_by_its_tag(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    home = tmp_path / "home"
    (home / "jobs" / "a-1").mkdir(parents=True)
    machine.auditor.proc._home = str(home)
    machine.process(11, words="python\0hides-a-1.1.3.sim-0+sim-1")
    machine.process(12, words="python\0hides-b-1.1.3.sim-0")  # of another home
    assert machine.auditor.look() == []
    assert machine.auditor.starts == {auditor.Start("a-1", 1, 3)}


def test_a_foreign_process_is_not_looked_at_again_and_its_pid_is(machine: Machine) -> None:
    machine.process(10, words="sshd")
    machine.auditor.look()
    machine.process(10, "a-1")  # not possible: the same process
    assert machine.auditor.look() == []
    machine.process(10, "a-1", began=2)
    machine.process(11, "b-1")
    assert len(machine.auditor.look()) == 1


def test_a_start_of_a_completed_job_is_a_violation_and_a_fork_of_before_is_not(
    machine: Machine,
) -> None:
    machine.process(10, "a-1")
    machine.auditor.look()
    machine.auditor.completed("a-1")
    machine.process(11, "a-1", began=1 << 60)
    assert machine.auditor.look() == []
    machine.process(10, state="Z")
    machine.process(11, state="Z")
    machine.process(12, "a-1", "2", began=1 << 60)
    (found,) = machine.auditor.look()
    assert found.startswith("trained again")


def test_a_ledger_in_order_is_right(machine: Machine) -> None:
    machine.line("a", "a-1 1 1", "begin", 0, 1.0)
    machine.line("a", "a-1 1 1", "step", 5, 1.5)
    machine.line("a", "a-1 1 1", "saved", 7, 2.0)
    machine.line("a", "a-1 1 2", "begin", 7, 2.5)
    machine.line("a", "a-1 1 2", "finished", 9, 3.0)
    machine.line("a", "a-1 2 1", "begin", 9, 3.5)  # its completion was not reported yet
    machine.line("a", "a-1 2 1", "finished", 9, 3.6)
    assert machine.auditor.look() == []
    assert machine.auditor.finished() == {"a"}


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("saved steps lost", [("1 1", "saved", 7), ("1 2", "begin", 5)]),
        ("an older start goes on", [("1 2", "begin", 0), ("1 1", "step", 5)]),
        ("an older start goes on", [("2 1", "begin", 0), ("1 4", "saved", 5)]),
        ("trained again", [("1 1", "finished", 9), ("1 2", "step", 10)]),
    ],
)
def test_a_ledger_shows(machine: Machine, kind: str, lines: list[tuple[str, str, int]]) -> None:
    for number, (start, what, step) in enumerate(lines):
        machine.line("a", f"a-1 {start}", what, step, float(number))
    (found,) = machine.auditor.look()
    assert found.startswith(kind)


def test_a_value_of_other_steps_is_a_violation(machine: Machine) -> None:
    path = machine.folder / "ledgers" / "a.ledger"
    path.write_text(f"a-1 1 1 begin 5 {value_at(6)} 1.0 sim-0\n")
    (found,) = machine.auditor.look()
    assert found.startswith("a step left out or repeated")


def test_lines_of_two_jobs_on_one_gpu_at_one_time_are_a_double_grant(machine: Machine) -> None:
    machine.line("a", "a-1 1 1", "begin", 0, 1.0, "sim-0,sim-1")
    machine.line("b", "b-1 1 1", "begin", 0, 2.0, "sim-1")
    assert machine.auditor.look() == []
    machine.line("a", "a-1 1 1", "step", 5, 2.1, "sim-0,sim-1")
    machine.line("b", "b-1 1 1", "step", 5, 2.2, "sim-1")
    (found,) = machine.auditor.look()
    assert found.startswith("two train on a GPU")


def test_half_a_line_is_read_once_it_is_whole(machine: Machine) -> None:
    path = machine.folder / "ledgers" / "a.ledger"
    path.write_text(f"a-1 1 1 finished 5 {value_at(5)}")
    assert machine.auditor.look() == []
    assert machine.auditor.finished() == set()
    with path.open("a") as file:
        file.write(" 1.0 sim-0\n")
    assert machine.auditor.look() == []
    assert machine.auditor.finished() == {"a"}


def test_it_imports_the_standard_library_alone() -> None:
    names = set()
    for node in ast.walk(ast.parse(Path(auditor.__file__).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    assert "os" in names
