"""From a plain value to a ``JobSpec``, or to every problem with it.

Does: checks names, fields, rules and files, in this order, and reports all problems together. The
value stays unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from reshape_controller.core.model import (
    MIN_RUNTIME_S,
    Batch,
    FieldError,
    JobSpec,
    Length,
    LengthUnit,
    OnDifference,
    OnMaxRun,
    Placement,
    ProofUse,
    ReshapeIf,
    Spans,
)
from reshape_controller.records import messages, rules
from reshape_controller.records.aliases import canonical
from reshape_controller.records.errors import RecordInvalid, printable, shown
from reshape_controller.records.fields import NESTED, RETRIES, Handover, RecordFields
from reshape_controller.records.processes import (
    ProcessChoice,
    choose_processes,
    no_micro_batches,
)
from reshape_controller.records.text import load_json, load_yaml
from reshape_gpu.locations import NoSuchUser, is_local, resolved
from reshape_sidecar.wire import OnSaveTimeout, Shortcut


def parse_record(value: object, *, folder: Path | None = None, looks: bool = False) -> JobSpec:
    """Parse a record. Raises RecordInvalid with every problem.

    ``folder``: the folder of the record's file. Relative locations begin there, and it is the
    default for the code. If it is None, relative locations are refused. ``looks``: whether to look
    for the record's files without a ``folder`` as well. The answer tells the author which paths
    exist on this machine, so only an operator may ask a daemon.
    """
    if not isinstance(value, Mapping):
        hint = "write fields and values: name, command, optional_gpus"
        raise RecordInvalid((FieldError("", f"{shown(value)} is not a job record", hint),))
    record, problems = canonical(value)
    fields, more, bad = _validate(record)
    given = frozenset(name for name, item in record.items() if item is not None)
    errors = [*problems, *more, *rules.broken(fields, bad, given)]
    locations = {name: getattr(fields, name) for name in ("code", "dataset", "checkpoints")}
    relative = _relative(locations, folder)
    errors += relative
    absolute, unknown = _absolute(locations, folder)
    errors += unknown
    in_image = fields.image is not None
    if folder is not None and fields.code is None and "code" not in bad and not in_image:
        absolute["code"] = str(folder.absolute())
    looks = (looks or folder is not None) and "\0" not in (absolute["code"] or "")
    if looks and not any(error.path == "code" for error in relative):
        beside = fields.code if fields.code and not Path(fields.code).is_absolute() else None
        errors += rules.missing_files(absolute["code"], beside, tuple(fields.command or ()))
    if errors:
        raise RecordInvalid(tuple(_in_order(errors)), **_owner(record))
    chosen = choose_processes(fields, absolute["code"], reads=looks)
    if fields.batch is Batch.MICRO:
        errors += no_micro_batches(chosen, absolute["code"] if looks else None)
    if errors:
        raise RecordInvalid(tuple(errors), **_owner(record))
    return _spec(fields, absolute, chosen, named="reshape_if" in given)


def from_json(text: str, *, looks: bool = False) -> JobSpec:
    """Parse a record in JSON, from a request or a plain insert. Raises RecordInvalid."""
    return parse_record(load_json(text), looks=looks)


def from_yaml(
    text: str, *, source: str = "record", folder: Path | None = None, looks: bool = False
) -> JobSpec:
    """Parse a record in YAML; ``source`` names it in errors. Raises RecordInvalid."""
    return parse_record(load_yaml(text, source=source), folder=folder, looks=looks)


def _validate(
    record: dict[str, object],
) -> tuple[RecordFields, list[FieldError], frozenset[str]]:
    """The valid fields, the problems of the others, and the others' names."""
    try:
        return RecordFields.model_validate(record), [], frozenset()
    except ValidationError as error:
        details = error.errors(include_url=False)
    rest: dict[str, object] = dict(record)
    for detail in details:
        _leave_out(rest, detail["loc"])
    fields = RecordFields.model_validate(rest)
    bad = frozenset(str(detail["loc"][0]) for detail in details)
    return fields, [messages.field_error(detail) for detail in details], bad


