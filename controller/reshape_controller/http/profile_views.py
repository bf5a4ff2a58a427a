"""The views of profiles that the API shows."""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.store.protocol import ProfileRow


@dataclass(frozen=True, slots=True)
class ProfileList:
    """Job types with their recorded profiles, and the speeds and costs learned from their jobs."""

    profiles: tuple[ProfileRow, ...]


@dataclass(frozen=True, slots=True)
class ProfilesRecorded:
    """Job types whose profile is recorded now, and those whose profile was the same before."""

    recorded: tuple[str, ...]
    unchanged: tuple[str, ...]
