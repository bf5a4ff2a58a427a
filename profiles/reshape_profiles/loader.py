"""Profiles from files: TOML or JSON text in, checked values out.

Does: reads the bundled figures and those of users, expands the names of sources, and says of
anything wrong where it is and what to do. Never: measures, or fills in a figure. State: none.

A file has ``[[profile]]`` tables (JSON: a list ``profile``). Speeds are rows ``[gpu type, gpus,
seconds per step, source]``, accuracies rows ``[step, accuracy, source]``; the source may be left
out (then the figure counts as assumed) and may be a name from the table ``[sources]``.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from reshape_profiles.schema import (
    ASSUMED,
    DEFAULT_TYPE,
    AccuracyPoint,
    Overhead,
    Profile,
    SpeedPoint,
)

BUNDLED = "data/paper.toml"
_PROFILE_FIELDS = ("job_type", "text", "global_batch", "steps_per_epoch")
_PROFILE_TABLES = ("speed", "accuracy", "overhead")
_OVERHEADS = ("job_init_s", "process_init_s", "checkpoint_s", "process_stop_s", "job_stop_s")


class ProfileError(ValueError):
    """A profile cannot be read. ``path`` is where; the text says what, and the remedy."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


@dataclass(frozen=True, slots=True)
class Bundle:
    """Profiles of a file, named lists of job types, and named sets of costs."""

    profiles: tuple[Profile, ...]
    sets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    costs: tuple[tuple[str, Overhead], ...] = ()

    def of(self, job_type: str) -> Profile | None:
        """The profile of a job type."""
        return next((p for p in self.profiles if p.job_type == job_type), None)

    def with_costs(self, name: str) -> Profile:
        """A profile by which a set of costs stands in for every type that has none of its own.

        Raises ProfileError for a name that is not there.
        """
        for known, overhead in self.costs:
            if known == name:
                return Profile(DEFAULT_TYPE, f"costs: {name}", overhead=overhead)
        names = ", ".join(known for known, _ in self.costs)
        raise ProfileError(f"costs.{name}", f"unknown; there are {names or 'none'}")


def bundled() -> Bundle:
    """The figures that come with Reshape (data/README.md says where they are from)."""
    text = resources.files("reshape_profiles").joinpath(BUNDLED).read_text(encoding="utf-8")
    return parse(tomllib.loads(text), BUNDLED)


def load(path: Path) -> Bundle:
    """Profiles of a TOML or JSON file. Raises ProfileError, OSError."""
    text = path.read_text(encoding="utf-8")
    try:
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ProfileError(str(path), f"is no {kind} ({error})") from None
    return parse(document, str(path))


def parse(document: Any, where: str) -> Bundle:
    """Profiles of a document that was read. Raises ProfileError."""
    table = _table(document, where)
    _only(table, where, ("sources", "sets", "costs", "profile"))
    sources = _table(table.get("sources", {}), f"{where}: sources")
    rows = table.get("profile", [])
    if not isinstance(rows, list):
        raise ProfileError(f"{where}: profile", "is no list; write [[profile]] above each")
    found: dict[str, Profile] = {}
    for number, row in enumerate(rows):
        profile = _profile(row, f"{where}: profile[{number}]", sources)
        if profile.job_type in found:
            raise ProfileError(where, f"two profiles of {profile.job_type}; keep one")
        found[profile.job_type] = profile
    sets = []
    for name, types in _table(table.get("sets", {}), f"{where}: sets").items():
        unknown = [kind for kind in types if kind not in found]
        if unknown:
            raise ProfileError(f"{where}: sets.{name}", f"no profile of {', '.join(unknown)}")
        sets.append((name, tuple(types)))
    costs = []
    for name, row in _table(table.get("costs", {}), f"{where}: costs").items():
        overhead = _overhead(row, f"{where}: costs.{name}", sources)
        if overhead is not None:
            costs.append((name, overhead))
    return Bundle(tuple(found.values()), tuple(sets), tuple(costs))


