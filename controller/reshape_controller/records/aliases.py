"""Other spellings of a record's fields: those of the paper's tables, and the short forms. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from reshape_controller.core.model import FieldError
from reshape_controller.records.errors import shown
from reshape_controller.records.fields import RecordFields, Resources

ALIASES: Mapping[str, tuple[str, ...]] = {
    "optional_gpus": ("optional numbers of GPUs", "optional number of GPUs"),
    "job_type": ("Job type",),
    "epochs": ("# of epochs", "number of epochs", "number of training epochs"),
    "target_accuracy": ("desired validation accuracy", "desired accuracy"),
    "global_batch": ("Batch size",),
    "dataset": ("Training dataset",),
}
"""Other names by field; case, spaces, ``_`` and ``-`` make no difference."""
ASSIGNED = ("Job id", "State", "number of GPUs", "GPU ids", "Submission time")
"""Columns of the paper's Table III that Reshape fills in."""


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().lower())


_LEAST, _MOST = frozenset({"min", "minimum", "least"}), frozenset({"max", "maximum", "most"})
_MEANT = {
    name: field
    for field, names in {
        "max_run_s": (
            "max_runtime", "max_run_time", "max_duration", "max_time", "max_walltime", "walltime",
            "time_limit", "timelimit", "timeout", "run_limit", "run_timeout", "runtime", "duration",
            "active_deadline", "deadline", "maximum_execution_time", "stop_after",
        ),
        "progress_timeout_s": (
            "hang_timeout", "stall_timeout", "no_progress_timeout", "heartbeat_timeout",
            "progress_deadline", "step_timeout", "idle_timeout", "watchdog", "watchdog_timeout",
        ),
        "start_timeout_s": (
            "startup_timeout", "init_timeout", "first_step_timeout", "start_deadline",
            "wait_for_pods_ready", "startup_deadline", "prepare_timeout",
        ),
        "max_wait_s": ("queue_timeout", "max_queue", "max_queue_time", "max_pending"),
    }.items()
    for name in names
}  # fmt: skip
"""Fields by the names that other systems have for their like, without a unit."""
_BY_SPELLING = {_plain(name): field for field, names in ALIASES.items() for name in names}
_ASSIGNED = {_plain(name) for name in ASSIGNED}
_FIELDS = tuple(RecordFields.model_fields)
_RESOURCES = tuple(Resources.model_fields)


def canonical(record: Mapping[object, object]) -> tuple[dict[str, object], tuple[FieldError, ...]]:
    """Return the record under its fields' own names, and the problems of its names."""
    fields: dict[str, object] = {}
    spelling: dict[str, str] = {}
    problems: list[FieldError] = []
    for name, value in record.items():
        field = _field(name)
        if field is None:
            problems.append(_unknown(name))
        elif field in spelling:
            problems.append(
                FieldError(
                    str(name), f"means the same as {spelling[field]}", "give only one of the two"
                )
            )
        else:
            spelling[field] = str(name)
            fields[field] = value
    problems += _move_resources(fields)
    return fields, tuple(problems)


def suggestion(name: str, known: tuple[str, ...]) -> str:
    """A remedy for a name that is not among ``known``."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name[:100])
    meant = _MEANT.get(re.sub(r"_(s|sec|seconds)$", "", _plain(words)))
    if meant in known:
        return f"did you mean {meant}? docs/jobs.md says what it bounds"
    close = [
        field
        for field in difflib.get_close_matches(name[:100], known, n=3)
        if not _contradicts(name, field)
    ]
    return f"did you mean {close[0]}?" if close else "leave it out; docs/jobs.md lists the fields"


def _contradicts(name: str, field: str) -> bool:
    """Whether one of two names is of a least and the other of a most."""
    parts = {part for each in (name, field) for part in _plain(each).split("_")}
    return bool(parts & _LEAST and parts & _MOST)


def _field(name: object) -> str | None:
    if not isinstance(name, str):
        return None
    if name in _FIELDS or name in _RESOURCES:
        return name
    return _BY_SPELLING.get(_plain(name))


def _unknown(name: object) -> FieldError:
    if not isinstance(name, str):
        return FieldError(shown(name), "is not a field's name", "a name is text")
    path = name if len(name) <= 60 and name.isprintable() else shown(name)
    if _plain(name) in _ASSIGNED:
        return FieldError(path, "is filled in by Reshape", "leave it out")
    return FieldError(path, "is not a field of a job record", suggestion(name, _FIELDS))


def _move_resources(fields: dict[str, object]) -> Iterator[FieldError]:
    """Move ``cpus`` and ``memory`` into ``resources``; yield the problems."""
    short = {name: fields.pop(name) for name in _RESOURCES if name in fields}
    inner = fields.get("resources")
    if not short:
        return
    if inner is not None and not isinstance(inner, Mapping):
        return  # reported as a wrong type
    merged = dict(inner or {})
    for name, value in short.items():
        if name in merged:
            yield FieldError(name, f"means the same as resources.{name}", "give only one of both")
        else:
            merged[name] = value
    fields["resources"] = merged
