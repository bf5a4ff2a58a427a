"""A coordination.k8s.io Lease of the controller's namespace.

Does: read the lease, and replace exactly the version that was read. It does not decide on the
holder, wait or retry. Blocking: call it from a thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from kubernetes import client

from reshape_launcher.kubernetes import api_errors, naming
from reshape_launcher.kubernetes.naming import DOMAIN
from reshape_launcher.kubernetes.values import CONFLICT, NOT_FOUND, NodeLease
from reshape_launcher.leases import LEASE_S, NOBODY, Lease, StoredLease

NOTE = f"{DOMAIN}/log-mark"
"""Annotation with the lease's note; a controller of an earlier release drops it."""
CALL_S = 4.0
"""Time limit of a call. A holder has time for several before its lease expires."""
T = TypeVar("T")


class ApiNodeLeases:
    """The Leases of nodes on an API server."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._leases = client.CoordinationV1Api(api)
        self._namespace = namespace

    def all(self) -> tuple[NodeLease, ...]:
        """Return the Leases of all nodes. Raises KubernetesError."""
        found = api_errors.call(
            f"Leases of nodes cannot be listed in namespace {self._namespace}",
            self._leases.list_namespaced_lease,
            self._namespace,
            label_selector=f"{naming.NODE_LEASE}=true",
            _request_timeout=CALL_S,
            _preload_content=False,  # a thousand objects of the client take a second of a core
        )
        return tuple(_node_lease_of(item) for item in json.loads(found.data)["items"])

    def write(self, lease: NodeLease) -> NodeLease | None:
        """Replace the version that was read, or create the Lease; None if it changed since."""
        name = naming.node_lease_name(lease.node)
        body: dict[str, Any] = {
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": {naming.MANAGED_BY: naming.PROGRAM, naming.NODE_LEASE: "true"},
                "annotations": {naming.NODE: lease.node, naming.HOLDER: lease.who},
            },
            "spec": {"holderIdentity": lease.holder},
        }
        what = f"the Lease of node {lease.node} cannot be written"
        if lease.version:
            body["metadata"]["resourceVersion"] = lease.version
            replace = self._leases.replace_namespaced_lease
            arguments: tuple[Any, ...] = (name, self._namespace, body)
        else:
            replace, arguments = self._leases.create_namespaced_lease, (self._namespace, body)
        made = api_errors.none_if(
            CONFLICT,
            lambda: api_errors.call(what, replace, *arguments, _request_timeout=CALL_S),
        )
        return None if made is None else _node_lease(made)


def _node_lease_of(item: dict[str, Any]) -> NodeLease:
    meta = item["metadata"]
    notes = meta.get("annotations") or {}
    holder = (item.get("spec") or {}).get("holderIdentity") or ""
    node, who = notes.get(naming.NODE, ""), notes.get(naming.HOLDER, "")
    return NodeLease(node, holder, who, str(meta["resourceVersion"]))


def _node_lease(found: Any) -> NodeLease:
    notes = found.metadata.annotations or {}
    holder = (found.spec.holder_identity or "") if found.spec else ""
    node, who = notes.get(naming.NODE, ""), notes.get(naming.HOLDER, "")
    return NodeLease(node, holder, who, str(found.metadata.resource_version))


class ApiLease:
    """``LeaseStore`` on an API server. The first candidate creates the lease."""

    def __init__(self, api: client.ApiClient, namespace: str, name: str) -> None:
        self._leases = client.CoordinationV1Api(api)
        self._namespace = namespace
        self._name = name

    def read(self) -> StoredLease:
        found = self._ask(
            NOT_FOUND, self._leases.read_namespaced_lease, self._name, self._namespace
        )
        return StoredLease(Lease(), "") if found is None else _stored(found)

    def write(self, lease: Lease, previous: StoredLease) -> StoredLease | None:
        body = self._manifest(lease, previous)
        if previous.version:
            replace = self._leases.replace_namespaced_lease
            written = self._ask(CONFLICT, replace, self._name, self._namespace, body)
        else:
            create = self._leases.create_namespaced_lease
            written = self._ask(CONFLICT, create, self._namespace, body)
        return None if written is None else _stored(written)

    def _manifest(self, lease: Lease, previous: StoredLease) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if previous.version:
            metadata["resourceVersion"] = previous.version
        if lease.note:
            metadata["annotations"] = {NOTE: lease.note}
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
        """Return the result of a call; None if the server refuses it with ``status``."""
        what = f"lease {self._name} cannot be used"
        return api_errors.none_if(
            status, lambda: api_errors.call(what, call, *arguments, _request_timeout=CALL_S)
        )


def _stored(found: Any) -> StoredLease:
    spec = found.spec or client.V1LeaseSpec()  # a person may have created it empty
    lease = Lease(
        spec.holder_identity or NOBODY,
        spec.lease_transitions or 0,
        float(spec.lease_duration_seconds or LEASE_S),
        (found.metadata.annotations or {}).get(NOTE, ""),
    )
    return StoredLease(lease, str(found.metadata.resource_version))


def _now() -> datetime:
    """Return the time for people; no candidate reads it.

    It is not a whole second: the client would omit the fraction, which the API server requires.
    """
    now = datetime.fromtimestamp(time.time(), UTC)
    return now.replace(microsecond=now.microsecond or 1)
