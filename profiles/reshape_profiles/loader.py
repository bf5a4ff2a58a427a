"""Profiles as documents: TOML or JSON in, checked values out, and back.

Does: read the bundled profiles and those of users, and expand the names of sources. An error names
the place and the remedy. It does not fill in missing values.

A document has ``[[profile]]`` tables (JSON: a list ``profile``). Speeds are rows ``[gpu type, gpus,
seconds per step, source]``, accuracies rows ``[step, accuracy, source]``. The source is optional
(the value then counts as assumed) and may be a name from the table ``[sources]``. A table
``[provenance]`` tells people how the values were measured.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from reshape_profiles.schema import (
    ASSUMED,
    COSTS,
    DEFAULT_TYPE,
    AccuracyPoint,
    Overhead,
    Profile,
    SpeedPoint,
    Verification,
)

BUNDLED = "data/paper.toml"
_PROFILE_FIELDS = ("job_type", "text", "global_batch", "steps_per_epoch")
_PROFILE_TABLES = ("speed", "accuracy", "overhead", "verification")
_VERIFICATION_FIELDS = {
    "verdict": str, "reason": str, "steps": int, "sizes": list, "date": str, "versions": str,
}  # fmt: skip
JOB_TYPE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
"""Pattern of a job type, as in job records."""
TEXT_CHARS_MAX = 1000
POINTS_MAX = 2000
"""Largest number of speeds, and of accuracies, of a profile."""
WHOLE_MAX = 2**53
"""Largest whole number; programs that read the store may round larger ones."""


class ProfileError(ValueError):
    """A profile cannot be read. ``path`` is the place; the text has the reason and the remedy."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


@dataclass(frozen=True, slots=True)
class Bundle:
    """Profiles of a file, named lists of job types, and named sets of costs."""

    profiles: tuple[Profile, ...]
    sets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    costs: tuple[tuple[str, Overhead], ...] = ()

    def of(self, job_type: str) -> Profile | None:
        """Return the profile of a job type; None if there is none."""
        return next((p for p in self.profiles if p.job_type == job_type), None)

    def with_costs(self, name: str) -> Profile:
        """Return a default profile with a set of costs, for all types without costs of their own.

        Raises ProfileError for an unknown name.
        """
        for known, overhead in self.costs:
            if known == name:
                return Profile(DEFAULT_TYPE, f"costs: {name}", overhead=overhead)
        names = ", ".join(known for known, _ in self.costs)
        raise ProfileError(f"costs.{name}", f"unknown; use one of: {names or 'none'}")


def bundled() -> Bundle:
    """Return the profiles that come with Reshape (data/README.md names their sources)."""
    text = resources.files("reshape_profiles").joinpath(BUNDLED).read_text(encoding="utf-8")
    return parse(tomllib.loads(text), BUNDLED)


def parse(document: Any, where: str) -> Bundle:
    """Return the profiles of a parsed document. Raises ProfileError."""
    table = _table(document, where)
    _only(table, where, ("sources", "sets", "costs", "profile", "provenance"))
    sources = _table(table.get("sources", {}), f"{where}: sources")
    rows = table.get("profile", [])
    if not isinstance(rows, list):
        raise ProfileError(
            f"{where}: profile", "is not a list; write [[profile]] above each profile"
        )
    found: dict[str, Profile] = {}
    for number, row in enumerate(rows):
        profile = _profile(row, f"{where}: profile[{number}]", sources)
        if profile.job_type in found:
            raise ProfileError(where, f"two profiles of {profile.job_type}; keep one")
        found[profile.job_type] = profile
    sets = []
    for name, types in _table(table.get("sets", {}), f"{where}: sets").items():
        if not isinstance(types, list) or not all(isinstance(kind, str) for kind in types):
            raise ProfileError(f"{where}: sets.{name}", "is not a list of job types")
        if not types:
            raise ProfileError(
                f"{where}: sets.{name}", "names no job type; leave it out, or name one"
            )
        unknown = [kind for kind in types if kind not in found]
        if unknown:
            what = f"no profile of {', '.join(unknown)} in this file; a set names only its types"
            raise ProfileError(f"{where}: sets.{name}", what)
        sets.append((name, tuple(types)))
    costs = []
    for name, row in _table(table.get("costs", {}), f"{where}: costs").items():
        overhead = _overhead(row, f"{where}: costs.{name}", sources)
        if overhead is not None:
            costs.append((name, overhead))
    return Bundle(tuple(found.values()), tuple(sets), tuple(costs))


