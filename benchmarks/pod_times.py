"""When the pods of a namespace came to be, were scheduled and ran, to a few milliseconds.

Does: follows a watch in a thread and notes when each change arrives. Never: takes the times that
the API's objects have, for these are whole seconds. State: what was seen.
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
"""The API server ends a watch after so long."""


@dataclass(slots=True)
class Seen:
    """One pod. Unix seconds; 0 while it has not happened."""

    job: str
    attempt: int
    created_at_s: float
    scheduled_at_s: float = 0.0
    running_at_s: float = 0.0
    """Its main container runs; whatever comes before that is over."""


class PodTimes:
    """A context in which the pods of a namespace are watched."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._seen: dict[str, Seen] = {}
        self._answer: Any = None
        self._thread = threading.Thread(target=self._follow, name="pod-times", daemon=True)

    def of(self, job: str) -> list[Seen]:
        """Pods of a job that have run, in order of creation."""
        mine = [pod for pod in self._seen.values() if pod.job == job and pod.running_at_s]
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
        """The thread ends with the process: nothing wakes it from its read."""

    def _follow(self) -> None:
        # From what the server has at hand: another version may be newer than its cache.
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
        seen = self._seen.setdefault(meta["uid"], Seen(job, attempt, now_s))
        if pod["spec"].get("nodeName") and not seen.scheduled_at_s:
            seen.scheduled_at_s = now_s
        statuses = pod["status"].get("containerStatuses") or []
        if any("running" in s["state"] for s in statuses) and not seen.running_at_s:
            seen.running_at_s = now_s
