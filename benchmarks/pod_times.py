"""Times of creation, scheduling and start of the pods of a namespace, to a few milliseconds.

Does: follow a watch in a thread and record when each change arrives. The API's own times are whole
seconds. State: the recorded times.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.kubernetes.api import ApiError
from tests.kubernetes.namespace import Namespace, Thing, eventually
from tests.kubernetes.pod_daemon import ATTEMPT_LABEL, JOB_ANNOTATION

LIFE_S = 3600
"""Time after which the API server ends a watch."""


@dataclass(slots=True)
class PodTimestamps:
    """The times of a pod in Unix seconds; 0 before the event."""

    job: str
    attempt: int
    created_at_s: float
    scheduled_at_s: float = 0.0
    running_at_s: float = 0.0
    """Start of its main container, after all init containers."""


class PodTimes:
    """A context that watches the pods of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._by_uid: dict[str, PodTimestamps] = {}
        self._answer: Any = None
        self._thread = threading.Thread(target=self._follow, name="pod-times", daemon=True)

    def of(self, job: str) -> list[PodTimestamps]:
        """Return the pods of a job that have run, in the order of creation."""
        mine = [pod for pod in self._by_uid.values() if pod.job == job and pod.running_at_s]
        return sorted(mine, key=lambda pod: pod.created_at_s)

    def __enter__(self) -> PodTimes:
        self._thread.start()
        eventually("a watch of pods", lambda: self._answer is not None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the thread to the end of the process, for nothing wakes it from its read."""

    def _follow(self) -> None:
        # From the server's cache: a specific version may be newer than that.
        query = f"watch=1&resourceVersion=0&timeoutSeconds={LIFE_S}"
        with self._namespace.api.stream(f"{self._namespace.path('pods')}?{query}", LIFE_S) as found:
            self._answer = found
            for line in found:
                change = json.loads(line)
                if change["type"] == "ERROR":
                    raise ApiError(f"the watch of pods ended: {change['object']}")
                self._take(change["object"], time.time())

    def _take(self, pod: Thing, now_s: float) -> None:
        meta = pod["metadata"]
        job = meta.get("annotations", {}).get(JOB_ANNOTATION)
        if job is None:
            return
        attempt = int(meta["labels"][ATTEMPT_LABEL])
        seen = self._by_uid.setdefault(meta["uid"], PodTimestamps(job, attempt, now_s))
        if pod["spec"].get("nodeName") and not seen.scheduled_at_s:
            seen.scheduled_at_s = now_s
        statuses = pod["status"].get("containerStatuses") or []
        if any("running" in s["state"] for s in statuses) and not seen.running_at_s:
            seen.running_at_s = now_s
