"""A coordination.k8s.io Lease of the controller's namespace.

Does: reads it, and replaces exactly the version that was read. Never: decides whose it is, waits,
or retries. State: none. Blocking: call it from a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from kubernetes import client

from reshape_launcher.kubernetes import api_errors
from reshape_launcher.kubernetes.values import CONFLICT, MISSING
from reshape_launcher.leases import LEASE_S, NOBODY, Lease, Seen

CALL_S = 4.0
"""One call. A holder has time for several before its lease runs out."""
T = TypeVar("T")


class ApiLease:
    """``LeasePlace`` on an API server. It is made by the first candidate."""

    def __init__(self, api: client.ApiClient, namespace: str, name: str) -> None:
        self._leases = client.CoordinationV1Api(api)
        self._namespace = namespace
        self._name = name

    def read(self) -> Seen:
        found = self._ask(MISSING, self._leases.read_namespaced_lease, self._name, self._namespace)
        return Seen(Lease(), "") if found is None else _seen(found)

    def write(self, lease: Lease, over: Seen) -> Seen | None:
        body = self._manifest(lease, over)
        if over.version:
            replace = self._leases.replace_namespaced_lease
            written = self._ask(CONFLICT, replace, self._name, self._namespace, body)
        else:
            create = self._leases.create_namespaced_lease
            written = self._ask(CONFLICT, create, self._namespace, body)
        return None if written is None else _seen(written)

    def _manifest(self, lease: Lease, over: Seen) -> dict[str, Any]:
        metadata = {"name": self._name, "namespace": self._namespace}
        if over.version:
            metadata["resourceVersion"] = over.version
        return {
            "metadata": metadata,
            "spec": {
                "holderIdentity": lease.holder,
                "leaseDurationSeconds": round(lease.duration_s),
                "leaseTransitions": lease.term,
                "renewTime": _now(),
            },
        }

    def _ask(self, status: int, call: Callable[..., T], *arguments: Any) -> T | None:
        """What a call gives; None where it was refused with ``status``."""
        what = f"lease {self._name} cannot be used"
        return api_errors.unless(
            status, lambda: api_errors.call(what, call, *arguments, _request_timeout=CALL_S)
        )


def _seen(found: Any) -> Seen:
    spec = found.spec or client.V1LeaseSpec()  # somebody may have made it, with nothing in it
    lease = Lease(
        spec.holder_identity or NOBODY,
        spec.lease_transitions or 0,
        float(spec.lease_duration_seconds or LEASE_S),
    )
    return Seen(lease, str(found.metadata.resource_version))


def _now() -> datetime:
    """For people: no candidate reads it. Never a whole second, whose fraction would be left out,
    and the API server wants one."""
    now = datetime.fromtimestamp(time.time(), UTC)
    return now.replace(microsecond=now.microsecond or 1)
