"""Profiles of job types in MongoDB: speeds, accuracies and overheads, recorded and learned.

Does: makes a document in each of three collections for a job type, and reads them back. Changes
that users make there are not read (``reshape profile import`` records profiles).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from reshape_controller.core.knowledge import INIT_FIELDS
from reshape_controller.store.mongo.log import Database
from reshape_controller.store.protocol import ProfileRow
from reshape_profiles.schema import COSTS
from reshape_sidecar import codec

Document = dict[str, Any]
LEARNED = dict.fromkeys((*COSTS, *INIT_FIELDS.values()))
"""Names of the costs that jobs teach."""
SPEED, ACCURACY, OVERHEAD = "speed_profiles", "accuracy_profiles", "overhead_profiles"


def documents(row: ProfileRow) -> dict[str, Document]:
    """Fields of a job type's document in each collection."""
    return {SPEED: _speed(row), ACCURACY: _accuracy(row), OVERHEAD: _overhead(row)}


async def profiles(database: Database) -> tuple[ProfileRow, ...]:
    """Rows of all job types, by type."""
    ours = {"seq": {"$gt": 0}}
    rows = await database[SPEED].find(ours, {"body": 1}).sort("_id", 1).to_list()
    return tuple(codec.loads(ProfileRow, str(document.get("body"))) for document in rows)


def _speed(row: ProfileRow) -> Document:
    profile, learned = row.profile, row.learned
    return {
        "text": profile.text if profile is not None else "",
        "global_batch": profile.global_batch if profile is not None else None,
        "steps_per_epoch": profile.steps_per_epoch if profile is not None else None,
        "speeds": [asdict(point) for point in profile.speed] if profile is not None else [],
        "measured": [asdict(entry) for entry in learned.speed] if learned is not None else [],
        "body": codec.dumps(row),
    }


def _accuracy(row: ProfileRow) -> Document:
    profile, learned = row.profile, row.learned
    curve = learned.curve if learned is not None else None
    return {
        "accuracies": [asdict(p) for p in profile.accuracy] if profile is not None else [],
        "curve": asdict(curve) if curve is not None else None,
    }


def _overhead(row: ProfileRow) -> Document:
    overhead = row.profile.overhead if row.profile is not None else None
    learned = row.learned
    return {
        "recorded": asdict(overhead) if overhead is not None else None,
        "measured": {name: getattr(learned, name) for name in LEARNED} if learned else None,
    }
