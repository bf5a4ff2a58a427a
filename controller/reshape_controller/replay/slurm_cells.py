"""Cells of a Slurm accounting file (``sacct --parsable2``): durations and lists of resources.

Does: read Slurm's spellings. It does not know a file's columns, nor what a replay does with a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_DURATION = re.compile(
    r"(?:(?:([0-9]{1,5})-)?([0-9]{1,6}):)?([0-5]?[0-9]):([0-5]?[0-9](?:\.[0-9]{1,6})?)"
)
_SLICE = re.compile(r"(?:.*[_.-])?([1-7])g\.([0-9]+)gb(?:[.+].*)?", re.IGNORECASE)
DIGITS_MAX = 9
_SLICES_OF_A_GPU = 7
"""Largest number of MIG slices of a GPU, but for the A30."""
_SLICES_OF_AN_A30, _SLICE_OF_AN_A30_GB = 4, 6
_HOURS_OF_A_DAY = 24


def seconds_of(text: str) -> float | None:
    """Return the seconds of ``D-HH:MM:SS``, ``HH:MM:SS`` or ``MM:SS``; None for another text."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups(default="0")
    if found[1] is not None and int(hours) >= _HOURS_OF_A_DAY:
        return None
    return ((int(days) * _HOURS_OF_A_DAY + int(hours)) * 60 + int(minutes)) * 60 + float(seconds)


def is_resources(text: str) -> bool:
    """Return True if a text has the form of ``AllocTRES``: ``cpu=8,gres/gpu=4,mem=64G``."""
    return all("=" in part for part in text.split(","))


def gpus_of(text: str) -> float:
    """Return the number of GPUs in a list of resources; a MIG slice counts as its
    sevenths, or quarters of an A30.

    Slurm lists the GPUs of a type (``gres/gpu:a100=4``), all GPUs (``gres/gpu=4``), or both. Raises
    ValueError if a number of GPUs cannot be read.
    """
    counts = [(kind, _count_of(count, "GPUs")) for kind, count in _gpus_in(text)]
    typed = sum(count for kind, count in counts if kind)
    every = sum(count for kind, count in counts if not kind)
    return max(every - typed, 0) + sum(count * _share_of(kind) for kind, count in counts if kind)


def sum_of(texts: Sequence[str]) -> str:
    """Return the GPUs and hosts of lists of resources as one list, each GPU once. Raises
    ValueError if a number cannot be read."""
    counts: dict[str, int] = {}
    for text in texts:
        gpus = [(kind, _count_of(count, "GPUs")) for kind, count in _gpus_in(text)]
        typed = sum(count for kind, count in gpus if kind)
        every = max(typed, sum(count for kind, count in gpus if not kind))
        own = {f"gres/gpu:{kind}": count for kind, count in gpus if kind}
        for name, count in {"gres/gpu": every, "node": hosts_of(text), **own}.items():
            counts[name] = counts.get(name, 0) + count
    return ",".join(f"{name}={count}" for name, count in counts.items() if count)


def hosts_of(text: str) -> int:
    """Return the number of hosts in a list of resources (``node=2``); 0 without. Raises ValueError
    if it cannot be read."""
    found = dict(part.strip().partition("=")[::2] for part in text.split(","))
    return _count_of(found["node"], "hosts") if "node" in found else 0


def gpu_type_of(text: str) -> str:
    """Return the GPU type in a list of resources, several as ``a100+v100``; empty without."""
    return "+".join(sorted({kind for kind, _ in _gpus_in(text) if kind}))


def _gpus_in(text: str) -> Iterator[tuple[str, str]]:
    """Return type and number of GPUs in a list of resources; the empty type is all GPUs."""
    for part in text.split(","):
        resource, _, count = part.strip().partition("=")
        name, _, kind = resource.partition(":")
        if name == "gres/gpu":
            yield kind, count


def _count_of(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise ValueError(f"{text!r} is no number of {what}")
    return int(text)


def _share_of(kind: str) -> float:
    """Return the share of a GPU that a GPU type of Slurm is, such as ``a100_3g.20gb``."""
    found = _SLICE.fullmatch(kind)
    if found is None:
        return 1.0
    slices, memory_gb = int(found[1]), int(found[2])
    is_a30 = memory_gb == slices * _SLICE_OF_AN_A30_GB
    return slices / (_SLICES_OF_AN_A30 if is_a30 else _SLICES_OF_A_GPU)
