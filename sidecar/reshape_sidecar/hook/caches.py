"""Cache files (``Dataset.cache(file)``) that the process before was filling when it ended.

Does: removes what it left of them, so that they can be filled again: TensorFlow refuses that while
their lock file is there. Never: touches a cache that is whole, or a lock that is younger than this
process. State: none.
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
    """Remove what was left of the unfinished caches of a pipeline, if its lock was made earlier."""
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
    """Where a dataset caches its elements; empty for one that does not, or does so in memory."""
    name: Any = getattr(dataset, "_filename", None)
    if type(dataset).__name__ != "CacheDataset" or not hasattr(name, "numpy"):
        return ""
    return bytes(name.numpy()).decode(errors="surrogateescape")
