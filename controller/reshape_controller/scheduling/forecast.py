"""When every accepted job will have ended, if an option is taken: makespan and completion times.

A forecast follows the definition of the makespan in docs/policies.md. Running jobs keep their
sizes. The head of the queue is list-scheduled at smallest sizes in queue order. The tail of the
queue counts as an area that is spread over all usable GPUs after that. What an option does not
change is computed once for all options. Times are whole milliseconds from now, so that sums do not
depend on their order.

Why the area counts as a mean: let f be the time at which each of G GPUs is free, and A the area.
Pour A onto the profile of f like water. Where the water covers every f, its level is the mean
(sum of f + A) / G. Where it does not, the level lies below the latest f. That is the completion
time of a job, and counts in the makespan anyway.
"""

from __future__ import annotations

from functools import cached_property
from math import inf

from reshape_controller.core.job_estimate import QueuedWork
from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.scheduling.cluster_index import ClusterIndex
from reshape_controller.scheduling.gang_room import GangRoom
from reshape_controller.scheduling.gang_start import may_span
from reshape_controller.scheduling.list_schedule import (
    FreeTimes,
    HostChange,
    QueueReach,
    Schedule,
    Scheduler,
)
from reshape_controller.scheduling.predictor import Predictor, to_ms
from reshape_controller.scheduling.queue_turns import QueueTurns, turns_by_place, turns_by_time
from reshape_controller.scheduling.rules import V1, Objective, QueueOrder, Rules

HEAD_MAX = 64
"""The most queued jobs in the head of the queue, which are list-scheduled one by one."""
LATEST_COUNT = 3
"""How many of the running jobs that end last a forecast remembers."""


