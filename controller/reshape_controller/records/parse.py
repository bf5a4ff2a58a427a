"""From a plain value to a ``JobSpec``, or to everything that is wrong with it.

Does: names, fields, rules and files, in this order, and reports all of them together. Never:
changes the value that it was given. State: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from reshape_controller.core.model import FieldError, Framework, JobSpec, Length, LengthUnit
from reshape_controller.records import messages, rules
from reshape_controller.records.aliases import canonical
from reshape_controller.records.errors import RecordInvalid, printable, shown
from reshape_controller.records.fields import RETRIES, RecordFields
from reshape_controller.records.locations import is_local, resolved
from reshape_controller.records.text import load_json, load_yaml
from reshape_sidecar.wire import OnSaveTimeout


def parse_record(value: object, *, folder: Path | None = None) -> JobSpec:
    """The job that a record describes.

    ``folder`` is where relative locations begin, and where the code is unless the record says so:
    the folder of the record's file. Without one, relative locations are refused.
    Raises RecordInvalid with every problem.
    """
    if not isinstance(value, Mapping):
        hint = "write fields and values: name, command, optional_gpus"
        raise RecordInvalid((FieldError("", f"{shown(value)} is not a job record", hint),))
    found, problems = canonical(value)
    fields, more, bad = _checked(found)
    given = frozenset(name for name, item in found.items() if item is not None)
    errors = [*problems, *more, *rules.broken(fields, bad, given)]
    places = {name: getattr(fields, name) for name in ("code", "dataset", "checkpoints")}
    relative = _relative(places, folder)
    errors += relative
    here = {name: resolved(place, folder) for name, place in places.items()}
    images_own = fields.image is not None
    if folder is not None and fields.code is None and "code" not in bad and not images_own:
        here["code"] = str(folder.absolute())
    if "\0" not in (here["code"] or "") and not any(error.path == "code" for error in relative):
        beside = fields.code if fields.code and not Path(fields.code).is_absolute() else None
        errors += rules.missing_files(here["code"], beside, tuple(fields.command or ()))
    if errors:
        raise RecordInvalid(tuple(_in_order(errors)), **_owner(found))
    return _spec(fields, here)


def from_json(text: str) -> JobSpec:
    """The job that a JSON text describes, also that of a plain insert. Raises RecordInvalid."""
    return parse_record(load_json(text))


def from_yaml(text: str, *, source: str = "record", folder: Path | None = None) -> JobSpec:
    """The job that a YAML text describes; ``source`` names it in errors. Raises RecordInvalid."""
    return parse_record(load_yaml(text, source=source), folder=folder)


def _checked(
    found: dict[str, object],
) -> tuple[RecordFields, list[FieldError], frozenset[str]]:
    """The fields that are right, what is wrong with the others, and the others' names."""
    try:
        return RecordFields.model_validate(found), [], frozenset()
    except ValidationError as error:
        details = error.errors(include_url=False)
    rest: dict[str, object] = dict(found)
    for detail in details:
        _leave_out(rest, detail["loc"])
    fields = RecordFields.model_validate(rest)
    bad = frozenset(str(detail["loc"][0]) for detail in details)
    return fields, [messages.field_error(detail) for detail in details], bad


def _leave_out(rest: dict[str, object], loc: tuple[int | str, ...]) -> None:
    """Take out what is wrong: one entry of a mapping, else the whole field."""
    top = str(loc[0])
    inner = rest.get(top)
    if len(loc) > 1 and isinstance(inner, Mapping) and top in ("env", "resources"):
        kept = {key: item for key, item in inner.items() if str(key) != str(loc[1])}
        if len(kept) < len(inner):
            rest[top] = kept
            return
    rest.pop(top, None)


def _relative(places: Mapping[str, str | None], folder: Path | None) -> list[FieldError]:
    if folder is not None:
        return []
    return [
        FieldError(name, f"{shown(place)} is a relative path", "give an absolute path")
        for name, place in places.items()
        if place is not None and is_local(place) and not place.startswith("/")
    ]


def _in_order(errors: list[FieldError]) -> list[FieldError]:
    """By field as documented; problems of unknown fields first."""
    rank = {name: number for number, name in enumerate(RecordFields.model_fields)}

    def key(error: FieldError) -> int:
        return rank.get(error.path.split(".")[0].split("[")[0], -1)

    return sorted(errors, key=key)


def _owner(found: Mapping[str, object]) -> dict[str, str]:
    """Name and user for the rejected row, as far as the record has them."""
    texts = {key: found.get(key) for key in ("name", "user")}
    return {key: printable(text[:200]) for key, text in texts.items() if isinstance(text, str)}


def _length(fields: RecordFields) -> Length | None:
    for unit in LengthUnit:
        value = getattr(fields, unit.value)
        if value is not None:
            return Length(unit, float(value))
    return None


def _spec(fields: RecordFields, places: Mapping[str, str | None]) -> JobSpec:
    """The spec; None in the record means the default."""
    resources = fields.resources
    return JobSpec(
        name=fields.name or "",
        command=tuple(fields.command or ()),
        optional_gpus=tuple(fields.optional_gpus or ()),
        length=_length(fields),
        image=fields.image,
        job_type=fields.job_type,
        framework=fields.framework or Framework.KERAS,
        global_batch=fields.global_batch,
        workers=fields.workers or 1,
        code=places["code"],
        dataset=places["dataset"],
        checkpoints=places["checkpoints"],
        cpus=resources.cpus if resources is not None else None,
        memory_bytes=resources.memory if resources is not None else None,
        env=tuple(sorted((fields.env or {}).items())),
        retries=RETRIES if fields.retries is None else fields.retries,
        user=fields.user or "",
        priority=fields.priority or 0,
        max_wait_s=fields.max_wait_s,
        on_save_timeout=fields.on_save_timeout or OnSaveTimeout.REFUSE,
        seed=fields.seed,
    )