def _leave_out(rest: dict[str, object], loc: tuple[int | str, ...]) -> None:
    """Remove an invalid value: an entry of a mapping, else the whole field."""
    top = str(loc[0])
    inner = rest.get(top)
    if len(loc) > 1 and isinstance(inner, Mapping) and top in ("env", *NESTED):
        others = {key: item for key, item in inner.items() if str(key) != str(loc[1])}
        if len(others) < len(inner):
            rest[top] = others
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


def _absolute(
    places: Mapping[str, str | None], folder: Path | None
) -> tuple[dict[str, str | None], list[FieldError]]:
    """Return the absolute locations, and the problems of those that have none."""
    found: dict[str, str | None] = dict.fromkeys(places)
    errors = []
    for name, place in places.items():
        try:
            found[name] = resolved(place, folder)
        except NoSuchUser as error:
            errors.append(FieldError(name, str(error), error.remedy))
    return found, errors


def _in_order(errors: list[FieldError]) -> list[FieldError]:
    """Sort problems by field as documented; those of unknown fields come first."""
    rank = {name: number for number, name in enumerate(RecordFields.model_fields)}

    def key(error: FieldError) -> int:
        return rank.get(error.path.split(".")[0].split("[")[0], -1)

    return sorted(errors, key=key)


def _owner(record: Mapping[str, object]) -> dict[str, str]:
    """Name and user for the rejected row, if the record has them."""
    texts = {key: record.get(key) for key in ("name", "user")}
    return {key: printable(text[:200]) for key, text in texts.items() if isinstance(text, str)}


def _length(fields: RecordFields) -> Length | None:
    for unit in LengthUnit:
        value = getattr(fields, unit.value)
        if value is not None:
            return Length(unit, float(value))
    return None


def _spec(
    fields: RecordFields, locations: Mapping[str, str | None], chosen: ProcessChoice, *, named: bool
) -> JobSpec:
    """Build the spec; None in the record means the default. ``named``: it has ``reshape_if``."""
    resources, handover = fields.resources, fields.handover or Handover()
    return JobSpec(
        name=fields.name or "",
        command=chosen.command,
        optional_gpus=tuple(fields.optional_gpus or ()),
        length=_length(fields),
        image=fields.image,
        job_type=fields.job_type,
        framework=chosen.framework,
        global_batch=fields.global_batch,
        workers=fields.workers or 1,
        code=locations["code"],
        dataset=locations["dataset"],
        checkpoints=locations["checkpoints"],
        cpus=resources.cpus if resources is not None else None,
        memory_bytes=resources.memory if resources is not None else None,
        env=tuple(sorted({**dict(chosen.env), **(fields.env or {})}.items())),
        retries=RETRIES if fields.retries is None else fields.retries,
        user=fields.user or "",
        priority=fields.priority or 0,
        max_wait_s=fields.max_wait_s,
        on_save_timeout=fields.on_save_timeout or OnSaveTimeout.REFUSE,
        seed=fields.seed,
        reshape_if=fields.reshape_if or ReshapeIf.ANY,
        metric=fields.metric,
        epochs_in_a_row=fields.epochs_in_a_row or 1,
        may_restart=bool(fields.may_restart),
        min_runtime_s=MIN_RUNTIME_S if fields.min_runtime_s is None else fields.min_runtime_s,
        max_run_s=fields.max_run_s,
        on_max_run=fields.on_max_run or OnMaxRun.PAUSE,
        progress_timeout_s=fields.progress_timeout_s,
        start_timeout_s=fields.start_timeout_s,
        start_limit_s=fields.start_limit_s,
        standby=handover.standby or Shortcut.AUTO,
        overlap=handover.overlap or Shortcut.AUTO,
        processes=chosen.processes,
        processes_reason=chosen.reason,
        span=fields.span or Spans.NEVER,
        placement=fields.placement or Placement.PACK,
        notify=tuple(dict.fromkeys(fields.notify or ())),
        batch=fields.batch or Batch.DIVIDED,
        shared_memory_bytes=rules.shared_memory_bytes(fields),
        proof=fields.proof or ProofUse.AUTO,
        on_difference=fields.on_difference or OnDifference.REPORT,
        names_reshape_if=named,
    )
