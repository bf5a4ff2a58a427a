"""Values as a pandas DataFrame, for notebooks. pandas is optional."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from reshape_gpu.errors import PackageMissing, SettingError
from reshape_gpu.usage import Usage
from reshape_gpu.values import Decisions, GpuList, History, JobPage


def to_dataframe(found: object) -> Any:
    """Return a pandas.DataFrame with a row for each value and a column for each field.

    ``found``: jobs, events, decisions, GPUs, or a usage report. Raises PackageMissing.
    """
    try:
        import pandas
    except ModuleNotFoundError:
        what, remedy = "to_dataframe needs the package pandas", "pip install pandas"
        raise PackageMissing.of(what, "import pandas", remedy) from None
    return pandas.DataFrame(records(found))


def records(found: object) -> list[dict[str, Any]]:
    """Return a dict for each value. Raises SettingError for what is no value of this package."""
    match found:
        case Usage():
            entries: Iterable[object] = found.rows
        case JobPage():
            entries = found.jobs
        case History():
            entries = found.events
        case Decisions():
            entries = found.decisions
        case GpuList():
            entries = found.gpus
        case _ if dataclasses.is_dataclass(found):
            entries = (found,)
        case Iterable():
            entries = found
        case _:
            entries = (found,)
    return [_fields(entry) for entry in entries]


def _fields(entry: object) -> dict[str, Any]:
    if not dataclasses.is_dataclass(entry) or isinstance(entry, type):
        what = f"{type(entry).__name__} is no value of this package"
        remedy = "give jobs, events, decisions, GPUs or a usage report of a Client"
        raise SettingError.of(what, repr(entry)[:80], remedy)
    return dataclasses.asdict(entry)
