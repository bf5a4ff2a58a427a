"""GPUs and jobs over time: the log, fed to an engine again and recorded as spans.

Does: follows the log from its last position, one record at a time, in an engine of its own. So it
shows only what was committed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import structlog

from reshape_controller.core.changes import ChangeSet
from reshape_controller.core.engine import Engine
from reshape_controller.core.events import ControllerStarted
from reshape_controller.core.limits import GAP_S
from reshape_controller.core.model import Gpu, GpuId, GpuState, Job, JobId, JobState, Stage
from reshape_controller.core.record import LogRecord
from reshape_controller.core.state import State
from reshape_controller.http.feed import Change, ChangedJob, Feed, SeriesBook
from reshape_controller.http.figures import LogFigures
from reshape_controller.http.usage import USES, Holder, UsageBook, Use
from reshape_controller.live.recovery import newest, origin
from reshape_controller.scheduling.rounds import redo
from reshape_controller.store.protocol import Store, StoreError
from reshape_gpu.usage import By, Usage
from reshape_gpu.values import SeriesPoint

RECORDS_MAX = 50_000
"""Length of the log above which the timeline begins at the newest snapshot."""
SPANS_MAX = 20_000
"""Largest number of spans; beyond it the oldest are dropped."""
YIELD_EVERY = 50
"""Number of records after which the rest of the daemon may run."""

log = structlog.get_logger("reshape.http")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time. ``to_s`` is null while it lasts.

    ``phase`` of a GPU: reserved, starting, training, saving, stopping, releasing, quarantined,
    lost (idle is no span). Of a job: queued, initializing, initialized (waits for its GPUs),
    starting, training, saving, stopping, ending, halted.
    """

    phase: str
    from_s: float
    to_s: float | None = None
    job: str | None = None
    size: int = 0
    """GPUs of the job in this span."""
    merged: int = 1
    """Number of spans that it stands for; more than 1 in a timeline with ``max_spans``."""


@dataclass(frozen=True, slots=True)
class GpuLane:
    id: str
    host: str
    index: int
    spans: tuple[Span, ...]

    @property
    def name(self) -> str:
        """The GPU's name for users."""
        return f"{self.host} GPU {self.index}"


