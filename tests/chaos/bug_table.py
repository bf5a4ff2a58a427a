"""The bugs that ``tests.chaos.bugs`` plants. Does: holds values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CORE = "controller/reshape_controller/core"
LEDGER = f"{CORE}/coordinator/gpu_ledger.py"
HANDOVER = f"{CORE}/coordinator/handover.py"
ABORT = f"{CORE}/coordinator/handover_abort.py"
DEADLINES = f"{CORE}/deadlines.py"
CONVERGE = "sidecar/reshape_sidecar/agent/converge.py"
SUPERVISOR = "sidecar/reshape_sidecar/init/supervisor.py"
CHECKPOINTS = "sidecar/reshape_sidecar/checkpoints.py"


class Finder(Enum):
    """The command that must fail."""

    PLANS = "random plans"
    HANDOVERS = "random hand-overs"
    SIDECARS = "random SideCars"
    KILLS = "kills of daemons"
    CHAOS = "`make chaos`"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Bug:
    """One text of the product that is replaced."""

    name: str
    text: str
    """What the bug is, for the table."""
    path: str
    search: str
    """Text that is once in the module."""
    replace: str
    finder: Finder
    words: tuple[str, ...] = ()
    """More words for the finder's command."""


def _only(*kinds: str) -> tuple[str, ...]:
    return ("--only", ",".join(kinds))


