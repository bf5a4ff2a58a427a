"""Projected rows as MongoDB documents: jobs, GPUs, hosts, history entries, decisions. Pure.

docs/database.md describes their fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reshape_controller.core.model import Failure, Gpu, Host
from reshape_controller.core.record import HistoryEntry
from reshape_controller.store.conventions import jobs_of, place_of
from reshape_controller.store.mongo import profiles
from reshape_controller.store.protocol import Changes, Decision, JobRow
from reshape_sidecar import codec

Document = dict[str, Any]
NO_USE: Document = {"used_bytes": None, "utilization_ratio": None, "seen_at_s": None}
"""The fields in which ``gpu_use`` shows a GPU's use."""


def documents_of(changes: Changes) -> Iterator[tuple[str, str, Document]]:
    """Yield the documents of ``changes`` but for jobs: collection, ``_id``, fields."""
    seq = changes.seq
    workers = dict(changes.workers)
    for gpu in changes.gpus:
        yield "gpus", gpu.id, {**_gpu(gpu, workers.get(gpu.id)), "seq": seq}
    for host in changes.hosts:
        yield "hosts", host.id, {**_host(host), "seq": seq}
    for number, entry in enumerate(changes.history):
        yield "history", row_id(seq, number), _entry(seq, number, entry)
    for decision in changes.decisions:
        yield "decisions", row_id(decision.seq, decision.number), _decision(decision)
    for row in changes.profiles:
        for collection, fields in profiles.documents(row).items():
            yield collection, row.job_type, {**fields, "seq": row.seq}


def fields_of(row: JobRow) -> Document:
    """Fields of a job's document: those for users, and below ``reshape`` those of the store."""
    own = {f"reshape.{name}": value for name, value in _own(row).items()}
    return {**_user_fields(row), **own}


def _user_fields(row: JobRow) -> Document:
    """Fields for users."""
    fields: Document = {
        "name": row.name,
        "user": row.user,
        "state": row.state.value,
        "submitted_at_s": row.submitted_at_s,
        "errors": [
            {"path": path, "message": message, "hint": hint} for path, message, hint in row.errors
        ],
    }
    if row.job is not None:
        fields |= {
            "reason": row.job.reason,
            "number_of_gpus": len(row.job.gpus),
            "gpu_ids": list(row.job.gpus),
            "workers": row.job.spec.workers,
            "job_type": row.job.spec.job_type,
            "optional_gpus": list(row.job.spec.optional_gpus),
            "host": row.job.host,
            "step": row.job.progress.step,
            **_failure_fields(row.job.failure),
        }
    return fields


def _failure_fields(failure: Failure | None) -> Document:
    """How the newest process that failed ended; null without a failure."""
    return {
        "exit_code": None if failure is None else failure.exit_code,
        "signal": None if failure is None else failure.signal,
        "exception": None if failure is None else failure.exception,
        "exception_message": None if failure is None else failure.message,
    }


def order_of(row: JobRow) -> str:
    """The job's position in order of submission, as text that sorts: time, place, id."""
    return f"{row.submitted_at_s:024.9f}|{place_of(row) + 1:012d}|{row.id}"


def _own(row: JobRow) -> Document:
    """Fields of the store."""
    return {
        "id": row.id,
        "seq": row.seq,
        "name": row.name,
        "user": row.user,
        "state": row.state.value,
        "order": order_of(row),
        "body": codec.dumps(row),
    }


def _gpu(gpu: Gpu, worker: int | None) -> Document:
    """``worker``: the worker of its job that trains on it; a GPU without one is not in use."""
    return {
        "host": gpu.host,
        "number": gpu.index,
        "state": gpu.state.value,
        "job_id": gpu.owner,
        "worker": worker,
        **(NO_USE if worker is None else {}),
        "body": codec.dumps(gpu),
    }


def _host(host: Host) -> Document:
    return {
        "gpu_type": host.gpu_type,
        "drained": host.drained,
        "present": host.present,
        "body": codec.dumps(host),
    }


def _entry(seq: int, number: int, entry: HistoryEntry) -> Document:
    return {
        "seq": seq,
        "number": number,
        "job": entry.job,
        "at_s": entry.at_s,
        "kind": entry.kind,
        "text": entry.text,
        "body": codec.dumps(entry),
    }


def _decision(decision: Decision) -> Document:
    return {
        "seq": decision.seq,
        "number": decision.number,
        "at_s": decision.at_s,
        "policy": decision.policy,
        "reason_code": decision.plan.reason_code,
        "text": decision.plan.text,
        "jobs": list(jobs_of(decision)),
        "body": codec.dumps(decision),
    }


def row_id(seq: int, number: int) -> str:
    """An ``_id`` that sorts by seq, then number."""
    return f"{seq:015d}-{number:06d}"