def document(profiles: Iterable[Profile]) -> dict[str, Any]:
    """Return profiles as a document that ``parse`` reads."""
    return {"profile": [_table_of(profile) for profile in profiles]}


def write(profiles: Iterable[Profile]) -> str:
    """Return JSON text of profiles."""
    return json.dumps(document(profiles), indent=2, ensure_ascii=False) + "\n"


def bounded(profile: Profile, where: str) -> Profile:
    """Return the profile. Raises ProfileError for values that no store or job record can hold."""
    if JOB_TYPE.fullmatch(profile.job_type) is None:
        what = f"{profile.job_type[:100]!r} is not a job type name"
        raise ProfileError(f"{where}.job_type", f"{what}; use letters, digits, -, _ and .")
    texts = [("text", profile.text)]
    sources = {
        "speed": [point.source for point in profile.speed],
        "accuracy": [point.source for point in profile.accuracy],
    }
    for name, said in sources.items():
        if len(said) > POINTS_MAX:
            what = f"has {len(said)} figures; keep at most {POINTS_MAX}"
            raise ProfileError(f"{where}.{name}", what)
        texts += [(f"{name}[{n}]: source", source) for n, source in enumerate(said)]
    texts += [(f"speed[{n}]: GPU type", point.gpu_type) for n, point in enumerate(profile.speed)]
    if profile.overhead is not None:
        texts.append(("overhead.source", profile.overhead.source))
    if profile.verification is not None:
        for name in ("reason", "date", "versions"):
            texts.append((f"verification.{name}", getattr(profile.verification, name)))
    for name, text in texts:
        if len(text) > TEXT_CHARS_MAX or "\0" in text or not _is_unicode(text):
            what = f"{text[:20]!r}... is not a text of at most {TEXT_CHARS_MAX} characters"
            raise ProfileError(f"{where}.{name}", f"{what}; shorten it")
    wholes = [profile.global_batch or 0, profile.steps_per_epoch or 0]
    if profile.verification is not None:
        wholes += [profile.verification.steps, *profile.verification.sizes]
    wholes += [point.gpus for point in profile.speed] + [point.step for point in profile.accuracy]
    if max(wholes) > WHOLE_MAX:
        raise ProfileError(where, f"{max(wholes)} is too large; correct it (at most 2**53)")
    return profile


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _table_of(profile: Profile) -> dict[str, Any]:
    value: dict[str, Any] = {
        "job_type": profile.job_type,
        "text": profile.text,
        "global_batch": profile.global_batch,
        "steps_per_epoch": profile.steps_per_epoch,
        "speed": [_speed_row(point) for point in profile.speed],
        "accuracy": [[p.step, p.accuracy, p.source] for p in profile.accuracy],
        "overhead": asdict(profile.overhead) if profile.overhead is not None else None,
        "verification": None if profile.verification is None else _verified(profile.verification),
    }
    return {name: entry for name, entry in value.items() if entry not in (None, "", [])}


def _speed_row(point: SpeedPoint) -> list[Any]:
    row = [point.gpu_type, point.gpus, point.seconds_per_step, point.source]
    return [*row, point.hosts] if point.hosts > 1 else row


def _profile(value: Any, where: str, sources: Mapping[str, Any]) -> Profile:
    table = _table(value, where)
    _only(table, where, (*_PROFILE_FIELDS, *_PROFILE_TABLES))
    speed = _rows(table, where, "speed", sources, (str, int, float), more=(int,))
    accuracy = _rows(table, where, "accuracy", sources, (int, float))
    for name, kind in zip(_PROFILE_FIELDS, (str, str, int, int), strict=True):
        if name in table and type(table[name]) is not kind:
            raise ProfileError(f"{where}.{name}", f"{table[name]!r} is not of type {kind.__name__}")
    try:
        profile = Profile(
            job_type=table.get("job_type", ""),
            text=table.get("text", ""),
            global_batch=table.get("global_batch"),
            steps_per_epoch=table.get("steps_per_epoch"),
            speed=tuple(SpeedPoint(*row) for row in speed),
            accuracy=tuple(AccuracyPoint(*row) for row in accuracy),
            overhead=_overhead(table.get("overhead"), f"{where}.overhead", sources),
            verification=_verification(table.get("verification"), f"{where}.verification"),
        )
        return bounded(profile, where)
    except ProfileError:
        raise
    except ValueError as error:
        raise ProfileError(where, str(error)) from None


