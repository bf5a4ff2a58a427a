"""No garbage collection from the restore to the end of the first step.

Does: sets the threshold of Python's collections to zero and puts it back. A collection walks over
every object of the framework (0.2 s each) and finds little there.

The threshold and not ``gc.disable`` is changed, because a script may call ``gc.disable`` or
``gc.enable`` meanwhile, and that has to stand. A threshold that the script sets meanwhile stands
as well.
"""

from __future__ import annotations

import gc


class CollectionPause:
    """A time in which Python collects no garbage by itself."""

    def __init__(self) -> None:
        self._thresholds: tuple[int, int, int] | None = None

    def begin(self) -> None:
        """Collect nothing until ``end``."""
        thresholds = gc.get_threshold()
        if self._thresholds is None and thresholds[0] > 0:
            self._thresholds = thresholds
            gc.set_threshold(0, *thresholds[1:])

    def end(self) -> None:
        """Put the threshold back, unless the script has set another one."""
        before, self._thresholds = self._thresholds, None
        if before is not None and gc.get_threshold() == (0, *before[1:]):
            gc.set_threshold(*before)
