"""Random arrivals, failures, reorderings and crashes: what must never happen, and what must.

Safety after every event (``World.check``): the ledger does not contradict itself, and no two jobs
have a process on one GPU. Liveness at the end: once everything heals, nothing waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import (
    ChangeKind,
    GpuState,
    HostId,
    JobId,
    JobState,
    Mechanism,
    Stage,
)
from reshape_controller.core.plan import Plan, Target
from reshape_controller.core.state import State
from reshape_controller.core.stop_table import Program
from reshape_sidecar.wire import (
    Observed,
    OnSaveTimeout,
    Proof,
    ProofResult,
    Saves,
    Standby,
    StandbyState,
)
from tests.support.gate import examples
from tests.support.world import World

JOBS = ("a", "b", "c", "d")
HOSTS = ("host-0", "host-1")
SIZES = ((1, 2, 4), (2,), (1, 2), (4,), (2, 4))
OUT_OF_REACH = (GpuState.RELEASING, GpuState.QUARANTINED, GpuState.LOST)


class Chaos:
    """Draws what happens next, and keeps the reports that were delayed."""

    def __init__(self, mechanism: Mechanism, one_host: tuple[str, ...] = ()) -> None:
        self.world = World(mechanism=mechanism).boot(gpus=4, hosts=2)
        self.world.auto = False
        self.world.one_host = dict.fromkeys(map(JobId, one_host))
        self.epoch = 1
        self.submitted = 0
        self.delayed: list[Observed] = []
        self.requests: dict[tuple[JobId, int], None] = {}
        """Requests to save that were looked at, by job and generation."""

    def begin_hand_over(self) -> None:
        """Job a trains on all of one host and shall give half to b, which is being launched."""
        self.world.auto = True
        self.world.submit("a", 1, 2, 4)
        self.world.plan(("a", 4))
        self.world.auto = False
        self.world.submit("b", 2)
        self.world.plan(("b", 2), ("a", 2), about="b")
        self.check_requests()  # `terminate` asks at once, before anything of a is known

    def begin_unsaved(self) -> None:
        """As ``begin_hand_over``, and a turns out to save nothing before it is asked."""
        self.begin_hand_over()
        self.unsaving("a", 0)

    def begin_differing(self) -> None:
        """Job a trains on all of one host, and its first step has differed."""
        self.world.auto = True
        self.world.submit("a", 1, 2, 4)
        self.world.plan(("a", 4))
        self.world.submit("b", 2)
        self.proving("a", 1)
        self.world.auto = False

    def begin_prepared(self) -> None:
        """As ``begin_hand_over``, and a waits for its successor before it is asked."""
        self.world.new_containers[JobId("a")] = {"can_prepare": True, "slow_prepare": True}
        self.begin_hand_over()

    def begin_importing(self) -> None:
        """As ``begin_hand_over``, and b imports its framework before a is asked."""
        self.world.new_containers[JobId("b")] = {"standby": Standby(StandbyState.STARTING)}
        self.begin_hand_over()

    def begin_growth(self) -> None:
        """Job a trains on two of four and shall have all; whether it does, nobody has heard."""
        self.world.auto = True
        self.world.submit("a", 1, 2, 4)
        self.world.plan(("a", 2))
        self.world.auto = False
        self.mute("a", 0)
        self.world.plan(("a", 4))

    def act(self, what: str, job: str, number: int) -> None:
        getattr(self, what)(job, number)
        self.world.check()
        self.check_requests()
        for gpu in self.world.dirty_gpus:
            found = self.world.engine.state.gpus[gpu].state
            assert found in OUT_OF_REACH, f"{gpu} is {found.value}, and something runs on it"

    def check_requests(self) -> None:
        """No program that cannot save, and no job that has differed after a restart, was asked to
        stop for the cluster's sake; unless its record itself lets any job be reshaped."""
        for job in self.world.engine.state.jobs.values():
            change, key = job.change, (job.id, job.generation)
            if change is None or job.stage is not Stage.SAVING or key in self.requests:
                continue
            self.requests[key] = None
            by_person = change.kind is ChangeKind.LEAVE or change.withdrawn
            assert by_person or job.program is not Program.UNSAVED, job
            differs = job.proofs.difference and not job.spec.names_reshape_if
            assert by_person or not differs, job

    def unsaving(self, job: str, number: int) -> None:
        """The program of a job turns out to save, or not to."""
        for container in list(self.world.containers.values()):
            if container.job == job:
                container.program = (Saves.NEVER, Saves.SIGTERM, Saves.BOUNDARY)[number % 3]
                self.world.report(container)

    def proving(self, job: str, number: int) -> None:
        """The process of a job has made its first step, which agrees, differs or shows nothing."""
        for container in list(self.world.containers.values()):
            if container.job == job and container.running:
                result = tuple(ProofResult)[number % 3]
                container.proof = Proof(result, container.step, number % 5, 2, "loss 0.5")
                self.world.report(container)

    def preparing(self, job: str, number: int) -> None:
        """A SideCar can prepare a successor, fast or for ever, or cannot any more."""
        for container in list(self.world.containers.values()):
            if container.job == job:
                container.can_prepare = number % 4 != 0
                container.slow_prepare = number % 4 == 1
                self.world.report(container)

    def importing(self, job: str, number: int) -> None:
        """A SideCar begins to import, has imported, or cannot."""
        for container in list(self.world.containers.values()):
            if container.job == job:
                container.standby = Standby(tuple(StandbyState)[number % 4])
                self.world.report(container)

    def submit(self, job: str, number: int) -> None:
        timeout = OnSaveTimeout.KILL if number % 2 else OnSaveTimeout.REFUSE
        if JobId(job) not in self.world.engine.state.jobs:
            # The job has the id of one that has ended; what was seen of that one is not told of it.
            self.world.verified = [seen for seen in self.world.verified if seen.job != job]
            self.delayed = [seen for seen in self.delayed if seen.job != job]
            more = {"on_save_timeout": timeout, "may_restart": number % 7 == 0}
            more["names_reshape_if"] = number % 3 == 0
            self.world.submit(job, *SIZES[number % 5], **more)

    def plan(self, job: str, number: int) -> None:
        """Try plans, right and wrong ones, until one is accepted; a refusal changes nothing."""
        state = self.world.engine.state
        if state.observing:
            return
        plans = candidate_plans(JobId(job))
        for i in range(len(plans)):
            before = values_of(state)
            try:
                self.world.apply(plans[(number * 7 + i) % len(plans)])
                return
            except PlanRejected:
                assert values_of(state) == before

    def converge(self, job: str, number: int) -> None:
        for key in sorted(k for k in self.world.containers if k[0] == job):
            if key in self.world.containers:
                self.world.converge(self.world.containers[key])

    def verify(self, job: str, number: int) -> None:
        self.world.verify()

    def delay(self, job: str, number: int) -> None:
        for container in list(self.world.containers.values()):
            if container.job == job:
                container.sequence += 1
                self.delayed.append(container.observed())

    def deliver_late(self, job: str, number: int) -> None:
        if self.delayed:
            seen = self.delayed[number % len(self.delayed)]
            self.world.event(ev.SideCarReported(seen))

    def effects_stop(self, job: str, number: int) -> None:
        self.world.effects = False

    def restart(self, job: str, number: int) -> None:
        """kill -9 of the controller: commands not carried out are lost, the log is not."""
        world = self.world
        world.held.clear()
        world.effects = True
        assert world.replay() == world.log
        self.epoch += 1
        world.event(ev.ControllerStarted(self.epoch, "test", world.mechanism, world.limits))
        for command in world.engine.outstanding():
            world.carry_out(command)
        self.lost_containers()

    def lost_containers(self) -> None:
        """What the launcher's watch says: attempts that the ledger believes in, and are not."""
        world = self.world
        for found in list(world.engine.state.jobs.values()):
            if found.stage is Stage.NONE or (found.id, found.attempt) in world.containers:
                continue
            world.event(ev.ContainerGone(found.id, found.attempt, None))

    def silent(self, job: str, number: int) -> None:
        for container in list(self.world.containers.values()):
            if container.job == job:
                container.reachable = False
                self.world.event(ev.SideCarFellSilent(container.job, container.attempt))

    def mute(self, job: str, number: int) -> None:
        """A SideCar acts on what it is told, and its reports are late."""
        for container in list(self.world.containers.values()):
            if container.job == job:
                container.mute = True

    def heard(self, job: str, number: int) -> None:
        for container in list(self.world.containers.values()):
            container.reachable, container.mute = True, False

    def stubborn(self, job: str, number: int) -> None:
        for container in list(self.world.containers.values()):
            if container.job == job:
                container.saves = bool(number % 2)

    def save_deadline(self, job: str, number: int) -> None:
        for container in list(self.world.containers.values()):
            if container.job == job:
                container.deadline_passed = True
                self.world.converge(container)
                container.deadline_passed = False

    def kill(self, job: str, number: int) -> None:
        self.world.kill_container(job, code=(137, 0)[number % 2])

    def crash(self, job: str, number: int) -> None:
        if any(c.job == job and c.running for c in self.world.containers.values()):
            container = self.world.container(job)
            if container.running:
                self.world.crash(job)

    def finish(self, job: str, number: int) -> None:
        if any(c.job == job for c in self.world.containers.values()):
            container = self.world.container(job)
            if container.running:
                self.world.finish(job)

    def wait(self, job: str, number: int) -> None:
        self.world.wait((0.5, 5.0, 40.0, 200.0, 900.0)[number % 5])

    def cancel(self, job: str, number: int) -> None:
        self.world.event(ev.CancelRequested(JobId(job)))

    def halt(self, job: str, number: int) -> None:
        self.world.event(ev.HaltRequested(JobId(job)))

    def resume(self, job: str, number: int) -> None:
        self.world.event(ev.ResumeRequested(JobId(job)))

    def drain(self, job: str, number: int) -> None:
        self.world.event(ev.HostDrained(HostId(HOSTS[number % 2])))

    def undrain(self, job: str, number: int) -> None:
        self.world.event(ev.HostUndrained(HostId(HOSTS[number % 2])))

    def host_silent(self, job: str, number: int) -> None:
        host = HostId(HOSTS[number % 2])
        for container in list(self.world.containers.values()):
            if container.host == host:
                container.reachable = False
        self.world.event(ev.HostFellSilent(host, "chaos"))

    def host_cleaned(self, job: str, number: int) -> None:
        host = HostId(HOSTS[number % 2])
        for key in [k for k, c in self.world.containers.items() if c.host == host]:
            del self.world.containers[key]
        on_host = set(self.world.engine.state.hosts[host].gpus)
        self.world.dirty_gpus -= on_host
        self.world.event(ev.HostCleaned(host, "chaos"))

    def gpus_seen(self, job: str, number: int) -> None:
        """A host shows some of its GPUs only, or (again) all."""
        host = HostId(HOSTS[number % 2])
        gpus = self.world.engine.state.hosts[host].gpus
        shown = gpus if number % 3 == 0 else gpus[number % 4 :: 2]
        self.world.event(ev.GpusSeen(host, shown))

    def dirty(self, job: str, number: int) -> None:
        """Something of the owner still runs on GPUs that it said it was off; or no longer."""
        gpus = self.world.engine.state.gpus.values()
        releasing = {gpu.id for gpu in gpus if gpu.state is GpuState.RELEASING}
        self.world.dirty_gpus = releasing if number % 2 else set()

    def verify_late(self, job: str, number: int) -> None:
        """What was seen of an earlier release is told once more."""
        if self.world.verified:
            self.world.event(self.world.verified[-1 - number % len(self.world.verified)])

    def heal(self) -> None:
        """Everything works again: all must come to rest, with nobody waiting for ever."""
        world = self.world
        self.restart("a", 0)
        world.dirty_gpus = set()
        for host in HOSTS:
            world.event(ev.HostUndrained(HostId(host)))
            world.event(ev.GpusSeen(HostId(host), world.engine.state.hosts[HostId(host)].gpus))
            if not world.engine.state.hosts[HostId(host)].present:
                self.host_cleaned("a", HOSTS.index(host))
        for container in list(world.containers.values()):
            container.reachable, container.saves, container.slow_init = True, True, False
            container.mute = False
        world.auto = True
        for container in list(world.containers.values()):
            if (container.job, container.attempt) in world.containers:
                world.report(container)
        world.settle()
        for _ in range(3):
            world.wait(2000.0)
            world.settle()
            self.lost_containers()


