"""Cache files (``Dataset.cache(file)``) that an earlier process left unfinished.

Does: removes their parts, so that TensorFlow fills them again, which it refuses while their lock
file exists. A whole cache, or a lock that is younger than this process, stays.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable
from typing import Any

LOCK = "lockfile"
WHOLE = ".index"


def remove_unfinished(datasets: Iterable[Any], before_s: float) -> None:
    """Remove the unfinished caches of a pipeline whose lock is older than ``before_s`` (Unix)."""
    for dataset in datasets:
        name = file_of(dataset)
        if name and not os.path.exists(name + WHOLE):
            for lock in glob.glob(f"{glob.escape(name)}_*.{LOCK}"):
                with contextlib.suppress(OSError):
                    if os.stat(lock).st_mtime < before_s:
                        _remove_parts(lock.removesuffix(LOCK))


def _remove_parts(stem: str) -> None:
    for part in glob.glob(f"{glob.escape(stem)}*"):
        os.remove(part)


def file_of(dataset: Any) -> str:
    """Return the file in which a dataset caches its elements; empty if there is none."""
    name: Any = getattr(dataset, "_filename", None)
    if type(dataset).__name__ != "CacheDataset" or not hasattr(name, "numpy"):
        return ""
    return bytes(name.numpy()).decode(errors="surrogateescape")