class Forecast:
    """The figures of one snapshot that do not depend on the option; ``outlook`` adds the newcomer.

    A forecast holds until the next one of the same state is made, because the index of the jobs is
    updated in place.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        predictor: Predictor,
        rules: Rules = V1,
        head_max: int = HEAD_MAX,
    ) -> None:
        """``head_max``: the most queued jobs that are list-scheduled one by one."""
        self.snapshot = snapshot
        self.predictor = predictor
        self.rules = rules
        self.by_sum = rules.objective is Objective.SUM
        """Whether the sum of completion times decides, and the makespan breaks ties."""
        self.now_ms = to_ms(snapshot.now_s)
        """Now, in Unix milliseconds."""
        index = ClusterIndex.of(snapshot, predictor)
        self.running_index, self.queue_index = index.running_index, index.queue_index
        self.types = index.numbering.types
        self.numbers = index.numbering.numbers
        self.type_of = index.numbering.type_of
        self.free = FreeTimes(self.running_index, index.numbering, snapshot.hosts, self.now_ms)
        self.gpus = self.free.gpus
        self.free_sum_ms = 0
        """The sum over all GPUs of the times at which they are free."""
        self.ends_sum_ms = 0
        """The sum of the completion times of the running jobs."""
        self.latest: list[tuple[int, JobId]] = []
        """The running jobs that end last, the latest first; at most ``LATEST_COUNT``."""
        self.head: list[QueuedWork] = []
        """The first queued jobs, which are list-scheduled."""
        self.head_ids: list[JobId] = []
        """The ids of the jobs in ``head``."""
        self.tail_area_ms = 0
        """The area of the other queued jobs, in GPU milliseconds."""
        self._schedules_without: dict[int, Schedule] = {}
        self._sum_up_running()
        self.turns = self._take_turns()
        """The order in which the queued jobs have their turn."""
        if self.free.most:
            self._split_queue(head_max)

    def running(self, job: JobId) -> JobView:
        """Return a running job by its id."""
        return self.running_index.by_job[job].job

    def gpu_type(self, host: HostId) -> str:
        """Return the GPU type of a usable host."""
        return self.types[self.type_of[self.numbers[host]]]

    @cached_property
    def queue(self) -> tuple[Scheduler, Schedule]:
        """The scheduler of the head of the queue, and its schedule if none of it starts now."""
        scheduler = Scheduler(self.free, self.head)
        return scheduler, scheduler.run(self.head)

    def end_ms(self, job: JobView) -> int:
        """Return when a running job will have left if it keeps its size."""
        return self.running_index.by_job[job.id].end_from_now_ms(self.now_ms)

    def _sum_up_running(self) -> None:
        running_index, now_ms = self.running_index, self.now_ms
        ends_sum = running_index.ends_sum_ms - running_index.absolute_count * now_ms
        free_sum = running_index.gpu_ends_sum_ms - running_index.gpu_count * now_ms
        threshold = -1
        for end, job_id in running_index.ends[-LATEST_COUNT:]:
            threshold = self._add_latest(end - now_ms, job_id)
        for entry in running_index.relative.values():
            end = entry.end_ms
            ends_sum += end
            if entry.gpus:
                free_sum += end * entry.gpus
            if end > threshold:
                threshold = self._add_latest(end, entry.job.id)
        self.ends_sum_ms, self.free_sum_ms = ends_sum, free_sum

    def _add_latest(self, end: int, job: JobId) -> int:
        """Insert a job into ``latest``, and return the end that another job has to exceed to get
        in."""
        latest, entry = self.latest, (end, job)
        at = len(latest)
        while at and latest[at - 1] < entry:
            at -= 1
        latest.insert(at, entry)
        del latest[LATEST_COUNT:]
        return latest[-1][0] if len(latest) == LATEST_COUNT else -1

    def _take_turns(self) -> QueueTurns:
        snapshot, rules = self.snapshot, self.rules
        if rules.queue_order is QueueOrder.PLACE:
            return turns_by_place(snapshot, self.queue_index, rules)
        horizon_s = inf
        if rules.critical_first and self.gpus:
            horizon_s = (self.free_sum_ms + self._queue_area_ms) / self.gpus / 1000.0
        return turns_by_time(snapshot, self.predictor, self.queue_index, rules, horizon_s)

    def _split_queue(self, head_max: int) -> None:
        """Fill the head of the queue, and sum up its tail."""
        head, predictor, types = self.head, self.predictor, self.types
        tail_area_ms = 0
        for job in self.turns.jobs:
            if not self._can_ever_start(job):
                continue
            if len(head) >= head_max:
                tail_area_ms = self._queue_area_ms
                break
            work = predictor.queued_work(job, types, self._room_of(job))
            head.append(work)
            self.head_ids.append(job.id)
        if tail_area_ms:
            for work in head:
                tail_area_ms -= work.area_ms
        self.tail_area_ms = tail_area_ms

    @cached_property
    def _queue_area_ms(self) -> int:
        """The area of all queued jobs, in GPU milliseconds."""
        area_ms = 0
        for (estimate, _, _), entry in self.queue_index.classes.items():
            job = entry.job
            if self._can_ever_start(job):
                work = self.predictor.work_of(estimate, job, self.types, self._room_of(job))
                area_ms += len(entry.jobs) * work.area_ms
        return area_ms

    def _can_ever_start(self, job: JobView) -> bool:
        """Whether a usable host can hold the job at all, or several if it may be on several; if its
        files can be reached from one host only, whether that host is usable."""
        sizes = job.sizes
        if not sizes:
            return False
        if sizes[0] > self.free.most:
            room = self._room_of(job)
            return room is not None and room.holds(job, sizes[0])
        return job.only_host is None or job.only_host in self.numbers

    @cached_property
    def room(self) -> GangRoom:
        """The room of the usable hosts for jobs that may be on several."""
        return GangRoom.of(self.snapshot.hosts)

    def _room_of(self, job: JobView) -> GangRoom | None:
        """The same for a queued job that may be on several hosts; None for another."""
        return self.room if may_span(job) else None

    def latest_end_without(self, changed: tuple[JobId, ...]) -> int:
        """Return the latest end of the running jobs that are not ``changed``; 0 without any."""
        for end, job_id in self.latest:
            if job_id not in changed:
                return end
        entries = self.running_index.by_job.values()
        others = [
            entry.end_from_now_ms(self.now_ms) for entry in entries if entry.job.id not in changed
        ]
        return max(others, default=0)

    def outlook(self, newcomer: JobView | None = None) -> Outlook:
        """Return the outlook with which options of ``newcomer``, or without one options of running
        jobs, are evaluated. A newcomer from the tail takes the last place in the head."""
        at = None
        if newcomer is not None and newcomer.id in self.head_ids:
            at = self.head_ids.index(newcomer.id)
        if newcomer is None or at is not None or not self._can_ever_start(newcomer):
            return Outlook(self, self.head, self.tail_area_ms, at)
        work = self.predictor.queued_work(newcomer, self.types, self._room_of(newcomer))
        head = [*self.head[:-1], work]
        tail_area_ms = self.tail_area_ms - work.area_ms + self.head[-1].area_ms
        return Outlook(self, head, tail_area_ms, len(head) - 1)

    def schedule_without(self, at: int) -> Schedule:
        """Return the schedule of the head without the job at position ``at``. It is the same for
        neighbours that share their work, so it is cached for the first of them."""
        head = self.head
        while at and head[at - 1] is head[at]:
            at -= 1
        schedule = self._schedules_without.get(at)
        if schedule is None:
            scheduler, _ = self.queue
            schedule = self._schedules_without[at] = scheduler.run(head[:at] + head[at + 1 :])
        return schedule


class Outlook:
    """Evaluates options for one newcomer, or without one for running jobs."""

    def __init__(
        self, forecast: Forecast, head: list[QueuedWork], tail_area_ms: int, at: int | None
    ) -> None:
        """``at``: the newcomer's position in ``head``; None: it is not there."""
        self.forecast = forecast
        self.tail_area_ms = tail_area_ms
        self.others = head if at is None else head[:at] + head[at + 1 :]
        """The jobs of the head that still wait when the newcomer starts."""
        self._at = at
        self._is_shared = head is forecast.head
        """Whether the head is the forecast's own, so that its schedules can be used."""
        if self._is_shared:
            self._scheduler, self.if_waiting = forecast.queue
        else:
            self._scheduler = Scheduler(forecast.free, head)
            self.if_waiting = self._scheduler.run(head)

    @cached_property
    def if_started(self) -> Schedule:
        """The schedule of the head without the newcomer."""
        if self._at is None:
            return self.if_waiting
        if self._is_shared:
            return self.forecast.schedule_without(self._at)
        return self._scheduler.run(self.others)

    @cached_property
    def reach(self) -> QueueReach:
        """The latest free times of GPUs that the other jobs of the head can use."""
        return QueueReach(self.if_started, len(self.forecast.types))

    @cached_property
    def _schedule_bound(self) -> Schedule:
        """A lower bound on every schedule of the others: no job waits, and no GPU has a gap."""
        durations_ms = sum(min(job.shortest_ms) for job in self.others)
        area_ms = sum(job.area_ms for job in self.others)
        return Schedule(sum_ms=durations_ms, busy_ms=area_ms, is_bound=bool(self.others))

    def without_change(self) -> tuple[int, int]:
        """Return the figures of the objective, in its order, if nothing is done."""
        return self._total((), (), self.if_waiting)

    def lower_bound(
        self, ends: tuple[tuple[JobView, int], ...], changes: tuple[HostChange, ...]
    ) -> tuple[int, int]:
        """Return lower bounds on both results of ``evaluate``, without a list schedule."""
        return self._total(ends, changes, self._schedule_bound)

    def keeps_schedule(self, changes: tuple[HostChange, ...]) -> bool:
        """Whether the others are scheduled as if nothing had changed, so that ``evaluate`` needs
        no list schedule of its own."""
        return not self.others or all(self._is_out_of_reach(change) for change in changes)

    def evaluate(
        self, ends: tuple[tuple[JobView, int], ...], changes: tuple[HostChange, ...]
    ) -> tuple[int, int]:
        """Return the figures of the objective, in its order, for an option.

        ``ends``: new completion times of running jobs, and that of the newcomer; ``changes``: how
        the free times of GPUs change on each host.
        """
        if self.keeps_schedule(changes):
            return self._total(ends, changes, self.if_started)
        return self._total(ends, changes, self._scheduler.run(self.others, changes))

    def _total(
        self,
        ends: tuple[tuple[JobView, int], ...],
        changes: tuple[HostChange, ...],
        schedule: Schedule,
    ) -> tuple[int, int]:
        forecast = self.forecast
        makespan, total = schedule.last_ms, forecast.ends_sum_ms + schedule.sum_ms
        for job, end in ends:
            if end > makespan:
                makespan = end
            total += end - forecast.end_ms(job) if job.size else end
        others_end = forecast.latest_end_without(tuple([job.id for job, _ in ends]))
        if others_end > makespan:
            makespan = others_end
        if (self.tail_area_ms or schedule.is_bound) and forecast.gpus:
            busy = forecast.free_sum_ms + schedule.busy_ms + self.tail_area_ms
            for _, removed, added in changes:
                busy += sum(added) - sum(removed)
            makespan = max(makespan, -(-busy // forecast.gpus))
        return (total, makespan) if forecast.by_sum else (makespan, total)

    def _is_out_of_reach(self, change: HostChange) -> bool:
        """Whether the schedule of the others cannot see a change. Either every free time that
        changes is later than any of the others could use, or the host got no job before and is
        still free too late for every size."""
        host, removed, added = change
        reach, type_number = self.reach, self.forecast.type_of[host]
        limit = reach.limits_ms[type_number]
        if (not removed or min(removed) > limit) and (not added or min(added) > limit):
            return True
        if reach.hosts is None or host in reach.hosts:
            return False
        times = self.forecast.free.with_changes((change,))[host]
        for size, limit_of_size in reach.limits_by_size_ms[type_number].items():
            if size <= len(times) and times[size - 1] <= limit_of_size:
                return False
        return True