def values_of(state: State) -> tuple[object, ...]:
    """Return all that a rejected plan must leave as it was. The values are frozen, so a state that
    holds equal values in the same order dumps the same texts."""
    return (
        *(tuple(part.items()) for part in (state.hosts, state.gpus, state.jobs)),
        tuple(state.pending_shrinks),
        tuple(state.ended),
        state.profiles.rows(),
        (state.epoch, state.policy, state.mechanism, state.limits, state.next_place, state.seed),
    )


def candidate_plans(job: JobId) -> list[Plan]:
    """Every target for the job, alone and with every other job shrinking for it."""
    plans = []
    for host in HOSTS:
        for size in (4, 2, 1):
            own = Target(job, size, HostId(host))
            plans.append(Plan((own,), "alone"))
            for donor in JOBS:
                for kept in (2, 1):
                    plans.append(
                        Plan((own, Target(JobId(donor), kept, HostId(host))), "with a donor")
                    )
    return plans


OFTEN = ("submit", "plan", "plan", "plan", "converge", "converge", "converge", "converge", "verify")
SOMETIMES = (
    "cancel", "crash", "delay", "deliver_late", "dirty", "effects_stop", "finish", "halt", "heard",
    "importing", "kill", "mute", "preparing", "proving", "proving", "restart", "resume",
    "save_deadline", "silent", "stubborn", "unsaving", "verify_late", "verify_late", "wait",
)  # fmt: skip
RARELY = (
    "drain", "undrain", "undrain", "host_silent", "host_cleaned", "host_cleaned",
    "gpus_seen", "gpus_seen",
)  # fmt: skip
ACTIONS = OFTEN * 8 + SOMETIMES * 2 + RARELY
Step = tuple[str, str, int]
"""An action, the job that it is about, and a number that varies it."""
BEGINNINGS = ("nothing", "hand_over", "unsaved", "growth", "prepared", "importing", "differing")
ONE_HOST: tuple[tuple[str, ...], ...] = ((), ("a",), ("b", "c"))
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.sampled_from(JOBS), st.integers(0, 29)),
    min_size=20,
    max_size=120,
)


