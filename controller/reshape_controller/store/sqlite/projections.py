"""The projections inside an open SQLite file: the rows that users read.

Does: writes the rows that an append changed, each with its seq, and answers queries. A row replaces
only one of the same or an older seq, so any repetition and any order of writes end in the same
rows. The connection belongs to the caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from reshape_controller.core.model import Gpu, Host, JobId, JobState
from reshape_controller.core.record import HistoryEntry
from reshape_controller.store.conventions import jobs_of, page_limit, place_of, unknown_page
from reshape_controller.store.protocol import Changes, Decision, JobRow, Page, ProfileRow
from reshape_controller.store.sqlite.log import transaction
from reshape_sidecar import codec

_PUT_JOB = """
INSERT INTO jobs (id, name, user, state, submitted_at_s, place, seq, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, user = excluded.user,
    state = excluded.state, submitted_at_s = excluded.submitted_at_s, place = excluded.place,
    seq = excluded.seq, body = excluded.body
WHERE excluded.seq >= jobs.seq"""
_PUT_GPU = """
INSERT INTO gpus (id, host, number, state, owner, seq, body) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET host = excluded.host, number = excluded.number,
    state = excluded.state, owner = excluded.owner, seq = excluded.seq, body = excluded.body
WHERE excluded.seq >= gpus.seq"""
_PUT_HOST = """
INSERT INTO hosts (id, seq, body) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, body = excluded.body
WHERE excluded.seq >= hosts.seq"""
_PUT_HISTORY = (
    "INSERT OR REPLACE INTO history (seq, number, job, at_s, kind, body) VALUES (?, ?, ?, ?, ?, ?)"
)
_PUT_DECISION = (
    "INSERT OR REPLACE INTO decisions (seq, number, at_s, policy, body) VALUES (?, ?, ?, ?, ?)"
)
_PUT_DECISION_JOB = "INSERT OR IGNORE INTO decision_jobs (job, seq, number) VALUES (?, ?, ?)"
_PUT_PROFILE = """
INSERT INTO profiles (job_type, seq, body) VALUES (?, ?, ?)
ON CONFLICT (job_type) DO UPDATE SET seq = excluded.seq, body = excluded.body
WHERE excluded.seq >= profiles.seq"""
_PUT = {
    "jobs": _PUT_JOB,
    "gpus": _PUT_GPU,
    "hosts": _PUT_HOST,
    "history": _PUT_HISTORY,
    "decisions": _PUT_DECISION,
    "decision_jobs": _PUT_DECISION_JOB,
    "profiles": _PUT_PROFILE,
}
_STAMP = "INSERT OR REPLACE INTO meta (name, value) VALUES ('projected_seq', ?)"
_CURSOR = "cursor/"
_ORDER = "submitted_at_s, place, id"
_NEWEST_FIRST = "submitted_at_s DESC, place DESC, id DESC"


def projected_seq(connection: sqlite3.Connection) -> int:
    """Seq up to which the projections are complete."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'projected_seq'").fetchone()
    # Without the stamp everything is projected again, which does no harm.
    return row[0] if row is not None and isinstance(row[0], int) else 0


def project(connection: sqlite3.Connection, changes: Changes) -> None:
    """Write the rows that one append changed, in one transaction."""
    with transaction(connection):
        for table, values in rows_of(changes):
            connection.execute(_PUT[table], values)
        connection.execute(_STAMP, (max(changes.seq, projected_seq(connection)),))


