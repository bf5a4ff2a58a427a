"""Rules of a record that look at several fields, at files beside it, or at the known hosts.

Does: yields each broken rule. A field that is invalid by itself is None here and named in ``bad``:
its problem is reported already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from reshape_controller.core.model import (
    Batch,
    FieldError,
    Framework,
    Host,
    JobSpec,
    OnDifference,
    Placement,
    ProofUse,
    Spans,
)
from reshape_controller.records.command import script_of
from reshape_controller.records.errors import shown
from reshape_controller.records.fields import RecordFields
from reshape_controller.records.launchers import LaunchError, parse_launch
from reshape_gpu.locations import is_local, url_scheme
from reshape_sidecar.contract import RESERVED_PREFIXES
from reshape_sidecar.wire import Processes

LENGTHS = ("epochs", "steps", "target_accuracy")
FALLING = ("loss", "error")
"""Ends of the names of metrics that fall while a model learns."""
_INSTEAD_OF_URL = {
    "code": "copy the code there first",
    "dataset": "mount the bucket there; or leave dataset out and give the script the URL in env",
    "checkpoints": "mount the bucket there, or copy the checkpoints after the job has ended",
}
"""What works in place of a URL, by field."""
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def broken(
    fields: RecordFields, bad: frozenset[str], given: frozenset[str]
) -> Iterator[FieldError]:
    """Yield each broken rule over fields. Files are checked by ``missing_files``.

    ``bad``: fields that are invalid by themselves. ``given``: fields that the record has.
    """
    yield from _required(fields, bad)
    yield from _sizes(fields)
    yield from _lengths(fields, bad, given)
    yield from _processes(fields)
    yield from _micro_batches(fields)
    yield from _span(fields)
    yield from _memory(fields)
    yield from _texts(fields)
    yield from _env(fields)
    yield from _proof(fields)


def missing_files(
    code: str | None, code_given: str | None, command: tuple[str, ...]
) -> Iterator[FieldError]:
    """Yield the problem of a code folder, or a script in it, that is missing.

    ``code``: the absolute folder; one that is missing may be on another machine. ``code_given``:
    the record's own text if it was relative; then the folder must be on this machine.
    """
    if code is None or not is_local(code):
        return
    folder = Path(code)
    if not folder.is_dir():
        if code_given is not None:
            yield FieldError("code", f"folder {code} does not exist", "give the script's folder")
        return
    script = script_of(command)
    if script is None or "{" in script:
        return
    path = folder / script
    if not path.is_file():
        yield FieldError(
            "command",
            f"script missing: {path} does not exist",
            "give the script's path within code, or set code to its folder",
        )


def check_against_hosts(spec: JobSpec, hosts: Iterable[Host]) -> tuple[FieldError, ...]:
    """Problems of sizes that no known host has, or for a job that may span, no hosts together.

    A drained or silent host counts, because the job can wait for it. If no host is known, there is
    no problem.
    """
    known = tuple(hosts)
    if not known:
        return ()
    if spec.span is not Spans.NEVER:
        return tuple(_unplaced(spec, known))
    largest = max(known, key=lambda host: (len(host.gpus), host.id))
    most = len(largest.gpus)
    fitting = [size for size in spec.optional_gpus if size <= most]
    hint = f"leave out sizes above {most}, or add a larger host first"
    if not fitting:
        hint = f"give at most {most} GPUs, or add a larger host first"
    return tuple(
        FieldError(
            f"optional_gpus[{number}]",
            f"{size} GPUs are more than any known host has ({largest.id} has {most})",
            hint,
        )
        for number, size in enumerate(spec.optional_gpus)
        if size > most
    )


def _unplaced(spec: JobSpec, hosts: tuple[Host, ...]) -> Iterator[FieldError]:
    """Yield the sizes for which hosts of one GPU type have too few GPUs for whole workers."""
    for number, size in enumerate(spec.optional_gpus):
        each = size // spec.workers
        slots: dict[str, int] = {}
        for host in hosts:
            slots[host.gpu_type] = slots.get(host.gpu_type, 0) + len(host.gpus) // each
        most = max(slots.values())
        if most < spec.workers:
            needs = f"{spec.workers} workers with {each} GPUs each, on one host each"
            yield FieldError(
                f"optional_gpus[{number}]",
                f"{size} GPUs are {needs}, and the known hosts of one GPU type hold {most}",
                "leave the size out, give more workers, or add hosts first",
            )


def _required(fields: RecordFields, bad: frozenset[str]) -> Iterator[FieldError]:
    if fields.name is None and "name" not in bad:
        yield FieldError("name", "is missing", "give the job a name, for example resnet-1")
    if fields.command is None and fields.image is None and not bad & {"command", "image"}:
        yield FieldError("command", "is missing", "say what to run, for example python train.py")
    if fields.optional_gpus is None and "optional_gpus" not in bad:
        yield FieldError(
            "optional_gpus",
            "is missing",
            "say with how many GPUs the job can run, for example [1, 2, 4]",
        )


def _sizes(fields: RecordFields) -> Iterator[FieldError]:
    sizes = fields.optional_gpus
    if sizes is None:
        return
    ordered = sorted(set(sizes))
    if sizes != ordered:
        what = "repeats a number" if len(ordered) < len(sizes) else "is not ascending"
        yield FieldError("optional_gpus", f"{sizes} {what}", f"write {ordered}")
    if fields.global_batch is not None:
        odd = [size for size in ordered if fields.global_batch % size]
        if odd:
            yield FieldError(
                "global_batch",
                f"{fields.global_batch} cannot be split evenly over {_these(odd)} GPUs",
                "choose a batch that every optional number of GPUs divides, or leave it out",
            )
    workers = fields.workers or 1
    odd = [size for size in ordered if size % workers]
    if odd:
        yield FieldError(
            "workers",
            f"{workers} workers cannot share {_these(odd)} GPUs equally",
            "choose optional numbers of GPUs that divide by the number of workers",
        )


def _processes(fields: RecordFields) -> Iterator[FieldError]:
    if fields.processes is not Processes.PER_GPU:
        return
    if fields.framework not in (None, Framework.PYTORCH):
        yield FieldError(
            "processes",
            f"per-gpu is for framework pytorch, and this record's is {fields.framework.value}",
            "write framework: pytorch, or leave processes out",
        )
    if (fields.workers or 1) > 1:
        yield FieldError(
            "processes",
            f"per-gpu starts all processes in one container, and workers is {fields.workers}",
            "leave workers out, or leave processes out",
        )
    try:
        parse_launch(fields.command or (), fields.optional_gpus or ())
    except LaunchError as error:
        what, _, remedy = str(error).partition("; ")
        yield FieldError("command", f"{what}, and processes is per-gpu", remedy)


def _micro_batches(fields: RecordFields) -> Iterator[FieldError]:
    if fields.batch is not Batch.MICRO:
        return
    largest = max(fields.optional_gpus or (1,))
    if odd := [size for size in fields.optional_gpus or () if largest % size]:
        yield FieldError(
            "batch",
            f"micro makes {largest} micro-batches a step, one for each GPU of the largest size, and"
            f" {_these(odd)} GPUs cannot share them equally",
            f"leave {_these(odd)} out of optional_gpus, or leave batch out",
        )


def _span(fields: RecordFields) -> Iterator[FieldError]:
    workers, span = fields.workers or 1, fields.span or Spans.NEVER
    if span is not Spans.NEVER and workers < 2:
        yield FieldError(
            "span",
            f"{span.value} places workers on several hosts, and workers is {workers}",
            "give the number of workers, or leave span out",
        )
    if span is Spans.NEVER and fields.placement is Placement.SPREAD:
        yield FieldError(
            "placement",
            "spread is for workers on several hosts, and span is never",
            "write span: any, or leave placement out",
        )


def _lengths(
    fields: RecordFields, bad: frozenset[str], given: frozenset[str]
) -> Iterator[FieldError]:
    named = [name for name in LENGTHS if name in given]
    if len(named) > 1:
        yield FieldError(named[1], f"{' and '.join(named)} are both lengths", "keep one of them")
    yield from _target(fields, given)
    if fields.command and fields.epochs is None and "epochs" not in bad:
        for number, word in enumerate(fields.command):
            if "{epochs}" in word:
                yield FieldError(
                    f"command[{number}]",
                    "uses {epochs}, but the record has no epochs",
                    "give epochs, or write the number into the command",
                )
                return


def _target(fields: RecordFields, given: frozenset[str]) -> Iterator[FieldError]:
    for name in ("metric", "epochs_in_a_row"):
        if name in given and "target_accuracy" not in given:
            yield FieldError(
                name, "needs a target_accuracy", "add target_accuracy, or leave it out"
            )
    if fields.metric is not None and fields.metric.endswith(FALLING):
        yield FieldError(
            "metric",
            f"{fields.metric} falls while a model learns, and a target accuracy is reached from"
            " below",
            "name an accuracy, for example val_accuracy",
        )


def _texts(fields: RecordFields) -> Iterator[FieldError]:
    for number, word in enumerate(fields.command or ()):
        if "\0" in word:
            yield FieldError(f"command[{number}]", "contains a zero byte", "remove it")
    if fields.command and not fields.command[0].strip():
        yield FieldError("command[0]", "is empty", "name the program first")
    for name in ("code", "dataset", "checkpoints"):
        value = getattr(fields, name)
        if value is not None and "\0" in value:
            yield FieldError(name, "contains a zero byte", "remove it")
        elif value is not None and (scheme := url_scheme(value)) is not None:
            yield _url(name, value, scheme)


def _url(name: str, value: str, scheme: str) -> FieldError:
    """Return the problem of a URL: no program between opens it, so it would name a folder."""
    if scheme == "file":
        hint = f"write the path alone: /{value.partition(':')[2].lstrip('/')}"
    elif scheme == "claim":
        hint = "write a volume claim without slashes after the colon: claim:NAME/FOLDER"
    else:
        hint = f"give a folder, or claim:NAME/FOLDER on Kubernetes: {_INSTEAD_OF_URL[name]}"
    return FieldError(name, f"{shown(value)} is a URL, and only folders are opened", hint)


def _env(fields: RecordFields) -> Iterator[FieldError]:
    for name, value in (fields.env or {}).items():
        path = f"env.{name[:60]}"
        if not _ENV_NAME.fullmatch(name):
            yield FieldError(path, "is not a variable name", "use letters, digits and _")
        elif name.startswith(RESERVED_PREFIXES):
            prefix = next(prefix for prefix in RESERVED_PREFIXES if name.startswith(prefix))
            loads = prefix in ("LD_", "PYTHON")
            what = "change the process before the script starts" if loads else "are Reshape's"
            remedy = "set it in the container image" if loads else "remove it; Reshape sets it"
            yield FieldError(path, f"variables that begin with {prefix} {what}", remedy)
        elif "\0" in value:
            yield FieldError(path, "contains a zero byte", "remove it")


def shared_memory_bytes(fields: RecordFields) -> int | None:
    """Return the size of ``/dev/shm``; None: the record names none."""
    gb = fields.shared_memory_gb
    return None if gb is None else max(1, int(gb * (1 << 30)))


def _memory(fields: RecordFields) -> Iterator[FieldError]:
    memory = fields.resources.memory if fields.resources is not None else None
    shared = shared_memory_bytes(fields)
    if memory is not None and shared is not None and shared > memory:
        yield FieldError(
            "shared_memory_gb",
            f"{fields.shared_memory_gb:g} GiB are more than the job's memory of {memory} bytes, and"
            " shared memory is a part of it",
            "give less, or raise memory",
        )


def _proof(fields: RecordFields) -> Iterator[FieldError]:
    if fields.proof is ProofUse.OFF and fields.on_difference is OnDifference.STOP:
        yield FieldError(
            "on_difference",
            "stop needs a first step that is compared, and proof: off has none compared",
            "leave out proof: off, or on_difference",
        )


def _these(numbers: list[int]) -> str:
    return " or ".join(str(number) for number in numbers)
