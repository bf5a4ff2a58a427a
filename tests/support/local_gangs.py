"""A daemon that plays two hosts of four simulated GPUs each, and jobs with a worker on each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.init.look import init_of
from tests.support.daemon_bed import Bed, eventually
from tests.support.gang_program import LOCKSTEP

FIRST, SECOND = "local", "local-1"
HOSTS = ("--hosts", "2", "--simulated-gpus", "4")
STEPS = 100_000
"""More than any of these tests waits for."""


def up(bed: Bed, *words: str) -> None:
    """Start a daemon of two hosts which soon gives a host up, and whose policy halves gangs."""
    policy = ("--policy", "halve-gangs")
    bed.up(*HOSTS, *policy, *words, program="tests.support.impatient_daemon")


def submit(bed: Bed, name: str, script: str = LOCKSTEP, **fields: Any) -> str:
    """Submit a job of two workers that may be on both hosts, with four GPUs or eight; its id."""
    steps = fields.get("steps", STEPS)
    record = {
        "steps": steps,
        "command": ["python", f"{name}.py", str(steps), "0.08", "1000000000"],
        "workers": 2,
        "optional_gpus": [4, 8],
        "span": "any",
        **fields,
    }
    return bed.submit(name, script, **record)


def folder(bed: Bed, job: str, worker: int, attempt: int = 1) -> Folder:
    """Return the folder of a worker of such a job: the first is on the first host."""
    root: Path = bed.home / "hosts" / SECOND if worker else bed.home / "jobs"
    return Folder(root / job / f"attempt-{attempt}")


def output(bed: Bed, job: str, worker: int, attempt: int = 1) -> str:
    """Return what a worker printed."""
    path = folder(bed, job, worker, attempt).logs / "training.log"
    return path.read_text() if path.exists() else ""


def inits(bed: Bed, job: str) -> list[int]:
    """Return the pids of the inits of both workers' containers."""
    found = [init_of(folder(bed, job, worker).run) for worker in (0, 1)]
    return [init.pid for init in found if init is not None]


def trains(bed: Bed, job: str, size: int, least_s: float = 0.0) -> Any:
    """Wait until a job trains on so many GPUs; the job."""

    def there() -> Any:
        found = bed.job(job)
        assert found["state"] not in ("failed", "completed"), found
        return found if (found["state"], found["size"]) == ("running", size) else None

    text = f"{job} trains on {size}"
    return eventually(there, least_s=least_s, text=lambda: f"{text}: {bed.job(job)}\n{_ends(bed)}")


def give(bed: Bed, job: str, least_s: float = 0.0) -> str:
    """Have a job of eight GPUs give two of each host to a newcomer; the id of that one."""
    newcomer = submit(bed, "newcomer", optional_gpus=[4])
    trains(bed, job, 4, least_s)
    trains(bed, newcomer, 4, least_s)
    held = [(gpu["host"], gpu["owner"]) for gpu in bed.json("gpus")["gpus"]]
    wanted = [(host, owner) for host in (FIRST, SECOND) for owner in (job, newcomer)]
    assert sorted(held) == sorted(wanted * 2)
    return newcomer


def get_back(bed: Bed, job: str, newcomer: str, least_s: float = 0.0) -> Any:
    """Cancel the newcomer; return the job once it has its GPUs back."""
    bed.reshape("cancel", newcomer)
    bed.reaches(newcomer, "cancelled")
    return has_got_back(bed, job, least_s)


def has_got_back(bed: Bed, job: str, least_s: float = 0.0) -> Any:
    """Return the job once it trains on eight GPUs again, in the containers that it had, without a
    lost step."""
    found = trains(bed, job, 8, least_s)
    assert (found["reshape_downs"], found["reshape_ups"], found["steps_lost"]) == (1, 1, 0)
    assert (found["attempt"], found["failures"], found["container_restarts"]) == (1, 0, 0)
    return found


def _ends(bed: Bed) -> str:
    """Return the end of each log."""
    found = [bed.log, *sorted(bed.home.rglob("training.log"))]
    return "\n".join(f"{path}:\n{path.read_text()[-3000:]}" for path in found)
