"""What the GPUs of one donor bring to a newcomer at most, in bounds for many donors at once.

Does: answers for a class of donors before any of its options is evaluated (``MaxGain``), and while
they are (``DonorRange``). It evaluates no option.

Why one comparison can end the evaluation of a class. Its donors on full hosts, in the order in
which they end, differ in their times only: the later one ends, the more it loses at each size, and
the more its reshape has to save. So if the options of one are worse than all that matter, those of
all behind it are. They count as options that were compared.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from reshape_controller.core.plan import JobView
from reshape_controller.scheduling.cluster_index import RunningClass, RunningEntry
from reshape_controller.scheduling.forecast import Outlook
from reshape_controller.scheduling.predictor import ROUNDING_MS, lent_loss_ms, to_ms
from reshape_controller.scheduling.rules import saves_enough


class MaxGain(NamedTuple):
    """Upper bounds on what the GPUs of one donor bring, in milliseconds."""

    total_ms: int
    """Saved in the sum of completion times; the donor's own loss is not deducted."""
    queue_limit_ms: int
    """Until then other queued jobs have use for GPUs that become free."""
    makespan_ms: int
    """Saved in the makespan."""
    stay_ms: int
    """When the newcomer will have left at the earliest, if its donor gets the GPUs back then;
    negative if a donor gets none back."""


class _Pair(NamedTuple):
    """A size of the newcomer, with the smaller size that a donor keeps for it."""

    end_ms: int
    """When the newcomer will have left."""
    slowdown: float
    """By what part an iteration of the donor gets longer."""
    lent_ms: float
    """What the donor loses if it gets its GPUs back then; infinite if it gets none back."""


class DonorRange:
    """Donors of one class on hosts without idle GPUs, in the order in which they end."""

    def __init__(
        self,
        gains: MaxGains,
        entries: list[RunningEntry],
        pairs: list[_Pair],
        queue_limit_ms: int,
    ) -> None:
        self.entries = entries
        self.options_each = len(pairs)
        """The number of options that each donor has."""
        self._gains, self._pairs, self._queue_limit_ms = gains, pairs, queue_limit_ms
        self._soonest_ms = min([pair.end_ms for pair in pairs])

    def least(self, at: int) -> tuple[int, int]:
        """Return lower bounds on both figures of every option of the donors from position ``at``
        on, if these do not change the schedule of the queue."""
        gains, entry = self._gains, self.entries[at]
        train_ms = (entry.train_end_s - gains.now_s) * 1000.0
        if train_ms < 0.0:
            train_ms = 0.0
        least_ms, reshape_ms = inf, entry.in_place_s * 1000.0
        for end_ms, slowdown, lent_ms in self._pairs:
            loss_ms = train_ms * slowdown + reshape_ms
            loss_ms = end_ms + (loss_ms if loss_ms < lent_ms else lent_ms)
            if loss_ms < least_ms:
                least_ms = loss_ms
        total_ms = gains.sums_ms + int(least_ms) - ROUNDING_MS
        makespan_ms = max(gains.floor_ms, self._soonest_ms)
        return (total_ms, makespan_ms) if gains.by_sum else (makespan_ms, total_ms)

    def may_matter(self, at: int, best: tuple[int, int], worst: tuple[int, int]) -> bool:
        """Whether an option of the donors from position ``at`` on may save enough and be as good as
        ``best``, or be as good as ``worst`` whatever it saves."""
        gains = self._gains
        end_ms = self.entries[at].end_from_now_ms(gains.now_ms)
        if end_ms <= self._queue_limit_ms:  # it may change the schedule of the queue
            return True
        least = self.least(at)
        if least <= worst:
            return True
        return least <= best and saves_enough(*least, gains.baseline, gains.min_saving_ms(end_ms))


class MaxGains:
    """Upper bounds on what the GPUs of one donor bring to one newcomer."""

    def __init__(
        self,
        outlook: Outlook,
        newcomer: JobView,
        min_saving_ms: Callable[[int], int],
        min_release_s: float,
        baseline: tuple[int, int],
    ) -> None:
        """``min_saving_ms`` gives what a reshape has to save; ``min_release_s``: a lower bound on
        the seconds until a donor has released GPUs."""
        forecast, queue = outlook.forecast, outlook.if_started
        self._outlook, self._newcomer, self._min_release_s = outlook, newcomer, min_release_s
        self.min_saving_ms, self.baseline = min_saving_ms, baseline
        self.now_s, self.now_ms = forecast.snapshot.now_s, forecast.now_ms
        self.by_sum = forecast.by_sum
        makespan, total = forecast.rules.objective.in_order(*baseline)
        self.floor_ms = max(queue.last_ms, forecast.latest[0][0])
        """No option of a donor has a shorter makespan, unless its donor ends earlier by it."""
        self.sums_ms = forecast.ends_sum_ms + queue.sum_ms
        """The sum of the completion times of all jobs but the newcomer, if it starts on idle
        GPUs."""
        self._makespan_gain = makespan - self.floor_ms
        """An upper bound on how much the makespan falls."""
        self._total_if_waiting = total - self.sums_ms
        """The completion time of the newcomer if it waits, with what that costs other jobs (ms)."""
        self._queue_limits = [-1] * len(forecast.types)
        if outlook.others:
            self._queue_limits = outlook.reach.limits_ms

    def of(self, type_number: int, releases: tuple[int, ...]) -> MaxGain | None:
        """Return the bounds for donors of a GPU type that can release these numbers of GPUs; None
        if no bound holds for them."""
        job, alone = self._newcomer, not self._outlook.others
        queue_limit = self._queue_limits[type_number]
        sizes = [size for size in job.sizes if size in releases]
        if alone and not sizes:
            sizes = [size for size in job.sizes if size <= releases[0]]
        if not sizes:
            return None
        forecast = self._outlook.forecast
        gpu_type, predictor = forecast.types[type_number], forecast.predictor
        shortest_s = min([predictor.incoming_s(job, gpu_type, size) for size in sizes])
        end = to_ms(shortest_s + self._min_release_s) - ROUNDING_MS
        if end <= queue_limit:
            return None
        stay = end if forecast.rules.lends else -1
        return MaxGain(self._total_if_waiting - end, queue_limit, self._makespan_gain, stay)

    def range_of(
        self, job_class: RunningClass, slowdown: float, entries: list[RunningEntry]
    ) -> DonorRange | None:
        """Return donors of a class that has a ``MaxGain`` as a range. None: no bound holds while
        they are evaluated, for their slowdowns are unknown, or rounding could decide.

        ``slowdown``: by what part an iteration gets longer for each of them, at least; it counts
        at all sizes of jobs that have speeds of their own.
        """
        first = entries[0]
        if slowdown < 0.0 or first.is_cheap:
            return None
        pairs: list[_Pair] = []
        forecast, sizes = self._outlook.forecast, self._newcomer.sizes
        predictor, gpu_type = forecast.predictor, forecast.types[job_class.type_number]
        times = predictor.donor_times(first.job)
        for smaller in times.smaller:
            if smaller.releases not in sizes:
                continue
            alone_s = predictor.incoming_s(self._newcomer, gpu_type, smaller.releases)
            end, longer, lent = to_ms(alone_s + times.release_s), slowdown, inf
            if not job_class.own_speeds:
                longer = smaller.lost_part / (1.0 - smaller.lost_part)
            if forecast.rules.lends:
                lent = lent_loss_ms(to_ms(first.in_place_s), longer / (1.0 + longer), end)
            pairs.append(_Pair(end, longer, lent))
        if not pairs:
            return None
        return DonorRange(self, entries, pairs, self._queue_limits[job_class.type_number])
