"""The GPUs of a trace's row: how many its job gets, on how many workers, for how much GPU time.

Does: apply what is asked for parts of GPUs and for jobs that are larger than a host. It reads no
cell.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from reshape_controller.core.model import Spans
from reshape_controller.records.limits import GPUS_MAX


class Parts(StrEnum):
    """What becomes of a job with a part of a GPU."""

    LEAVE_OUT = "leave-out"
    ROUND = "round"
    """It takes whole GPUs for as long, so it has more GPU time."""
    KEEP = "keep"
    """It takes whole GPUs for a shorter time, so it has the same GPU time."""


_PARTS = {
    Parts.ROUND: "for as long",
    Parts.KEEP: "for a shorter time, with the same GPU time",
}


class Amount(NamedTuple):
    """What all rows with the same cells of GPUs have in common: thousands of rows have few."""

    gpus: float
    """In whole ones: GPUs times the share of each."""
    number: int
    """Whole GPUs that hold them."""
    whole: int
    """GPUs of the job: at most the largest number, unless it spans hosts."""
    workers: int
    """1, or the workers of a job that may be on several hosts."""
    span: Spans
    hosts: int
    """The fewest hosts that hold its workers."""
    work_gpus: float
    """GPU time of the job, over the seconds of the row."""
    notes: tuple[str, ...]
    """What was assumed."""
    unfit: str
    """Reason for which such rows become no job; empty if they become jobs."""


class Rule(NamedTuple):
    """What is asked for. ``largest``: GPUs of a host; ``cap``: larger jobs get that number."""

    largest: int
    parts: Parts
    cap: bool
    span: Spans


def amount_of(gpu_count: float, share: float, on_hosts: int, rule: Rule) -> Amount:
    """Return what a row amounts to. ``share``: the GPUs for each of ``gpu_count``, 1 or a part;
    ``on_hosts``: the hosts that the job had in the trace, 0 if it does not say so."""
    largest, held, notes, unfit = rule.largest, gpu_count * share, [], ""
    number = math.ceil(gpu_count) * math.ceil(share)
    if held != number:
        if rule.parts is Parts.LEAVE_OUT:
            unfit = "with a part of a GPU"
        else:
            notes.append(f"parts of GPUs: whole ones ({_PARTS[rule.parts]})")
    whole, workers = min(number, largest), 1
    spans = rule.span is Spans.ANY or (rule.span is Spans.IF_NEEDED and number > largest)
    if spans and number <= GPUS_MAX:
        whole, workers = number, _workers(number, largest, on_hosts)
        if workers > 1:
            notes.append(f"jobs on several hosts: equal workers, at most {largest} GPUs each")
    elif spans:
        unfit = unfit or f"with more than {GPUS_MAX} GPUs"
    elif number > largest:
        notes.append(f"more than {largest} GPUs: {largest}, for the same GPU time")
        if not rule.cap:
            unfit = unfit or f"with more than {largest} GPUs (--span or --cap keeps them)"
    work_gpus = float(number) if rule.parts is Parts.ROUND else held
    span, hosts = Spans.NEVER, 1
    if workers > 1:
        span, hosts = rule.span, math.ceil(workers / (largest // (whole // workers)))
    return Amount(held, number, whole, workers, span, hosts, work_gpus, tuple(notes), unfit)


def _workers(number: int, largest: int, least: int) -> int:
    """Return the fewest workers, ``least`` or more, that share the GPUs equally, each with as many
    as a host has."""
    for workers in range(max(1, least), number):
        if number % workers == 0 and number // workers <= largest:
            return workers
    return max(1, number)
