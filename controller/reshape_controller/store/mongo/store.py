"""The store on a MongoDB server, for several hosts, and for users who insert and query by hand.

Does: the store protocol with single-document writes that a majority acknowledged. It needs no
transaction, no session and no validator.

Collections: ``log`` (the truth), ``snapshots``, ``jobs``, ``gpus``, ``hosts``, ``history``,
``decisions``, ``speed_profiles``, ``accuracy_profiles``, ``overhead_profiles``, ``inbox``,
``meta``. docs/database.md describes each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import AsyncMongoClient
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConfigurationError,
    DocumentTooLarge,
    InvalidName,
    OperationFailure,
    PyMongoError,
)

from reshape_controller.core.model import Gpu, Host, JobId, JobState
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.store.conventions import Damaged, OtherVersion
from reshape_controller.store.mongo import (
    audit,
    gpu_use,
    inbox,
    log,
    projections,
    rewrite,
    schema,
)
from reshape_controller.store.mongo import profiles as mongo_profiles
from reshape_controller.store.mongo.address import MongoAddress, parse
from reshape_controller.store.mongo.hints import Hints
from reshape_controller.store.mongo.log import Database
from reshape_controller.store.mongo.login import Login
from reshape_controller.store.protocol import (
    Changes,
    Decision,
    GpuUseRow,
    InboxItem,
    JobRow,
    Page,
    ProfileRow,
    StoreCorrupt,
    StoreError,
    StoreRefused,
)
from reshape_sidecar.codec import CodecError

P = ParamSpec("P")
T = TypeVar("T")

SELECT_TIMEOUT_S = 5.0
"""Longest wait for a server that answers."""
REPLY_TIMEOUT_S = 20.0
"""Longest wait for a reply; after it the outcome is unknown, and the log is read to learn it."""

# Users may write texts that are no UTF-8, and dates that Python does not have. In our own
# documents this would be damage, which the digests show.
_LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(
    unicode_decode_error_handler="replace", datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_CERTIFICATE = "certificate verify failed"
_REMEDIES = {
    13: "the server denies this to the user; remedy: grant the user readWrite on the database",
    18: "the server rejects the user or password; remedy: correct the credentials",
    8000: "the server rejects the user or password; remedy: correct the credentials",
    14031: "the server's disk is full; remedy: free space there",
    59: "the server has no such command; remedy: see Server requirements in docs/database.md",
    115: "the server does not support this; remedy: see Server requirements in docs/database.md",
}
_LOGIN = (18, 8000)
"""Codes of a refused user or password."""
_REFUSALS = (*_LOGIN, 13, 59, 115)
"""Codes that last until a person acts; all others are faults, which pass."""


class MongoStore:
    """``protocol.Store`` on a server: an address, or one that was parsed already.

    ``read_again``: reads the address with its credentials again; called once the server refuses
    them. Raises StoreError, without the credentials in the text, for an address that cannot be
    used. ``insert_users``: users with an inbox of their own.
    """

    def __init__(
        self,
        address: str | MongoAddress,
        read_again: Callable[[], MongoAddress] | None = None,
        insert_users: tuple[str, ...] = (),
    ) -> None:
        first = parse(address) if isinstance(address, str) else address
        self._login = Login(first, read_again)
        self.location = first.shown
        self._client: AsyncMongoClient[dict[str, Any]] | None = None
        self._insert_users = insert_users
        self._hints = Hints(tuple(map(inbox.own_inbox, insert_users)))
        self._under_way: set[asyncio.Future[Any]] = set()

    async def open(self, *, to_look: bool = False) -> None:
        """Connect, make missing collections, verify the log. Raises StoreCorrupt, StoreError.

        ``to_look``: only connect, and read the log's end.
        """
        if self._client is not None:
            return
        try:
            self._client = self._connected()
            if to_look:
                await self._on(log.last_seq)
                return
            await self._on(_prepare)
            await self._on(inbox.make_own_inboxes, self._insert_users)
            self._hints.start(self._database)
        except (OSError, PyMongoError) as error:
            await self.close()
            raise self._translated(error) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let calls under way end, then close the connections; no effect if there are none."""
        await self._hints.stop()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _connected(self) -> AsyncMongoClient[dict[str, Any]]:
        """Make a client with the credentials in use. It connects at its first call."""
        return AsyncMongoClient(
            self._login.address.uri,
            appname="reshape",
            w="majority",
            journal=True,
            readConcernLevel="majority",
            readPreference="primary",
            # Our writes may be repeated as they are; a server's own de-duplication is a
            # feature that not every compatible server has.
            retryWrites=False,
            serverSelectionTimeoutMS=int(1000 * SELECT_TIMEOUT_S),
            connectTimeoutMS=int(1000 * SELECT_TIMEOUT_S),
            socketTimeoutMS=int(1000 * REPLY_TIMEOUT_S),
            **self._login.address.options,
        )

    async def make_validators(self) -> tuple[str, ...]:
        """Put validators on collections; return those on which the server checks documents now."""
        return await self._on(schema.make_validators)

    # --- the log
    async def last_seq(self) -> int:
        return await self._on(log.last_seq)

    async def append(self, record: LogRecord) -> None:
        """Durably add ``record``. Raises SeqTaken, StoreBehind or StoreError."""
        await self._on(log.append, record)

    async def read(self, after_seq: int) -> AsyncIterator[LogRecord]:
        """Verified records with a greater seq, in order."""
        try:
            async for record in log.read(self._database(), after_seq):
                yield record
        except (Damaged, PyMongoError, CodecError) as error:
            raise self._translated(error) from None

    async def write_snapshot(self, seq: int, parts: tuple[str, ...]) -> None:
        await self._on(log.write_snapshot, seq, parts)

    async def latest_snapshot(self) -> tuple[int, tuple[str, ...]] | None:
        return await self._on(log.newest_snapshot)

    # --- another log in its place
    async def begin_copy(self) -> None:
        """Make an empty copy of the log."""
        await self._on(rewrite.begin)

    async def add_to_copy(self, records: Sequence[LogRecord]) -> None:
        """Add sealed records to that copy."""
        await self._on(rewrite.add, records)

    async def abandon_copy(self) -> None:
        """Drop the copy, if there is one."""
        await self._on(rewrite.abandon)

    async def put_copy_in_place(self, end_seq: int) -> str:
        """Put the copy in the log's place; return the collection that has the log of before, which
        ended with ``end_seq``. Raises StoreError."""
        return await self._on(rewrite.replace, end_seq)

    # --- projections
    async def projected_seq(self) -> int:
        return await self._on(projections.projected_seq)

    async def project(self, changes: Changes) -> None:
        await self._on(projections.project, changes)

    async def show_gpu_use(self, uses: tuple[GpuUseRow, ...], epoch: int) -> None:
        await self._on(gpu_use.show, uses, epoch)

    async def jobs(
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        states: tuple[JobState, ...] = (),
        user: str | None = None,
        name: str | None = None,
        newest: bool = False,
    ) -> Page:
        """One page of at most ``limit`` and ``conventions.PAGE_ROWS_MAX`` rows."""
        return await self._on(projections.jobs, limit, after, states, user, name, newest)

    async def job(self, key: str, user: str = "") -> JobRow | None:
        return await self._on(projections.job, key, user)

    async def gpus(self) -> tuple[Gpu, ...]:
        return await self._on(projections.gpus)

    async def hosts(self) -> tuple[Host, ...]:
        return await self._on(projections.hosts)

    async def history(self, job: JobId | None, *, limit: int = 1000) -> tuple[HistoryEntry, ...]:
        return await self._on(projections.history, job, limit)

    async def history_between(
        self, after_seq: int, up_to_seq: int
    ) -> tuple[tuple[int, int, HistoryEntry], ...]:
        return await self._on(projections.history_between, after_seq, up_to_seq)

    async def cursor(self, name: str) -> int | None:
        return await self._on(projections.cursor, name)

    async def set_cursor(self, name: str, seq: int) -> None:
        await self._on(projections.set_cursor, name, seq)

    async def decisions(self, job: JobId | None, *, limit: int = 100) -> tuple[Decision, ...]:
        return await self._on(projections.decisions, job, limit)

    async def profiles(self) -> tuple[ProfileRow, ...]:
        return await self._on(mongo_profiles.profiles)

    # --- the projections against the log
    async def differing(self, expected: tuple[Changes, ...], end_seq: int) -> tuple[str, ...]:
        return await self._on(audit.differing, expected, end_seq)

    async def rewrite(self, expected: tuple[Changes, ...], end_seq: int) -> None:
        await self._on(audit.rewrite, expected, end_seq)

    async def row_names(self) -> AsyncIterator[str]:
        try:
            async for name in audit.names(self._database()):
                yield name
        except PyMongoError as error:
            raise self._translated(error) from None

    async def forget(self, names: tuple[str, ...]) -> None:
        await self._on(audit.forget, names)

    # --- inbox
    async def put_request(self, item: InboxItem) -> None:
        await self._on(inbox.put, item)

    async def requests(self, limit: int) -> tuple[InboxItem, ...]:
        users = self._insert_users
        self._insert_users = (*users[1:], *users[:1])  # the next poll begins at the next user
        return await self._on(inbox.oldest, limit, users)

    async def wait_for_requests(self, wait_s: float) -> None:
        """Wait so long, or less if a change stream shows a new request."""
        await self._hints.wait(wait_s)

    @property
    def notices_requests(self) -> bool:
        return self._hints.working

    async def acknowledge(self, ids: tuple[str, ...]) -> None:
        await self._on(inbox.remove, ids)

    async def refuse(self, item: str, text: str) -> None:
        await self._on(inbox.refuse, item, text)

    def _database(self) -> Database:
        if self._client is None:
            raise StoreError(f"{self.location}: is not open; remedy: report this defect")
        return self._client.get_database(self._login.address.database, codec_options=_LENIENT)

    async def _on(
        self,
        function: Callable[Concatenate[Database, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._login.refused and not self._log_in_again():
            self._login.check()
        try:
            found = await self._call(function, *args, **kwargs)
        except StoreRefused as refused:
            if not refused.login:
                raise
            if not self._log_in_again():
                self._login.on_refusal(refused)
                raise
            found = await self._call(function, *args, **kwargs)
        self._login.on_success()
        return found

    def _log_in_again(self) -> bool:
        """Connect with newer credentials, if there are any; return whether there are."""
        if not self._login.renew():
            return False
        before, self._client = self._client, self._connected()
        if before is not None:
            retired = asyncio.ensure_future(_close_after(before, tuple(self._under_way)))
            self._under_way.add(retired)
            retired.add_done_callback(self._on_done)
        return True

    async def _call(
        self,
        function: Callable[Concatenate[Database, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        # In a task of its own: the driver can lose a cancellation (Python 3.11's
        # asyncio.wait_for), and the cancelled task would then not end.
        work = asyncio.ensure_future(function(self._database(), *args, **kwargs))
        self._under_way.add(work)
        work.add_done_callback(self._on_done)
        try:
            return await asyncio.shield(work)
        except StoreError:
            raise
        except Exception as error:
            if isinstance(error, (Damaged, PyMongoError, CodecError)) or of_driver(error):
                raise self._translated(error) from None
            raise

    def _on_done(self, work: asyncio.Future[Any]) -> None:
        self._under_way.discard(work)
        if not work.cancelled():
            work.exception()  # read it, because its caller may have been cancelled meanwhile

    def _translated(self, error: Exception) -> StoreError:
        """Translate an error of the driver into one of the protocol."""
        if isinstance(error, Damaged):
            remedy = "restore a backup (mongorestore)"
            return StoreCorrupt(self.location, error.last_good_seq, str(error), remedy)
        if isinstance(error, OtherVersion):
            return error.at(self.location)
        code, message = _cause(error)
        if isinstance(error, CodecError):
            text = "a projection cannot be read; remedy: reshape db check"
        elif isinstance(error, (ConfigurationError, InvalidName, OSError)):
            text = "its address or certificates cannot be used; remedy: correct the settings"
        elif isinstance(error, AutoReconnect) and _CERTIFICATE in str(error):
            text = (
                "the server's certificate is not trusted; remedy: give the CA that signed it "
                "(--store-ca), and the host name of the certificate"
            )
        elif isinstance(error, AutoReconnect):
            text = "does not answer; remedy: check that it runs and can be reached"
        elif isinstance(error, DocumentTooLarge):
            text = "a document is too large for the server; remedy: make it smaller"
        elif code in _REMEDIES:
            text = _REMEDIES[code]
        elif code is None and of_driver(error):
            text = "sent a reply that the driver cannot read; remedy: see the server's log"
        else:
            text = "failed; remedy: see the server's log"
        what, _, remedy = text.partition("; remedy: ")
        detail = self._login.address.brief(message)
        said = f"{self.location}: {what} ({detail}); remedy: {remedy}"
        if code in _REFUSALS or isinstance(error, DocumentTooLarge):
            return StoreRefused(said, login=code in _LOGIN)
        return StoreError(said)


def _cause(error: Exception) -> tuple[int | None, str]:
    """The server's code and message; of several writes those of the first that failed."""
    if isinstance(error, BulkWriteError):
        details = error.details
        for each in (*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())):
            return each.get("code"), str(each.get("errmsg"))
    return error.code if isinstance(error, OperationFailure) else None, str(error)


async def _close_after(
    client: AsyncMongoClient[dict[str, Any]], under_way: tuple[asyncio.Future[Any], ...]
) -> None:
    """Close a client with earlier credentials once its calls have ended."""
    await asyncio.gather(*under_way, return_exceptions=True)
    await client.close()


def of_driver(error: Exception) -> bool:
    """Whether the driver's own code raised it, as a bare KeyError at a reply that lacks a field."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in ("pymongo", "bson")


async def _prepare(database: Database) -> None:
    """Make missing indexes, and verify the part of the log that recovery reads."""
    await database.command("ping")
    await schema.make_indexes(database)
    await log.verify(database)
