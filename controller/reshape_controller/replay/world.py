"""The cluster in virtual time: it answers the engine's commands as launchers and SideCars do.

Does: run containers that start, train, save, stop and end in the times of costs and truth, and
check releases. Nothing fails here; property tests and live tests cover faults. State: the
containers, their jobs' lives, the event queue.

With the mechanism ``sidecar`` GPUs are free when the process tree is gone; otherwise, as under the
device plugin of the paper's comparison, when the container is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reshape_controller.core import events as ev
from reshape_controller.core.commands import CheckRelease, Command, Launch, Remove, SetDesired
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import HostId, JobId, JobSpec, Mechanism, Share
from reshape_controller.replay.container import Container, ContainerEvent, Life
from reshape_controller.replay.event_queue import EventQueue, ticks_up
from reshape_controller.replay.ground_truth import Truth
from reshape_controller.replay.inputs import Cluster, Costs
from reshape_sidecar.wire import (
    Desired,
    Mode,
    Outcome,
    OutcomeKind,
    Phase,
    PhaseTimes,
    Standby,
    StandbyState,
)

REPORT_FIRST_S = 30.0
"""Time from a process's first step to its first report of its speed. Intervals double from then on,
for the controller's estimate settles after a few reports. A scene may set a fixed interval instead,
as SideCars have."""

IN_ANY_PHASE = (ContainerEvent.IMPORTED, ContainerEvent.GONE)
"""Events that no later phase of their container voids."""

_Entry = tuple[Container, int, ContainerEvent] | ev.Event


class World:
    """The world of a replay. ``advance`` sets ``now_s``."""

    def __init__(
        self,
        cluster: Cluster,
        costs: Costs,
        truth: Truth,
        mechanism: Mechanism,
        report_every_s: float | None = None,
    ) -> None:
        self.now_s = 0.0
        self.lives: dict[JobId, Life] = {}
        self.containers: dict[tuple[JobId, int], Container] = {}
        self._costs = costs
        self._truth = truth
        self._types = {host.id: host.gpu_type for host in cluster.hosts}
        self._in_place = mechanism is Mechanism.SIDECAR
        self._report_every_s = report_every_s
        self._queue: EventQueue[_Entry] = EventQueue()
        self._checks: dict[tuple[JobId, int], list[CheckRelease]] = {}
        self._handlers = {
            ContainerEvent.READY: self._on_ready,
            ContainerEvent.IMPORTED: self._on_imported,
            ContainerEvent.FIRST_STEP: self._on_first_step,
            ContainerEvent.REPORT: self._on_report,
            ContainerEvent.EVALUATED: self._on_evaluated,
            ContainerEvent.LAST_STEP: self._on_last_step,
            ContainerEvent.FINISHED: self._on_finished,
            ContainerEvent.SAVED: self._on_saved,
            ContainerEvent.STOPPED: self._on_stopped,
            ContainerEvent.GONE: self._on_gone,
        }

    def schedule(self, at_s: float, event: ev.Event) -> None:
        """Add an outside event (such as a submission) at ``at_s``."""
        self._queue.put(ticks_up(at_s), event)

    def add_job(self, job: JobId, spec: JobSpec) -> None:
        """Add a job that containers may run. Raises ReplayError."""
        self.lives[job] = Life(self._truth.of(spec))

    def adopt(self, container: Container) -> ev.Event:
        """Continue an existing container; return its SideCar's report."""
        self.containers[container.job, container.attempt] = container
        if container.phase is Phase.RUNNING:
            self._train_on(container)
        return self._report(container, container.step)

    def next_s(self) -> float | None:
        """Return the time of the next event; None if there is none."""
        return self._queue.next_s()

    def advance(self, now_s: float) -> list[ev.Event]:
        """Run all events up to ``now_s``; return the controller's events."""
        self.now_s = now_s
        events: list[ev.Event] = []
        for entry in self._queue.take(now_s):
            if isinstance(entry, ev.HostFellSilent):
                self._lose(entry.host)
            if isinstance(entry, tuple):
                container, turn, what = entry
                if turn == container.turn or what in IN_ANY_PHASE:
                    events += self._handlers[what](container)
            else:
                events.append(entry)
        return events

    def carry_out(
        self, commands: Iterable[Command], desired_of: Callable[[JobId], Desired | None]
    ) -> None:
        """Begin the engine's commands; a launch gets the desired state of its attempt."""
        for command in commands:
            match command:
                case SetDesired(desired):
                    container = self.containers.get((JobId(desired.job), desired.attempt))
                    if container is not None:
                        self._desire(container, desired)
                case Launch(_, job, attempt, host, shares):
                    self._launch(job, attempt, host, shares, desired_of(job))
                case CheckRelease():
                    self._check(command)
                case Remove(_, job, attempt, _):
                    container = self.containers.get((job, attempt))
                    if container is not None:
                        container.turn += 1
                        self._leave(container)

    def _put(self, after_s: float, container: Container, what: ContainerEvent) -> None:
        at_s = self.now_s + ticks_up(after_s)
        self._queue.put(at_s, (container, container.turn, what))

    def _launch(
        self,
        job: JobId,
        attempt: int,
        host: HostId,
        shares: tuple[Share, ...],
        desired: Desired | None,
    ) -> None:
        if (job, attempt) in self.containers:
            return
        hosts = tuple([share.host for share in shares])
        container = Container(job, attempt, host, self._types[host], self.lives[job], hosts)
        if desired is not None and desired.attempt == attempt:
            self._desire(container, desired)
        self.containers[job, attempt] = container
        self._put(self._costs.overhead.job_init_s, container, ContainerEvent.READY)

    def _lose(self, host: HostId) -> None:
        """End what runs on a host. Of a gang the parts on other hosts stand still until they are
        removed; what it had done since its last checkpoint is lost."""
        for key, container in list(self.containers.items()):
            if not container.is_on(host):
                continue
            container.turn += 1
            if set(container.hosts) <= {host}:
                container.devices = ()
                del self.containers[key]
                self._recheck_releases(container)

    def _check(self, check: CheckRelease) -> None:
        key = (check.job, check.attempt)
        container = self.containers.get(key)
        if container is None or (self._in_place and not set(check.gpus) & set(container.devices)):
            self._verified(check)
        else:
            self._checks.setdefault(key, []).append(check)

    def _recheck_releases(self, c: Container) -> None:
        """Repeat the release checks of an attempt whose process tree or container is gone."""
        for check in self._checks.pop((c.job, c.attempt), ()):
            self._check(check)

    def _verified(self, check: CheckRelease) -> None:
        verified = ev.ReleaseVerified(check.job, check.attempt, check.generation, check.gpus)
        self._queue.put(self.now_s, verified)

    def _desire(self, c: Container, desired: Desired) -> None:
        """Give the SideCar its desired state, without delay."""
        if (desired.epoch, desired.generation) <= (c.epoch, c.generation) or c.removing:
            return
        c.desired, c.epoch, c.generation = desired, desired.epoch, desired.generation
        match c.phase:
            case Phase.INITIALIZED | Phase.FINISHED:
                self._start_or_leave(c)
            case Phase.RUNNING if c.boundary_at(self.now_s) < c.life.truth.total_steps:
                # In its last step and later the process ends by itself.
                if desired.mode is not Mode.RUN or desired.devices != c.devices:
                    self._save(c)
            case Phase.SAVING if desired.mode is Mode.RUN and desired.devices == c.devices:
                self._refuse(c)
            case Phase.STARTING:
                self._stop(c, c.life.saved_step)

    def _start_or_leave(self, c: Container) -> None:
        """Start a training process or end, as desired, if none runs."""
        desired = c.desired
        if desired is None:
            return
        if desired.mode is Mode.EXIT:
            self._leave(c)
        elif desired.mode is Mode.RUN and c.phase is not Phase.FINISHED:
            c.phase, c.devices = Phase.STARTING, desired.devices
            c.step_s = c.life.truth.step_s(c.gpu_type, len(c.devices), len(c.hosts) or 1)
            c.turn += 1
            start_s = max(self._costs.process_init_s(len(c.devices)), c.step_s)
            start_s += max(0.0, (c.imported_at_s or 0.0) - self.now_s)
            c.times = replace(c.times, first_step_s=start_s)
            self._put(start_s, c, ContainerEvent.FIRST_STEP)

    def _leave(self, c: Container) -> None:
        if not c.removing:
            c.removing, c.devices = True, ()
            self._put(self._costs.overhead.job_stop_s, c, ContainerEvent.GONE)

    def _on_ready(self, c: Container) -> list[ev.Event]:
        c.phase = Phase.INITIALIZED
        if self._costs.import_s:
            c.standby = Standby(StandbyState.STARTING)
            c.imported_at_s = self.now_s + ticks_up(self._costs.import_s)
            self._put(self._costs.import_s, c, ContainerEvent.IMPORTED)
        self._start_or_leave(c)
        return [self._report(c, 0)]

    def _on_imported(self, c: Container) -> list[ev.Event]:
        c.standby = Standby(StandbyState.READY)
        return [self._report(c, c.steps_at(self.now_s))]

    def _on_first_step(self, c: Container) -> list[ev.Event]:
        total = c.life.truth.total_steps
        c.step = min(c.life.saved_step + 1, total)
        c.phase, c.at_s = Phase.RUNNING, self.now_s
        self._train_on(c)
        if not self._truth.as_profiled:
            self._put(self._report_every_s or REPORT_FIRST_S, c, ContainerEvent.REPORT)
        self._next_evaluation(c)
        return [self._report(c, c.step)]

    def _train_on(self, c: Container) -> None:
        left = c.life.truth.total_steps - c.step
        until_s = c.at_s + ticks_up(left * c.step_s)
        self._put(until_s - self.now_s, c, ContainerEvent.LAST_STEP)

    def _on_report(self, c: Container) -> list[ev.Event]:
        self._put(self._report_every_s or self.now_s - c.at_s, c, ContainerEvent.REPORT)
        return [self._report(c, c.steps_at(self.now_s))]

    def _next_evaluation(self, c: Container) -> None:
        accuracy = c.life.truth.accuracy
        if accuracy is None:
            return
        step = (c.steps_at(self.now_s) // accuracy.every + 1) * accuracy.every
        if step < c.life.truth.total_steps:
            at_s = c.at_s + ticks_up((step - c.step) * c.step_s)
            self._put(at_s - self.now_s, c, ContainerEvent.EVALUATED)

    def _on_evaluated(self, c: Container) -> list[ev.Event]:
        accuracy, step = c.life.truth.accuracy, c.steps_at(self.now_s)
        assert accuracy is not None
        c.life.accuracy = accuracy.observe(step)
        self._next_evaluation(c)
        return [self._report(c, step)]

    def _on_last_step(self, c: Container) -> list[ev.Event]:
        """End training; the last checkpoint and the end of the process follow."""
        self._count(c, c.life.truth.total_steps, self.now_s)
        c.steps_done = True
        c.turn += 1
        cost = self._costs.overhead
        self._put(cost.checkpoint_s + cost.process_stop_s, c, ContainerEvent.FINISHED)
        return []

    def _on_finished(self, c: Container) -> list[ev.Event]:
        c.life.saved_step = c.step
        c.phase, c.devices = Phase.FINISHED, ()
        self._recheck_releases(c)
        return [self._report(c, c.step)]

    def _save(self, c: Container) -> None:
        """End the step under way, then write the checkpoint.

        If the step is short, both take only the time of a checkpoint.
        """
        boundary = c.boundary_at(self.now_s)
        boundary_s = c.at_s + ticks_up((boundary - c.step) * c.step_s)
        c.turn += 1
        c.phase, c.life.save_request_s = Phase.SAVING, self.now_s
        save_s = max(self._costs.overhead.checkpoint_s, boundary_s - self.now_s)
        c.times = PhaseTimes(save_s=save_s)
        self._put(save_s, c, ContainerEvent.SAVED)

    def _refuse(self, c: Container) -> None:
        """Continue training after the withdrawal of a request, before any process stopped."""
        c.turn += 1
        c.phase, c.outcome = Phase.RUNNING, Outcome(c.generation, OutcomeKind.REFUSED)
        self._queue.put(self.now_s, ev.SideCarReported(c.report(c.steps_at(self.now_s))))
        self._train_on(c)
        self._next_evaluation(c)

    def _on_saved(self, c: Container) -> list[ev.Event]:
        assert c.life.save_request_s is not None
        self._count(c, c.boundary_at(c.life.save_request_s), self.now_s)
        c.life.saved_step = c.step
        self._stop(c, c.step)
        return [self._report(c, c.step)]

    def _stop(self, c: Container, saved: int) -> None:
        complete = saved >= c.life.truth.total_steps
        c.outcome = Outcome(c.generation, OutcomeKind.STOPPING, saved, complete=complete)
        c.phase = Phase.STOPPING
        c.turn += 1
        stop_s = self._costs.overhead.process_stop_s
        c.times = replace(c.times, stop_s=stop_s)
        self._put(stop_s, c, ContainerEvent.STOPPED)

    def _on_stopped(self, c: Container) -> list[ev.Event]:
        c.stopped_generation, c.devices = c.generation, ()
        if c.outcome is not None and c.outcome.generation != c.generation:
            c.outcome = replace(c.outcome, generation=c.generation)
        c.phase = Phase.INITIALIZED
        self._start_or_leave(c)
        self._recheck_releases(c)
        return [self._report(c, c.life.saved_step)]

    def _on_gone(self, c: Container) -> list[ev.Event]:
        if self.containers.pop((c.job, c.attempt), None) is None:
            return []  # its host was lost while it ended
        self._recheck_releases(c)
        return [ev.ContainerGone(c.job, c.attempt, 0, "its container ended")]

    def _count(self, c: Container, step: int, now_s: float) -> None:
        """Set the steps that are done at ``now_s``."""
        c.step, c.at_s = step, now_s

    def _report(self, c: Container, step: int) -> ev.Event:
        return ev.SideCarReported(c.report(step))