def play(chaos: Chaos, beginning: str, steps: Iterable[Step]) -> None:
    """Let the steps happen after a beginning, then let all come to rest, and check how."""
    if beginning != "nothing":
        getattr(chaos, f"begin_{beginning}")()
        chaos.check_requests()  # the mechanism `terminate` asks at once
    for what, job, number in steps:
        chaos.act(what, job, number)
    chaos.heal()
    state = chaos.world.engine.state
    for job_value in state.jobs.values():
        assert job_value.stage in (Stage.NONE, Stage.TRAINING), job_value
        if job_value.stage is Stage.NONE:
            assert job_value.state in (JobState.SUBMITTED, JobState.HALTED)
            assert job_value.reason
    owned = {gpu for job_value in state.jobs.values() for gpu in job_value.gpus}
    for gpu in state.gpus.values():
        assert (gpu.id in owned) == (gpu.state.value == "in use"), gpu
        assert gpu.state.value in ("idle", "in use", "quarantined"), gpu
    assert chaos.world.replay() == chaos.world.log


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    mechanism=st.sampled_from([Mechanism.SIDECAR, Mechanism.TERMINATE]),
    beginning=st.sampled_from(BEGINNINGS),
    one_host=st.sampled_from(ONE_HOST),
    steps=STEPS,
)
def test_no_gpu_in_two_hands_and_nobody_waits_for_ever(
    mechanism: Mechanism,
    beginning: str,
    one_host: tuple[str, ...],
    steps: list[Step],
) -> None:
    play(Chaos(mechanism, one_host), beginning, steps)