ENGINE = (
    Bug(
        "grant-before-release",
        "a grant does not wait until the GPU is reserved for its job",
        LEDGER,
        "tx.state.gpus[gpu].state is GpuState.RESERVED and tx.state.gpus[gpu].owner == job",
        "job in (tx.state.gpus[gpu].promised_to, tx.state.gpus[gpu].owner)",
        Finder.PLANS,
    ),
    Bug(
        "claim-is-release",
        "a claimed release counts as a verified one",
        LEDGER,
        "    check(tx, tuple(tx.state.gpus[gpu] for gpu in gpus))\n",
        "    for gpu in gpus:\n        free(tx, tx.state.gpus[gpu])\n",
        Finder.PLANS,
    ),
    Bug(
        "release-by-time",
        "a release that was not verified in time counts as verified",
        DEADLINES,
        "    gpu_ledger.quarantine(tx, tx.state.gpus[gpu.id], reason)",
        "    gpu_ledger.free(tx, tx.state.gpus[gpu.id])",
        Finder.PLANS,
    ),
    Bug(
        "silent-host-is-empty",
        "the GPUs of a silent host are idle",
        LEDGER,
        "        _take_away(tx, gpu, GpuState.LOST, reason)",
        "        _take_away(tx, gpu, GpuState.IDLE, reason)",
        Finder.PLANS,
    ),
    Bug(
        "no-freeze",
        "a plan may name a party to a hand-over",
        f"{CORE}/plan_validation.py",
        "if job.frozen or not (is_queued(job)",
        "if not (is_queued(job)",
        Finder.PLANS,
    ),
    Bug(
        "no-attempt-fence",
        "a report of an earlier attempt counts",
        f"{CORE}/reports.py",
        "if report.attempt != before.attempt or report.sequence <= before.sequence:",
        "if report.sequence <= before.sequence:",
        Finder.TEST,
        ("tests/unit/core",),
    ),
    Bug(
        "late-report-counts",
        "a late report counts",
        f"{CORE}/reports.py",
        "if report.attempt != before.attempt or report.sequence <= before.sequence:",
        "if report.attempt != before.attempt:",
        Finder.TEST,
        ("tests/unit/core",),
    ),
    Bug(
        "donor-asked-early",
        "donors are asked before the newcomer is initialised",
        HANDOVER,
        "ready = job.stage in (Stage.READY, Stage.TRAINING) or not early",
        "ready = True",
        Finder.TEST,
        ("tests/unit/core",),
    ),
    Bug(
        "withdrawn-growth-frees",
        "a withdrawn growth frees GPUs that the job may use already",
        ABORT,
        "if change.kind is not ChangeKind.GROW:  # its",
        "if True:  # its",
        Finder.HANDOVERS,
    ),
    Bug(
        "growth-forgotten",
        "a job that ends while it grows leaves its new GPUs unverified",
        ABORT,
        "if donor.change is not None and donor.change.kind is ChangeKind.GROW:",
        "if False:",
        Finder.HANDOVERS,
    ),
    Bug(
        "wrong-generation-checked",
        "the check of a release passes over the newest generation that had the GPU",
        HANDOVER,
        "gpu_ledger.release(tx, job_id, given, job.generation - 1)",
        "gpu_ledger.release(tx, job_id, given, job.generation - 2)",
        Finder.TEST,
        ("tests/unit/core",),
    ),
    Bug(
        "deadline-without-effect",
        "a process tree that does not end in time is waited for without end",
        DEADLINES,
        '            reason = f"its training processes still ran after {waited}"\n'
        "            attempts.remove(tx, job_id, reason, after=job.after_end)",
        "            tx.update(job_id, deadline=None)",
        Finder.TEST,
        ("tests/unit/core",),
    ),
    Bug(
        "effects-once",
        "after a kill the desired states are not repeated",
        f"{CORE}/engine.py",
        "            if desired is not None:\n                commands.append(SetDesired(desired))",
        "            del desired",
        Finder.TEST,
        ("tests/unit/core",),
    ),
    Bug(
        "unsaved-preempted",
        "a job that cannot save is preempted",
        HANDOVER,
        'unsaved = "it cannot save its steps" if leaves and donor.program.loses else ""',
        'unsaved = "" if leaves else ""',
        Finder.TEST,
        ("tests/unit/core",),
    ),
    Bug(
        "promise-stays",
        "an aborted hand-over leaves its promises",
        ABORT,
        "            gpu_ledger.promise(tx, (gpu.id,), None)\n",
        "            pass\n",
        Finder.TEST,
        ("tests/unit/core",),
    ),
)
SIDECAR = (
    Bug(
        "start-beside-the-old",
        "training starts before the process of the generation before has ended",
        CONVERGE,
        "        return StopProcessTree(desired.generation, 0.0, fitting)\n    if memory",
        "        return Start(desired.generation)\n    if memory",
        Finder.SIDECARS,
    ),
    Bug(
        "stopped-without-sweep",
        "a release is claimed without a sweep of the process tree",
        CONVERGE,
        "        if status.swept < desired.generation:",
        "        if False:",
        Finder.SIDECARS,
    ),
    Bug(
        "other-successor",
        "a successor that was prepared for other GPUs is adopted",
        CONVERGE,
        "return desired.mode is Mode.RUN and prepared.devices == desired.devices",
        "return desired.mode is Mode.RUN",
        Finder.SIDECARS,
    ),
    Bug(
        "overtaken-start",
        "init begins a start that a later sweep has overtaken",
        SUPERVISOR,
        "return newer and generation >= status.swept and not status.ending",
        "return newer and not status.ending",
        Finder.TEST,
        ("tests/property/test_sidecar_processes.py",),
    ),
    Bug(
        "second-start",
        "init begins a start beside a process that trains",
        SUPERVISOR,
        "newer = old is None or (generation > old.generation and not old.running)",
        "newer = True",
        Finder.SIDECARS,
    ),
)
STORE = (
    Bug(
        "ack-before-commit",
        "a request is acknowledged 50 ms before its record is in the log",
        "controller/reshape_controller/live/loop.py",
        "        record = await self.journal.append(record, lambda: self._stopping)\n",
        "        for entry in batch:\n"
        "            if entry.done is not None and not entry.done.done():\n"
        "                entry.done.set_result(True)\n"
        "        await asyncio.sleep(0.05)\n"
        "        record = await self.journal.append(record, lambda: self._stopping)\n",
        Finder.KILLS,
    ),
    Bug(
        "mark-before-append",
        "the mark outside of the store is written before the record",
        "controller/reshape_controller/live/journal.py",
        "        record = seal(self._digest, record)\n",
        "        record = seal(self._digest, record)\n        self.marks.note(record)\n",
        Finder.KILLS,
    ),
    Bug(
        "mark-ignored",
        "a log that is shorter than its mark is opened",
        "controller/reshape_controller/live/marks.py",
        "if last < mark.seq or await _digest(store, mark.seq) not in (None, mark.digest):",
        "if False:",
        Finder.TEST,
        ("tests/contract/test_store_marks.py", "tests/integration/test_store_rollback.py"),
    ),
    Bug(
        "no-fence-in-the-log",
        "a second controller may write a number of the log that is taken",
        "controller/reshape_controller/store/sqlite/log.py",
        "        if record.seq <= newest:\n",
        "        if False:\n",
        Finder.TEST,
        ("tests/contract/test_store_log.py",),
    ),
    Bug(
        "lease-by-time",
        "a Lease that has run out is still held",
        "controller/reshape_controller/live/leadership.py",
        "return not lost and self.renewed_s is not None and now_s < self.renewed_s + LEASE_S",
        "return not lost and self.renewed_s is not None",
        Finder.TEST,
        ("tests/property/test_election.py",),
    ),
)
PROCESSES = (
    Bug(
        "release-without-cgroup",
        "a release is verified without a look at the cgroup",
        "launcher/reshape_launcher/local/launcher.py",
        "self._groups.busy(folder, generation if init_of(folder.run) else None)",
        '""',
        Finder.TEST,
        ("tests/unit/launcher/test_groups.py",),
    ),
    Bug(
        "no-kill-of-the-group",
        "a removal does not kill what is in the cgroup",
        "launcher/reshape_launcher/local/groups.py",
        "        empty = cgroup.kill_until_empty(group, wait_s)\n",
        "        empty = not cgroup.populated(group)\n",
        Finder.CHAOS,
        _only("kill-init"),
    ),
    Bug(
        "oldest-checkpoint",
        "a start resumes from the oldest checkpoint",
        CHECKPOINTS,
        "heapq.nlargest(CANDIDATES_MAX, candidates",
        "heapq.nsmallest(CANDIDATES_MAX, candidates",
        Finder.CHAOS,
        _only("kill-training", "kill-init"),
    ),
    Bug(
        "save-not-published",
        "a save is reported, and not published",
        CHECKPOINTS,
        "            os.rename(temporary, target)\n        except",
        "            if complete:\n                os.rename(temporary, target)\n        except",
        Finder.CHAOS,
        _only("kill-training", "kill-init"),
    ),
    Bug(
        "old-copy-publishes",
        "an attempt publishes under the claim of a later one",
        "sidecar/reshape_sidecar/claims.py",
        "holder.attempt > attempt or not belongs_to(holder, job)",
        "not belongs_to(holder, job)",
        Finder.TEST,
        ("tests/unit/sidecar_checkpoints/test_checkpoints.py",),
    ),
    Bug(
        "index-for-uuid",
        "GPUs are known by their index",
        "sidecar/reshape_sidecar/gpu.py",
        "uuids.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))))",
        "uuids.append(str(index))",
        Finder.TEST,
        ("tests/unit/sidecar/test_gpu.py",),
    ),
)
BUGS = (*ENGINE, *SIDECAR, *STORE, *PROCESSES)
