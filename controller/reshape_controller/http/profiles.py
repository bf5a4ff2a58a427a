"""What is known of job types, over HTTP: look at it, and record profiles.

Does: parse, hand to the desk, render. Never: decides, or answers before the append. State: none.
"""

from __future__ import annotations

from reshape_controller.http.base import BODY_BYTES_MAX, Handler, body_json
from reshape_controller.http.views import ProfileList, ProfilesRecorded
from reshape_profiles.loader import parse


class Profiles(Handler):
    """GET all; POST a document as the files of profiles are."""

    body_bytes_max = 2 * BODY_BYTES_MAX

    async def get(self) -> None:
        self.answer(ProfileList(await self.context.desk.store.profiles()))

    async def post(self) -> None:
        profiles = parse(body_json(self.request.body), "body").profiles
        recorded = await self.context.desk.record(profiles)
        same = tuple(p.job_type for p in profiles if p.job_type not in recorded)
        self.answer(ProfilesRecorded(recorded, same))
