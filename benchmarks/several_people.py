"""Measure the daemon with many jobs and several clients.

    python benchmarks/several_people.py [--queued 10000] [--before FOLDER] [--only-get]

Starts a daemon with simulated GPUs in a folder of its own, and prints the CPU time of ``reshape
get`` with 3,000 jobs, request rate and latency with 20 clients, and how long the first decision
about one user's job takes while another user has 10,000 queued. With ``--before``, a checkout of an
earlier version, its ``reshape get`` is measured in turn with this one's.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.daemon_bed import SOURCES, Bed  # noqa: E402
from tests.support.daemon_bed import bed as bed_in  # noqa: E402

MEMBERS = 500
LISTED, QUEUED = 3_000, 10_000
CLIENTS, CLIENTS_S = 20, 10.0
COMMANDS = 7
PATHS = ("/v1/jobs?limit=200", "/v1/gpus", "/v1/status", "/v1/jobs/waits-0-7")


@contextmanager
def daemon() -> Iterator[Bed]:
    """A daemon whose four GPUs a job holds, so that all others wait."""
    with tempfile.TemporaryDirectory() as folder:
        beds = bed_in(Path(folder))
        bed = next(beds)
        try:
            bed.up()
            bed.reaches(bed.submit("holds", steps=1_000_000, optional_gpus=[4]), "running")
            yield bed
        finally:
            next(beds, None)


def submit_many(bed: Bed, first: int, end: int) -> list[float]:
    """Submit jobs that wait, by arrays; return the seconds of each array."""
    took_s = []
    for number in range(first // MEMBERS, end // MEMBERS):
        record = {
            **{"name": f"waits-{number}", "user": "ada", "command": ["true"], "code": "/"},
            **{"framework": "other", "optional_gpus": [4], "steps": 1000, "max_wait_s": 1e6},
            "array": {"N": list(range(MEMBERS))},
        }
        begin_s = time.monotonic()
        status, answer = bed.post("/v1/arrays", record)
        took_s.append(time.monotonic() - begin_s)
        assert status == 201, answer
    return took_s


def command_cpu_s(bed: Bed, checkouts: list[Path], *words: str) -> list[list[float]]:
    """Return the CPU seconds (user and system) of a command, for each checkout and run."""
    found: list[list[float]] = [[] for _ in checkouts]
    for _ in range(COMMANDS):
        for checkout, own in zip(checkouts, found, strict=True):
            path = ":".join(str(checkout / name) for name in SOURCES)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = bed.reshape(*words, PYTHONPATH=path)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert done.returncode == 0, done.stderr
            own.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return found


def latencies_s(bed: Bed, path: str) -> list[float]:
    """Return the latency of each request of 20 clients that ask one after the other."""
    found: list[list[float]] = [[] for _ in range(CLIENTS)]
    until_s = time.monotonic() + CLIENTS_S

    def ask(own: list[float]) -> None:
        while time.monotonic() < until_s:
            begin_s = time.monotonic()
            status, _ = bed._ask(path)
            assert status == 200, path
            own.append(time.monotonic() - begin_s)

    threads = [threading.Thread(target=ask, args=(own,)) for own in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [seconds for own in found for seconds in own]


def first_decision_s(bed: Bed, name: str) -> float:
    """Return the time from a submission of another user until a decision about it can be read."""
    record = {
        **{"name": name, "user": "bob", "command": ["true"], "framework": "other", "code": "/"},
        **{"optional_gpus": [4], "steps": 1000, "priority": 1, "max_wait_s": 1e6},
    }
    begin_s = time.monotonic()
    status, answer = bed.post("/v1/jobs", record)
    assert status == 201, answer
    while not bed._ask(f"/v1/jobs/{name}/decisions")[1]["decisions"]:
        if bed._ask(f"/v1/jobs/{name}")[1]["reason"]:
            break
        time.sleep(0.01)
    return time.monotonic() - begin_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the daemon with many jobs.")
    parser.add_argument("--queued", type=int, default=QUEUED, help="jobs of the other user")
    parser.add_argument("--before", type=Path, help="checkout of an earlier version")
    parser.add_argument("--only-get", action="store_true", help="measure reshape get alone")
    asked = parser.parse_args()
    checkouts = [ROOT, *([asked.before] if asked.before is not None else [])]
    with daemon() as bed:
        print(f"alone: first decision {first_decision_s(bed, 'alone'):.3f} s")
        arrays_s = submit_many(bed, 0, LISTED)
        print(f"arrays of {MEMBERS}: longest {max(arrays_s):.2f} s")
        for words in (("get",), ("get", "--all")):
            found = command_cpu_s(bed, checkouts, *words)
            for checkout, cpu_s in zip(checkouts, found, strict=True):
                print(
                    f"reshape {' '.join(words)}, {LISTED} jobs, {checkout.name}: CPU "
                    f"{min(cpu_s):.3f} s at best, median {statistics.median(cpu_s):.3f} s"
                )
        if asked.only_get:
            return
        for path in PATHS:
            waits_s = sorted(latencies_s(bed, path))
            p99_s = waits_s[int(len(waits_s) * 0.99)]
            rate = len(waits_s) / CLIENTS_S
            print(f"{CLIENTS} clients, {path}: {rate:.0f} a second, p99 {p99_s * 1e3:.0f} ms")
        submit_many(bed, LISTED, asked.queued)
        took_s = [first_decision_s(bed, f"bobs-{number}") for number in range(5)]
        print(
            f"another user has {asked.queued} queued: first decision "
            f"{', '.join(f'{each:.3f}' for each in took_s)} s"
        )


if __name__ == "__main__":
    main()