def _overhead(value: Any, where: str, sources: Mapping[str, Any]) -> Overhead | None:
    if value is None:
        return None
    table = _table(value, where)
    _only(table, where, (*COSTS, "source"))
    missing = [name for name in COSTS if name not in table]
    if missing:
        raise ProfileError(where, f"{', '.join(missing)} missing; give all five, 0 where none")
    figures = {name: _number(table[name], f"{where}.{name}") for name in COSTS}
    try:
        return Overhead(**figures, source=_source(table.get("source"), sources))
    except ValueError as error:
        raise ProfileError(where, str(error)) from None


def _verified(verification: Verification) -> dict[str, Any]:
    return {**asdict(verification), "sizes": list(verification.sizes)}


def _verification(value: Any, where: str) -> Verification | None:
    if value is None:
        return None
    table = _table(value, where)
    _only(table, where, tuple(_VERIFICATION_FIELDS))
    for name, kind in _VERIFICATION_FIELDS.items():
        if name not in table:
            raise ProfileError(f"{where}.{name}", "is missing; `reshape verify` writes all fields")
        if type(table[name]) is not kind:
            raise ProfileError(f"{where}.{name}", f"{table[name]!r} is not of type {kind.__name__}")
    sizes = table["sizes"]
    if not sizes or any(type(size) is not int or not 1 <= size <= WHOLE_MAX for size in sizes):
        raise ProfileError(f"{where}.sizes", f"{sizes!r} is not a list of GPU counts, as [4, 2, 4]")
    try:
        return Verification(**{**table, "sizes": tuple(sizes)})
    except ValueError as error:
        raise ProfileError(where, str(error)) from None


def _rows(
    table: Mapping[str, Any],
    where: str,
    name: str,
    sources: Mapping[str, Any],
    kinds: tuple[type, ...],
    more: tuple[type, ...] = (),
) -> list[tuple[Any, ...]]:
    rows = table.get(name, [])
    if not isinstance(rows, list):
        raise ProfileError(f"{where}.{name}", "is not a list; write one row for each figure")
    return [_row(row, f"{where}.{name}[{n}]", sources, kinds, more) for n, row in enumerate(rows)]


def _row(
    value: Any,
    where: str,
    sources: Mapping[str, Any],
    kinds: tuple[type, ...],
    more: tuple[type, ...],
) -> tuple[Any, ...]:
    """Return the cells of a row: those of ``kinds``, the source, and what there is of ``more``."""
    least = len(kinds)
    if not isinstance(value, list) or not least <= len(value) <= least + 1 + len(more):
        others = ", and one for the number of hosts" if more else ""
        raise ProfileError(
            where, f"must have {least} entries, and may have one more for the source{others}"
        )
    cells: list[Any] = []
    for number, (cell, kind) in enumerate(zip(value, kinds, strict=False)):
        if kind is float:
            cells.append(_number(cell, f"{where}[{number}]"))
        elif type(cell) is kind:
            cells.append(cell)
        else:
            raise ProfileError(f"{where}[{number}]", f"{cell!r} is not of type {kind.__name__}")
    cells.append(_source(value[least] if len(value) > least else None, sources))
    for number, (cell, kind) in enumerate(zip(value[least + 1 :], more, strict=False), least + 1):
        if type(cell) is not kind:
            raise ProfileError(f"{where}[{number}]", f"{cell!r} is not of type {kind.__name__}")
        cells.append(cell)
    return tuple(cells)


def _source(value: Any, sources: Mapping[str, Any]) -> str:
    return ASSUMED if value is None else str(sources.get(str(value), value))


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProfileError(where, f"{value!r} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ProfileError(where, "is too large a number") from None


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProfileError(where, "is not a table of names and values")
    return value


def _only(table: Mapping[str, Any], where: str, names: tuple[str, ...]) -> None:
    for name in table:
        if name not in names:
            raise ProfileError(f"{where}.{name}", f"unknown; use one of: {', '.join(names)}")
