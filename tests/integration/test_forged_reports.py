"""A job that speaks as its own SideCar frees no GPU: a release is verified, not believed (R4)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_bed import SAVES, Bed, eventually, start_of
from tests.support.daemon_bed import bed as make_bed

FORGER = """
import json, os, pathlib, signal, time, urllib.request
from reshape_sidecar import codec
from reshape_sidecar.wire import Desired, Mode, Observed, Outcome, OutcomeKind, Phase
signal.signal(signal.SIGTERM, signal.SIG_IGN)
attempt = pathlib.Path(os.environ["RESHAPE_SOCKET"]).parents[1]
spec, token = json.loads((attempt / "spec.json").read_text()), (attempt / "token").read_text()
own = f"{spec['job']}/{spec['attempt']}"
url = f"{spec['coordinator_url']}/v1/sidecar/{own}?wait_s=0"
headers = {"Authorization": "Bearer " + token.strip(), "Content-Type": "application/json"}
sequence = time.time_ns()  # beyond those of the SideCar: its reports are late from now on

def says(desired, phase, **more):
    global sequence
    sequence += 1
    report = Observed(
        spec["job"], spec["attempt"], desired.generation, sequence, phase, desired.epoch, **more
    )
    request = urllib.request.Request(url, codec.dumps(report).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return codec.loads(Desired, answer.read())

devices = tuple(os.environ["RESHAPE_DEVICES"].split(","))
me = {"devices": devices, "pid": os.getpid()}
memory = json.loads((attempt / "run" / "agent.json").read_text())
desired = codec.loads(Desired, json.dumps(memory["desired"]))
lies = 0
while True:
    time.sleep(0.1)
    if desired.mode is Mode.RUN and set(desired.devices) == set(devices):
        desired = says(desired, Phase.RUNNING, **me)
        continue
    lies += 1
    print("lie", lies, "to", desired.mode.value, flush=True)
    left = Outcome(desired.generation, OutcomeKind.STOPPING, saved_step=7)
    desired = says(
        desired, Phase.INITIALIZED, outcome=left, stopped_generation=desired.generation
    )
"""
"""Holds its GPUs for ever, and says in the name of its SideCar that it has saved and left them."""
RELEASES_S = 40.0
"""Beyond the deadline of a release that cannot be verified (``limits.LOCAL.verify_s``)."""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def states(bed: Bed) -> dict[str, Any]:
    return {gpu["id"]: gpu for gpu in bed._ask("/v1/gpus")[1]["gpus"]}


def test_a_job_that_says_it_left_its_gpus_keeps_them_from_all_others(bed: Bed) -> None:
    bed.up()
    forger = bed.submit("forger", FORGER, steps=None)
    pid = bed.pid(forger, size=4)
    began = start_of(pid)
    newcomer = bed.submit("newcomer", steps=80, optional_gpus=[2], max_wait_s=1)
    log = bed.home / "jobs" / forger / "attempt-1" / "logs" / "training.log"
    eventually(lambda: "lie 3" in log.read_text(), text="lies")

    def checked() -> bool:
        assert start_of(pid) == began, "it trains all the time"
        assert bed.job(newcomer)["size"] in (None, 0)
        found = states(bed).values()
        assert newcomer not in {gpu.get("job") for gpu in found}
        return any(gpu["state"] == "quarantined" for gpu in found)

    eventually(checked, least_s=RELEASES_S, text=lambda: f"{states(bed)}\n{bed._logs(forger)}")
    assert str(pid) in str(states(bed)), "the reason names the process"
    os.kill(pid, 0)


LIAR = """
import json, os, pathlib, time, urllib.error, urllib.request
from reshape_sidecar import codec
from reshape_sidecar.wire import Observed, Phase
attempt = pathlib.Path(os.environ["RESHAPE_SOCKET"]).parents[1]
spec, token = json.loads((attempt / "spec.json").read_text()), (attempt / "token").read_text()
url = f"{spec['coordinator_url']}/v1/sidecar/{spec['job']}/{spec['attempt']}?wait_s=0"
headers = {"Authorization": "Bearer " + token.strip(), "Content-Type": "application/json"}
while True:
    time.sleep(0.05)
    report = Observed(
        spec["job"], spec["attempt"], 1, time.time_ns(), Phase.RUNNING, epoch=1_000_000
    )
    request = urllib.request.Request(url, codec.dumps(report).encode(), headers)
    try:
        urllib.request.urlopen(request).close()
    except OSError as refused:
        print(getattr(refused, "code", "no answer"), flush=True)
"""
"""Says for ever, in the name of its SideCar, that it knows a later controller than this one."""


def test_a_job_that_lies_about_the_epoch_ends_no_daemon_at_any_of_three_starts(bed: Bed) -> None:
    bed.up()
    honest = bed.submit("honest", SAVES, steps=100_000, optional_gpus=[2])
    pid = bed.pid(honest, size=2)
    before = bed.reaches("honest", "running")
    liar = bed.submit("liar", LIAR, steps=None, optional_gpus=[2])

    def is_set_apart() -> bool:
        return bool(bed.job(liar)["reason"].startswith("set apart: "))

    eventually(is_set_apart, text=lambda: str(bed.job(liar)))
    for _ in range(3):
        bed.stop(signal.SIGKILL)
        bed.up()
        found = bed.reaches("honest", "running", size=2)
        assert (found["pid"], found["attempt"], found["steps_lost"]) == (pid, 1, 0)
        assert found["generation"] == before["generation"]
        eventually(is_set_apart, text=lambda: str(bed.job(liar)))
        assert len(bed.job(liar)["gpus"]) == 2, "its GPUs are its own"
    done = bed.reshape("cancel", liar)
    assert done.returncode == 0, done.stderr
    bed.reaches("liar", "cancelled")

    def two_are_idle() -> bool:
        idle = [gpu for gpu in states(bed).values() if gpu["state"] == "idle"]
        return len(idle) == 2

    eventually(two_are_idle, text=lambda: str(states(bed)))