@dataclass(frozen=True, slots=True)
class JobLane:
    """A job over time. ``state`` is the newest; ``ended_at_s`` is null until its end."""

    id: str
    name: str
    state: str
    submitted_at_s: float
    ended_at_s: float | None
    steps_lost: int
    spans: tuple[Span, ...]
    steps_lost_known: bool = True
    """False if it has lost, or may have lost, more steps than these."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """GPUs by host and index, jobs by submission. Unix seconds; ``seq`` is the newest record."""

    seq: int
    from_s: float
    to_s: float
    gpus: tuple[GpuLane, ...]
    jobs: tuple[JobLane, ...]


@dataclass(slots=True)
class _Lane:
    spans: list[Span] = field(default_factory=list)

    def continue_as(self, span: Span | None, at_s: float) -> int:
        """Continue the lane as ``span``, or as nothing; return the number of new spans."""
        last = self.spans[-1] if self.spans and self.spans[-1].to_s is None else None
        if last is not None and span is not None and replace(span, from_s=last.from_s) == last:
            return 0
        if last is not None:
            self.spans[-1:] = [replace(last, to_s=at_s)] if at_s > last.from_s else []
        if span is None:
            return 0
        self.spans.append(span)
        return 1


class Recorder:
    """Collects spans and the usage while an engine is fed a log."""

    def __init__(self) -> None:
        self.seq = 0
        self.now_s = 0.0
        self.usage = UsageBook()
        self._first_s: float | None = None
        self._gpus: dict[GpuId, tuple[Gpu, _Lane]] = {}
        self._jobs: dict[JobId, tuple[Job, _Lane]] = {}
        self._count = 0

    def begin(self, engine: Engine, seq: int) -> None:
        """Begin with an engine as a snapshot has it, or a new one."""
        state = engine.state
        self.seq, self.now_s = seq, state.now_s
        changes = ChangeSet()
        changes.jobs, changes.hosts = dict.fromkeys(state.jobs), dict.fromkeys(state.hosts)
        if state.hosts:
            self._add(state, changes, state.now_s)

    def record(self, engine: Engine, seq: int, at_s: float) -> tuple[Job, ...]:
        """Add the changes of the engine since the last call; return the jobs that changed."""
        self.seq, self.now_s = seq, at_s
        return self._add(engine.state, engine.drain_changes(), at_s)

    def _add(self, state: State, changes: ChangeSet, at_s: float) -> tuple[Job, ...]:
        self._first_s = at_s if self._first_s is None else self._first_s
        gpus = dict.fromkeys(changes.gpus)
        jobs = []
        for job_id in changes.jobs:
            job = state.jobs.get(job_id) or state.ended.pop(job_id, None)
            if job is not None:
                jobs.append(job)
                gpus.update(dict.fromkeys(job.gpus))
                self.usage.know(job, at_s)
                lane = self._jobs[job_id][1] if job_id in self._jobs else _Lane()
                self._jobs[job_id] = (job, lane)
                self._count += lane.continue_as(_job_span(job, at_s, job_id in state.jobs), at_s)
        for host_id in changes.hosts:
            gpus.update(dict.fromkeys(state.hosts[host_id].gpus))
        for gpu_id in gpus:
            gpu = state.gpus[gpu_id]
            lane = self._gpus[gpu_id][1] if gpu_id in self._gpus else _Lane()
            self._gpus[gpu_id] = (gpu, lane)
            span = _gpu_span(gpu, state, at_s)
            self._count += lane.continue_as(span, at_s)
            self._book(gpu, span, state.hosts[gpu.host].gpu_type, at_s)
        if self._count > SPANS_MAX:
            self._drop_oldest()
        return tuple(jobs)

    def timeline(self, from_s: float = 0.0) -> Timeline:
        """The timeline, without spans that end before ``from_s``."""
        gpus = sorted(self._gpus.values(), key=lambda entry: (entry[0].host, entry[0].index))
        jobs = sorted(self._jobs.values(), key=lambda entry: entry[0].place)
        return Timeline(
            seq=self.seq,
            from_s=max(from_s, self._first_s or 0.0),
            to_s=self.now_s,
            gpus=tuple(
                GpuLane(gpu.id, gpu.host, gpu.index, _after(lane, from_s)) for gpu, lane in gpus
            ),
            jobs=tuple(
                JobLane(
                    job.id,
                    job.spec.name,
                    job.state.value,
                    job.submitted_at_s,
                    job.finished_at_s,
                    job.steps_lost,
                    _after(lane, from_s),
                    job.all_loss_known,
                )
                for job, lane in jobs
                if job.finished_at_s is None or job.finished_at_s >= from_s
            ),
        )

    def _book(self, gpu: Gpu, span: Span | None, gpu_type: str, at_s: float) -> None:
        use = USES[span.phase] if span is not None else Use.FREE
        self.usage.book(gpu.id, Holder(gpu.owner, gpu.host, gpu_type), use, at_s)

    def _drop_oldest(self) -> None:
        """Drop the older half of the spans, so that this is rare."""
        lanes = [lane for _, lane in (*self._gpus.values(), *self._jobs.values())]
        ends = sorted(span.to_s for lane in lanes for span in lane.spans if span.to_s is not None)
        if not ends:
            return
        before_s = self._first_s = ends[len(ends) // 2]
        for lane in lanes:
            lane.spans = [s for s in lane.spans if s.to_s is None or s.to_s > before_s]
        self._jobs = {key: entry for key, entry in self._jobs.items() if entry[1].spans}
        self._count = sum(len(lane.spans) for lane in lanes)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the whole log, up to the newest record that was read."""

    seq: int
    figures: LogFigures
    usage: UsageBook


