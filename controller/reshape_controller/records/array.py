"""Arrays: one record that stands for a job for each combination of some values.

``array: {lr: [0.1, 0.01], layers: [2, 4]}`` makes four records, NAME-0 to NAME-3. Each has its
values in its environment, and in place of ``{lr}`` and ``{layers}`` in command and checkpoints.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping

from reshape_controller.core.knowledge import ARRAY_TYPE
from reshape_controller.core.limits import BATCH_EVENTS_MAX
from reshape_controller.core.model import FieldError
from reshape_controller.records.aliases import canonical
from reshape_controller.records.errors import RecordInvalid, shown

ARRAY = "array"
MEMBERS_MAX = BATCH_EVENTS_MAX
"""Largest number of members: all are in one append, or none is."""
EXAMPLE = "for example array: {lr: [0.1, 0.01]}"
ALIKE = ("code", "command", "optional_gpus", "framework", "global_batch", "workers", "user")
"""Fields that the members of an array share that learn from each other."""
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def members(record: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the records that a record with ``array`` stands for. Raises RecordInvalid."""
    axes = _axes(record.get(ARRAY))
    template = {key: value for key, value in record.items() if key != ARRAY}
    combinations = itertools.product(*axes.values())
    found = [
        _member(template, number, dict(zip(axes, values, strict=True)))
        for number, values in enumerate(combinations)
    ]
    return [_typed(member) for member in found]


def _axes(value: object) -> dict[str, list[str]]:
    """Return the values of each key as texts."""
    if not isinstance(value, Mapping) or not value:
        raise _invalid(ARRAY, f"{shown(value)} is not a list of values for each key", EXAMPLE)
    axes, count = {}, 1
    for key, values in value.items():
        path = f"{ARRAY}.{key}"
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise _invalid(ARRAY, f"{shown(key)} is no key", "use letters, digits and _")
        if not isinstance(values, list) or not values:
            raise _invalid(path, f"{shown(values)} is not a list of values", EXAMPLE)
        wrong = [each for each in values if not isinstance(each, (str, int, float))]
        if wrong:
            raise _invalid(path, f"{shown(wrong[0])} is not a text or a number", EXAMPLE)
        axes[key] = [each if isinstance(each, str) else str(each) for each in values]
        count *= len(values)
    if count > MEMBERS_MAX:
        what = f"it has {count} members, more than {MEMBERS_MAX}"
        raise _invalid(ARRAY, what, "submit it in parts")
    return axes


def _member(
    template: Mapping[str, object], number: int, values: Mapping[str, str]
) -> dict[str, object]:
    member = dict(template)
    if isinstance(member.get("name"), str):
        member["name"] = f"{member['name']}-{number}"
    env = member.get("env")
    member["env"] = {**env, **values} if isinstance(env, Mapping) else env or dict(values)
    for field in ("command", "checkpoints"):
        if field in member:
            member[field] = _filled(member[field], values)
    return member


def _typed(member: dict[str, object]) -> dict[str, object]:
    """Return a member with a job type if its record names none, so that it learns from the members
    that run the same command of the same code on the same numbers of GPUs."""
    record: dict[object, object] = dict(member.items())
    fields, problems = canonical(record)
    if problems or fields.get("job_type") is not None:
        return member
    alike = repr([fields.get(name) for name in ALIKE])
    return {**member, "job_type": f"{ARRAY_TYPE}{hashlib.sha256(alike.encode()).hexdigest()[:12]}"}


def _filled(value: object, values: Mapping[str, str]) -> object:
    """Return a text, or each text of a list, with values in place of their keys in braces."""
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if isinstance(value, str):
        for key, text in values.items():
            value = value.replace(f"{{{key}}}", text)
    return value


def _invalid(path: str, message: str, hint: str) -> RecordInvalid:
    return RecordInvalid((FieldError(path, message, hint),))