def rows_of(changes: Changes) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the rows of ``changes``: table, and the values of its columns in their order."""
    seq = changes.seq
    for row in changes.jobs:
        yield "jobs", _job_values(row)
    for g in changes.gpus:
        yield "gpus", (g.id, g.host, g.index, g.state.value, g.owner, seq, codec.dumps(g))
    for h in changes.hosts:
        yield "hosts", (h.id, seq, codec.dumps(h))
    for number, entry in enumerate(changes.history):
        yield "history", (seq, number, entry.job, entry.at_s, entry.kind, codec.dumps(entry))
    for d in changes.decisions:
        yield "decisions", (d.seq, d.number, d.at_s, d.policy, codec.dumps(d))
        for job in jobs_of(d):
            yield "decision_jobs", (job, d.seq, d.number)
    for p in changes.profiles:
        yield "profiles", (p.job_type, p.seq, codec.dumps(p))


def jobs(
    connection: sqlite3.Connection,
    limit: int,
    after: str | None,
    states: tuple[JobState, ...],
    user: str | None,
    name: str | None,
    newest: bool,
) -> Page:
    """One page of jobs in order of submission, or with ``newest`` in reverse."""
    where, values = ["1"], []
    if states:
        where.append(f"state IN ({','.join('?' * len(states))})")
        values += [state.value for state in states]
    if user is not None:
        where.append("user = ?")
        values.append(user)
    if name is not None:
        where.append("(name GLOB ? OR id GLOB ?)")
        values += [name, name]
    condition = " AND ".join(where)
    (total,) = connection.execute(f"SELECT count(*) FROM jobs WHERE {condition}", values).fetchone()
    place: tuple[object, ...] = ()
    if after is not None:
        place = _place_of(connection, after)
        condition += f" AND ({_ORDER}) {'<' if newest else '>'} (?, ?, ?)"
    limit = page_limit(limit)
    bodies = connection.execute(
        f"SELECT body FROM jobs WHERE {condition}"
        f" ORDER BY {_NEWEST_FIRST if newest else _ORDER} LIMIT ?",
        (*values, *place, limit + 1),
    ).fetchall()
    rows = tuple(codec.loads(JobRow, body) for (body,) in bodies[:limit])
    return Page(rows, int(total), rows[-1].id if len(bodies) > limit else None)


def job(connection: sqlite3.Connection, key: str, user: str) -> JobRow | None:
    """The job with this id, else the newest with this name, one of ``user`` first; a rejected
    record comes last."""
    row = connection.execute("SELECT body FROM jobs WHERE id = ?", (key,)).fetchone()
    if row is None:
        row = connection.execute(
            "SELECT body FROM jobs WHERE name = ? ORDER BY state = 'rejected', user = ? DESC,"
            " submitted_at_s DESC, place DESC, id DESC LIMIT 1",
            (key, user),
        ).fetchone()
    return codec.loads(JobRow, row[0]) if row is not None else None


def gpus(connection: sqlite3.Connection) -> tuple[Gpu, ...]:
    """All GPUs by host and number."""
    rows = connection.execute("SELECT body FROM gpus ORDER BY host, number, id").fetchall()
    return tuple(codec.loads(Gpu, body) for (body,) in rows)


def hosts(connection: sqlite3.Connection) -> tuple[Host, ...]:
    """All hosts by id."""
    rows = connection.execute("SELECT body FROM hosts ORDER BY id").fetchall()
    return tuple(codec.loads(Host, body) for (body,) in rows)


def profiles(connection: sqlite3.Connection) -> tuple[ProfileRow, ...]:
    """Rows of all job types, by type."""
    rows = connection.execute("SELECT body FROM profiles ORDER BY job_type").fetchall()
    return tuple(codec.loads(ProfileRow, body) for (body,) in rows)


def history(
    connection: sqlite3.Connection, job: JobId | None, limit: int
) -> tuple[HistoryEntry, ...]:
    """The newest entries, oldest first."""
    where, values = ("job = ?", (job,)) if job is not None else ("1", ())
    rows = connection.execute(
        f"SELECT body FROM history WHERE {where} ORDER BY seq DESC, number DESC LIMIT ?",
        (*values, max(0, limit)),
    ).fetchall()
    return tuple(codec.loads(HistoryEntry, body) for (body,) in reversed(rows))


def history_between(
    connection: sqlite3.Connection, after_seq: int, up_to_seq: int
) -> tuple[tuple[int, int, HistoryEntry], ...]:
    """Entries of the records after one, up to another, with seq and number."""
    rows = connection.execute(
        "SELECT seq, number, body FROM history WHERE seq > ? AND seq <= ? ORDER BY seq, number",
        (after_seq, up_to_seq),
    ).fetchall()
    return tuple((seq, number, codec.loads(HistoryEntry, body)) for seq, number, body in rows)


def cursor(connection: sqlite3.Connection, name: str) -> int | None:
    """Seq up to which a reader has what it reads; None if it has none."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_CURSOR + name,)).fetchone()
    return row[0] if row is not None and isinstance(row[0], int) else None


def set_cursor(connection: sqlite3.Connection, name: str, seq: int) -> None:
    """Note how far a reader is."""
    with transaction(connection):
        query = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)"
        connection.execute(query, (_CURSOR + name, seq))


def decisions(
    connection: sqlite3.Connection, job: JobId | None, limit: int
) -> tuple[Decision, ...]:
    """The newest decisions, oldest first."""
    if job is None:
        query, values = "SELECT body FROM decisions", ()
    else:
        query = "SELECT body FROM decision_jobs JOIN decisions USING (seq, number) WHERE job = ?"
        values = (job,)  # type: ignore[assignment]
    rows = connection.execute(
        f"{query} ORDER BY seq DESC, number DESC LIMIT ?", (*values, max(0, limit))
    ).fetchall()
    return tuple(codec.loads(Decision, body) for (body,) in reversed(rows))


def _job_values(row: JobRow) -> tuple[object, ...]:
    place = place_of(row)
    state = row.state.value
    return (
        row.id,
        row.name,
        row.user,
        state,
        row.submitted_at_s,
        place,
        row.seq,
        codec.dumps(row),
    )


def _place_of(connection: sqlite3.Connection, after: str) -> tuple[object, ...]:
    row = connection.execute(f"SELECT {_ORDER} FROM jobs WHERE id = ?", (after,)).fetchone()
    if row is None:
        raise unknown_page(after)
    return tuple(row)
