"""What one rank does between two steps: it parks if all ranks stop, and trains on otherwise.

A rank that passes a boundary notes the next step as begun, so the parent can tell it from a rank
that waits. The parent raises the step at which all stop until no rank has begun a later one.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.ranks.page import Page

POLL_S = 0.001


class NotJoined(RuntimeError):
    """A rank trains by itself, without the others."""


class RankBoundary:
    """The boundaries of one rank of a group."""

    def __init__(self, page: Page, rank: int) -> None:
        self._page, self._rank = page, rank
        self._joined = page.ranks == 1
        self._asked = False
        self._stop = 0
        """Step after which all ranks wait for a save that has not ended; 0: none."""

    @property
    def chief(self) -> bool:
        """Whether this is rank 0, which saves and reports."""
        return self._rank == 0

    def take_part(self, step: int) -> None:
        """Take part in stops from now on; ``step`` steps are done."""
        self._page.begin(self._rank, step + 1)

    def rest(self) -> None:
        """Take no part until the next ``take_part``: a stop comes as a SIGTERM."""
        self._page.begin(self._rank, 0)

    def saves_after(self, step: int, *, is_due: bool) -> bool:
        """Return whether all ranks save after ``step``; each of them asks after each step.

        Rank 0 announces a save that ``is_due`` one step before. Another rank waits until rank 0 has
        ended the step before: on GPUs a step may be launched before that.
        """
        page = self._page
        if not self.chief:
            while page.decided < step - 1:
                time.sleep(POLL_S)
            return 0 < step == page.save_after
        saves = 0 < step == page.save_after
        if is_due and not saves:
            page.save_after = step + 1
        page.decided = step
        return saves

    def check_joined(self) -> None:
        """Raise NotJoined if this rank is not in the process group of PyTorch."""
        if self._joined:
            return
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_initialized():
            raise NotJoined(
                f"rank {self._rank} of {self._page.ranks} trains without the others: it has not"
                " joined the process group. Call torch.distributed.init_process_group() before"
                " the first step, or write `processes: one` in the job's record"
            )
        if distributed.get_world_size() != self._page.ranks:
            raise NotJoined(
                f"the process group has {distributed.get_world_size()} ranks, but the job has"
                f" {self._page.ranks} GPUs: call torch.distributed.init_process_group() without"
                " numbers, or write `processes: one` in the job's record"
            )
        self._joined = True

    @property
    def is_asked(self) -> bool:
        """Whether the parent asks all ranks to stop."""
        return self._page.target > 0

    def ask_to_stop(self) -> None:
        """Ask the parent, once, for a stop of all ranks."""
        if not self._asked:
            self._asked = True
            os.kill(os.getppid(), signal.SIGTERM)

    def stops_after(self, step: int) -> bool:
        """Return whether all ranks stop after ``step``; waits until all of them have parked."""
        page = self._page
        while 0 < page.target <= step:
            page.park(self._rank, step)
            if page.committed == step and page.failed != step:
                self._stop = step
                return True
            time.sleep(POLL_S)
        page.begin(self._rank, step + 1)
        return False

    def is_stopped(self, step: int) -> bool:
        """Return whether all ranks wait after ``step`` for a save that has not ended."""
        return 0 < step == self._stop

    def wait_for_save(self, step: int) -> bool:
        """Wait for rank 0's save after ``step``; return whether it is saved."""
        while step not in (self._page.failed, self._page.saved):
            time.sleep(POLL_S)
        return self._ended(step, self._page.saved == step)

    def save_ended(self, step: int, is_saved: bool) -> bool:
        """Tell the other ranks of rank 0's save after ``step``; return ``is_saved``."""
        if is_saved:
            self._page.saved = step
        else:
            self._page.failed = step
        return self._ended(step, is_saved)

    def _ended(self, step: int, is_saved: bool) -> bool:
        if not is_saved:
            self._stop = 0
            self._page.begin(self._rank, step + 1)
        return is_saved

    def finish(self) -> None:
        """Note the end of training or of the script: this rank stops at no boundary any more."""
        self._page.finish(self._rank)

    def fail(self) -> None:
        """Note that the script fails: an abort as Python ends is no successful end."""
        self._page.fail(self._rank)


def of(settings: HookSettings) -> RankBoundary | None:
    """Return the boundaries of this process; None if it is no rank. Raises OSError."""
    if settings.rank_page is None:
        return None
    return RankBoundary(Page(settings.rank_page, settings.ranks), settings.rank)