class TimelineReader:
    """Follows a store's log; one per daemon.

    The usage and the figures need the whole log. If the timeline does not begin there, another
    reader follows it from the first request for one of them on.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._usage: TimelineReader | None = self if whole else None
        self._engine = Engine()
        self._recorder = Recorder()
        self._figures, self._feed, self._series = LogFigures(), Feed(), SeriesBook()
        self._started = False
        self._is_complete = False
        """Whether the end of the log was reached once."""
        self._busy = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._fault = ""
        """Error of the last reading for ``totals``; empty if there was none."""

    async def read(self, store: Store, from_s: float = 0.0) -> Timeline:
        """The timeline up to the newest record. Raises StoreError."""
        async with self._busy:
            await self._follow(store)
            return self._recorder.timeline(from_s)

    async def changes(self, store: Store, seq: int, up_to_seq: int) -> tuple[Change, ...] | None:
        """What each record after one, up to another, changed; None if some of them are not
        remembered any more. Raises StoreError."""
        async with self._busy:
            if self._recorder.seq < up_to_seq:
                await self._follow(store)
            return self._feed.after(seq, up_to_seq)

    async def series(self, store: Store, job: JobId) -> tuple[SeriesPoint, ...]:
        """How the training of a job went. Raises StoreError."""
        async with self._busy:
            await self._follow(store)
            return self._series.points(job)

    async def usage(
        self, store: Store, by: By, from_s: float, to_s: float, user: str | None = None
    ) -> Usage:
        """The GPU-seconds in a stretch of time, of all or one user. Raises StoreError."""
        reader = await self._whole_reader(store)
        async with reader._busy:
            await reader._follow(store)
            book = reader._recorder.usage
            return await asyncio.to_thread(book.usage, by, from_s, to_s, user)

    async def totals(self, store: Store, wait_s: float) -> Totals | None:
        """The sums over the log. They lack what takes longer than ``wait_s`` to read, or what the
        store does not show now; None until the whole log was read once."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_whole(store), name="figures")
        await asyncio.wait((self._reading,), timeout=wait_s)
        reader = self._usage
        if reader is None or not reader._is_complete:
            return None
        return Totals(reader._recorder.seq, reader._figures, reader._recorder.usage)

    async def stop(self) -> None:
        """End the reading for ``totals``."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_whole(self, store: Store) -> None:
        fault = ""
        try:
            reader = await self._whole_reader(store)
            async with reader._busy:
                await reader._follow(store)
        except Exception as error:
            fault = repr(error)
            if fault != self._fault and isinstance(error, StoreError):
                remedy = "repair what the error names; the next scrape reads on"
                log.warning("figures-not-read", error=str(error), remedy=remedy)
            elif fault != self._fault:
                log.exception("figures-not-read", remedy="restart the daemon, and report this line")
        self._fault = fault

    async def _whole_reader(self, store: Store) -> TimelineReader:
        async with self._busy:
            await self._follow(store)
            if self._usage is None:
                self._usage = TimelineReader(whole=True)
        return self._usage

    async def _follow(self, store: Store) -> None:
        if not self._started:
            await self._start(store)
            self._started = True
        count = 0
        async for record in store.read(self._recorder.seq):
            self._take(record)
            count += 1
            if count % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        self._is_complete = True

    async def _start(self, store: Store) -> None:
        begin = await origin(store)
        if not self._whole and not begin.seq and await store.last_seq() > RECORDS_MAX:
            begin = await newest(store)
        else:
            self._usage = self
        self._engine = begin.engine()
        self._recorder.begin(self._engine, begin.seq)
        self._figures.begin(self._engine.state)
        self._feed.begin(begin.seq)

    def _take(self, record: LogRecord) -> None:
        done = redo(self._engine, record)
        history, state = done.history, self._engine.state
        self._figures.take(state, record, history)
        if record.at_s - self._recorder.now_s > GAP_S and _starts(record):
            self._recorder.usage.pass_gap(self._recorder.now_s, record.at_s)
        jobs = self._recorder.record(self._engine, record.seq, record.at_s)
        if self._whole:
            return  # another reader has the feed and the series
        self._series.take(state, record)
        self._feed.add(Change(record.seq, record.at_s, history, tuple(map(ChangedJob.of, jobs))))


_GPU_PHASES = {
    GpuState.RESERVED: "reserved",
    GpuState.RELEASING: "releasing",
    GpuState.QUARANTINED: "quarantined",
    GpuState.LOST: "lost",
}
_IN_USE_PHASES = {
    Stage.STARTING: "starting",
    Stage.TRAINING: "training",
    Stage.SAVING: "saving",
}
_JOB_PHASES = {
    Stage.NONE: "queued",
    Stage.LAUNCHING: "initializing",
    Stage.READY: "initialized",
    **_IN_USE_PHASES,
    Stage.STOPPING: "stopping",
    Stage.ENDING: "ending",
}
_HALTED = "halted"
SPAN_PHASES = (*_JOB_PHASES.values(), _HALTED)
"""Phases of a job's spans, in the order of its life."""


def _starts(record: LogRecord) -> bool:
    """Return whether the record is a controller's first."""
    return any(isinstance(event, ControllerStarted) for event in record.events)


def _gpu_span(gpu: Gpu, state: State, at_s: float) -> Span | None:
    if gpu.state is GpuState.IDLE:
        return None
    owner = state.jobs.get(gpu.owner) if gpu.owner is not None else None
    phase = _GPU_PHASES.get(gpu.state)
    if phase is None:
        phase = _IN_USE_PHASES.get(owner.stage, "stopping") if owner is not None else "stopping"
    return Span(phase, at_s, None, gpu.owner, len(owner.gpus) if owner is not None else 0)


def _job_span(job: Job, at_s: float, live: bool) -> Span | None:
    if not live:
        return None
    phase = _HALTED if job.state is JobState.HALTED else _JOB_PHASES[job.stage]
    return Span(phase, at_s, None, job.id, len(job.gpus))


def _after(lane: _Lane, from_s: float) -> tuple[Span, ...]:
    return tuple(span for span in lane.spans if span.to_s is None or span.to_s > from_s)
