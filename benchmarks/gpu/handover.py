"""Step 3: the GPU goes from one job to another and back, with the seconds of each phase.

Each repeat: the first job is paused, the second, which is queued, gets the GPU; the second is
cancelled, and the first is resumed. Every process starts cold. Seconds of a row:

*save_wait*: the request to the begin of the save, at the end of a step; *stop*: the end of the save
to the end of the process; *memory_free*: from there until the GPU holds less than the launcher's
floor; *memory_as_before*: until it holds what it held before the run; *granted*: until the
controller shows the next job as the owner; *begin*: the grant to the first line of the script;
*import*, *context*, *restore*, *first_step*: as named; *build*: the model and its optimizer, with
what PyTorch imports only for them; *without_steps*: the end of the
last step of the old job to the end of the first one of the next.
"""

from __future__ import annotations

import time
from typing import Any

from gpu.daemon import Daemon, Job
from gpu.memory import Samples
from gpu.step import MIB, Step

from reshape_sidecar.gpu import FREE_MEMORY_BYTES

MEMORY_BYTES = 1 << 30
REPEATS = 5
REPEATS_STAND_IN = 1
RELEASE_S = 60.0
TRAINS_S = 1.0
"""How long a job trains before it has to leave."""
Row = dict[str, Any]


def run(step: Step) -> None:
    """Pass the GPU on, every process cold."""
    with Samples(step.uuid) as samples, Daemon(step) as daemon:
        measure(step, daemon, samples, "off", REPEATS if step.is_real else REPEATS_STAND_IN)
        samples.save(step.logs / "memory.csv")


def measure(
    step: Step, daemon: Daemon, samples: Samples, standby: str, repeats: int, prefix: str = ""
) -> None:
    """Pass the GPU on until the repeats or the time are over, and write each row at once.

    standby: ``off`` or ``auto``, of both jobs. prefix: begins the names of the jobs and figures.
    """
    there: list[Row] = []
    back: list[Row] = []
    words = ("--memory", str(MEMORY_BYTES))
    fields = {"handover": {"standby": standby, "overlap": "off"}}
    jobs = prefix.replace("_", "-")
    first = daemon.submit(f"{jobs}first", *words, **fields)
    mark = first.trains()
    for repeat in range(repeats):
        began_s = time.monotonic()
        second = daemon.submit(f"{jobs}second-{repeat}", *words, **fields)
        time.sleep(TRAINS_S)
        next_mark, row = _pass_on(step, daemon, samples, first, second, mark, "pause")
        there.append(row)
        step.put(**{f"{prefix}pause_first_start_second": there})
        time.sleep(TRAINS_S)
        mark, row = _pass_on(step, daemon, samples, second, first, next_mark, "cancel")
        back.append(row)
        step.put(**{f"{prefix}give_it_back": back})
        if step.left_s < 1.5 * (time.monotonic() - began_s):
            break
    free = all(row["used_at_grant_mib"] * MIB <= FREE_MEMORY_BYTES for row in there + back)
    step.check("no grant before the memory was free", free)
    failures = first.view.failures
    step.check("the first job failed at no time", failures == 0, str(failures))
    done = len(back)
    found = str(done) if done == repeats else f"{done}: there was no time for the rest"
    step.check(f"{repeats} repeats", done == repeats, found)


def _pass_on(
    step: Step,
    daemon: Daemon,
    samples: Samples,
    old: Job,
    new: Job,
    mark: Row,
    request: str,
) -> tuple[Row, Row]:
    """Send ``request`` to ``old`` and wait until ``new`` trains; its first step, and the row."""
    samples.watch(mark["pid"])
    asked_s = time.monotonic()
    old.ask(request)
    if request == "cancel":
        new.ask("resume")
    granted_s = step.wait(
        lambda: time.monotonic() if daemon.gpu().owner == new.id else None,
        f"the GPU is granted to {new.name} (it is {daemon.gpu().state})",
        RELEASE_S,
    )
    first_step = new.trains(asked_s)
    gone_s = step.wait(lambda: samples.gone_s(mark["pid"]), "the old process is gone", RELEASE_S)
    begin = new.last("begin", asked_s) or first_step
    free_s = samples.below_s(FREE_MEMORY_BYTES, gone_s)
    before_s = samples.as_before_s(gone_s)
    saves = (old.last("save-begin", asked_s), old.last("save-end", asked_s))
    save_begin_s, save_end_s = (found["at_s"] if found else None for found in saves)
    last_step = old.last("step", 0.0) or mark
    row = {
        "save_wait_s": _between(asked_s, save_begin_s),
        "save_s": _between(save_begin_s, save_end_s),
        "stop_s": _between(save_end_s or asked_s, gone_s),
        "memory_free_s": _between(gone_s, free_s),
        "memory_as_before_s": _between(gone_s, before_s),
        "granted_s": _between(gone_s, granted_s),
        "begin_s": _between(granted_s, begin.get("began_s")),
        "how": (how := new.view.times.how) and str(how),
        **new.start_phases(asked_s),
        "without_steps_s": _between(save_begin_s or last_step["at_s"], first_step["at_s"]),
        "used_at_grant_mib": samples.before(begin.get("began_s", granted_s)) // MIB,
    }
    return first_step, row


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else round(end_s - start_s, 4)