def write(profile: Profile) -> str:
    """JSON text of one profile, as ``load`` reads it."""
    value: dict[str, Any] = {
        "job_type": profile.job_type,
        "text": profile.text,
        "global_batch": profile.global_batch,
        "steps_per_epoch": profile.steps_per_epoch,
        "speed": [[p.gpu_type, p.gpus, p.seconds_per_step, p.source] for p in profile.speed],
        "accuracy": [[p.step, p.accuracy, p.source] for p in profile.accuracy],
        "overhead": asdict(profile.overhead) if profile.overhead is not None else None,
    }
    kept = {name: entry for name, entry in value.items() if entry not in (None, "", [])}
    return json.dumps({"profile": [kept]}, indent=2, ensure_ascii=False) + "\n"


def _profile(value: Any, where: str, sources: Mapping[str, Any]) -> Profile:
    table = _table(value, where)
    _only(table, where, (*_PROFILE_FIELDS, *_PROFILE_TABLES))
    speed = [
        _row(row, f"{where}.speed[{number}]", sources, (str, int, float))
        for number, row in enumerate(table.get("speed", []))
    ]
    accuracy = [
        _row(row, f"{where}.accuracy[{number}]", sources, (int, float))
        for number, row in enumerate(table.get("accuracy", []))
    ]
    for name, kind in zip(_PROFILE_FIELDS, (str, str, int, int), strict=True):
        if name in table and type(table[name]) is not kind:
            raise ProfileError(f"{where}.{name}", f"{table[name]!r} is no {kind.__name__}")
    try:
        return Profile(
            job_type=table.get("job_type", ""),
            text=table.get("text", ""),
            global_batch=table.get("global_batch"),
            steps_per_epoch=table.get("steps_per_epoch"),
            speed=tuple(SpeedPoint(*row) for row in speed),
            accuracy=tuple(AccuracyPoint(*row) for row in accuracy),
            overhead=_overhead(table.get("overhead"), f"{where}.overhead", sources),
        )
    except ProfileError:
        raise
    except ValueError as error:
        raise ProfileError(where, str(error)) from None


def _overhead(value: Any, where: str, sources: Mapping[str, Any]) -> Overhead | None:
    if value is None:
        return None
    table = _table(value, where)
    _only(table, where, (*_OVERHEADS, "source"))
    missing = [name for name in _OVERHEADS if name not in table]
    if missing:
        raise ProfileError(where, f"{', '.join(missing)} missing; give all five, 0 where none")
    start, process, save, stop, end = (
        _number(table[name], f"{where}.{name}") for name in _OVERHEADS
    )
    source = _source(table.get("source"), sources)
    try:
        return Overhead(start, process, save, stop, end, source)
    except ValueError as error:
        raise ProfileError(where, str(error)) from None


def _row(
    value: Any, where: str, sources: Mapping[str, Any], kinds: tuple[type, ...]
) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) not in (len(kinds), len(kinds) + 1):
        raise ProfileError(where, f"has not {len(kinds)} entries, or one more for the source")
    cells: list[Any] = []
    for number, (cell, kind) in enumerate(zip(value, kinds, strict=False)):
        if kind is float:
            cells.append(_number(cell, f"{where}[{number}]"))
        elif type(cell) is kind:
            cells.append(cell)
        else:
            raise ProfileError(f"{where}[{number}]", f"{cell!r} is no {kind.__name__}")
    return (*cells, _source(value[len(kinds)] if len(value) > len(kinds) else None, sources))


def _source(value: Any, sources: Mapping[str, Any]) -> str:
    return ASSUMED if value is None else str(sources.get(str(value), value))


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ProfileError(where, f"{value!r} is no number")
    return float(value)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ProfileError(where, "is no table of names and values")
    return value


def _only(table: Mapping[str, Any], where: str, names: tuple[str, ...]) -> None:
    for name in table:
        if name not in names:
            raise ProfileError(f"{where}.{name}", f"unknown; there are {', '.join(names)}")
