"""The use of GPUs in MongoDB: fields of the documents of ``gpus``.

Does: shows memory and utilisation of each GPU on which a job trains. These are measurements and not
part of the log, so ``db check`` compares none of them. A GPU that its job has left shows no use,
because the projection of that append clears the fields.

The fence: a document that the controller of a later epoch has written stays as it is, and so does
one whose GPU has another job meanwhile.
"""

from __future__ import annotations

from reshape_controller.store.mongo.documents import Document
from reshape_controller.store.mongo.log import Database
from reshape_controller.store.mongo.projections import Write, write_all
from reshape_controller.store.protocol import GpuUseRow


async def show(database: Database, uses: tuple[GpuUseRow, ...], epoch: int) -> None:
    """Write how jobs use their GPUs, each in a single update of the GPU's document."""
    await write_all(database.gpus, [_write(use, epoch) for use in uses])


def _write(use: GpuUseRow, epoch: int) -> Write:
    where: Document = {
        "_id": use.gpu,
        "job_id": use.job,
        "worker": {"$gte": 0},
        "$or": [{"use_epoch": None}, {"use_epoch": {"$lte": epoch}}],
    }
    fields: Document = {
        "used_bytes": use.used_bytes,
        "utilization_ratio": use.utilization_ratio,
        "seen_at_s": use.seen_at_s,
        "use_epoch": epoch,
    }
    return Write(where, fields, upsert=False)
