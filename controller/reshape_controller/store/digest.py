"""The chain of digests that ties each log record to the one before it. Pure.

Does: one definition for the loop that builds records and for the stores that check them. A record's
digest is the SHA-256 over the digest before it, a newline, and the record's canonical JSON with an
empty ``digest``. Stores hold that JSON, so a check needs no decoding.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from reshape_controller.core.record import LogRecord
from reshape_sidecar import codec

GENESIS = ""
"""The digest before the first record."""


def body_of(record: LogRecord) -> bytes:
    """The record as stores hold it: canonical JSON without its own digest."""
    return codec.dumps(replace(record, digest="")).encode()


def digest_of(previous: str, body: bytes) -> str:
    """Digest of a record with this body, after a record with the digest ``previous``."""
    return hashlib.sha256(previous.encode() + b"\n" + body).hexdigest()


def chain_digest(previous: str, record: LogRecord) -> str:
    """Digest of ``record`` after the digest ``previous``; its own ``digest`` is ignored."""
    return digest_of(previous, body_of(record))


def seal(previous: str, record: LogRecord) -> LogRecord:
    """Return ``record`` with its digest set, after a record with the digest ``previous``."""
    return replace(record, digest=chain_digest(previous, record))


def record_of(body: bytes, digest: str) -> LogRecord:
    """Decode a stored record. Raises CodecError if it does not fit this version's types."""
    return replace(codec.loads(LogRecord, body), digest=digest)
