"""The calls to an API server, by the official client.

Does: find credentials (a kubeconfig, or the service account of this pod) and make each call with a
time limit; every failure is an KubernetesError. It does not retry or wait for a state. Never: show
a credential. Blocking: call it from a thread.
"""

from __future__ import annotations

import http
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config, stream, watch
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError
from yaml import YAMLError

from reshape_launcher.kubernetes import api_objects
from reshape_launcher.kubernetes.api_errors import call, none_if, refusal, unreached
from reshape_launcher.kubernetes.call_pauses import CallPauses
from reshape_launcher.kubernetes.leases import ApiLease, ApiNodeLeases
from reshape_launcher.kubernetes.node_watch import Expired
from reshape_launcher.kubernetes.pod import CONTAINER
from reshape_launcher.kubernetes.rights import Right
from reshape_launcher.kubernetes.settings import NODE_LEASE_NAMESPACE
from reshape_launcher.kubernetes.values import (
    ALREADY_EXISTS,
    NOT_FOUND,
    ClaimInfo,
    CreatedJob,
    JobInfo,
    KubernetesError,
    Manifest,
    Node,
    NodeLease,
    NotRunning,
    PodInfo,
)

CALL_S = 10.0
"""Time limit of a call. Then: KubernetesError; the caller repeats it."""
RUN_S = 15.0
"""Time limit of a command in a pod."""
WATCH_S = 60
"""Longest watch in one call. Then: another call goes on from there."""
GONE = 410
NO_NODE = Node("", ready=False, schedulable=False, boot_id="")
PAGE = 500
NOT_RUNNING = ("container not found", "does not have a host assigned")
"""Answers of a node, or of the API server for a pod without one, about a container that is not
running."""
MERGE_PATCH = "application/merge-patch+json"
_WARNING = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')
T = TypeVar("T")


class CannotConnect(Exception):
    """No usable credentials; the message says which were tried and the remedy."""


def connect(
    kubeconfig: Path | None, namespace: str, lease_namespace: str = NODE_LEASE_NAMESPACE
) -> ClusterClient:
    """Return the client of a cluster, by a kubeconfig or (None) the service account of this pod.

    It sends nothing to the server yet. Raises CannotConnect.
    """
    settings = client.Configuration()
    try:
        if kubeconfig is not None:
            config.load_kube_config(str(kubeconfig), client_configuration=settings)
        else:
            config.load_incluster_config(client_configuration=settings)
    except (ConfigException, YAMLError, OSError, ValueError, TypeError) as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "the service account of this pod"
        raise CannotConnect(f"{where} cannot be used: {error}") from None
    settings.retries = False
    return ClusterClient(client.ApiClient(settings), namespace, lease_namespace)


class ClusterClient:
    """``ClusterApi`` on a real API server."""

    def __init__(
        self, api: client.ApiClient, namespace: str, lease_namespace: str = NODE_LEASE_NAMESPACE
    ) -> None:
        self._api = api
        self._pauses = CallPauses()
        self._lease_namespace = lease_namespace
        self._node_leases = ApiNodeLeases(api, lease_namespace)
        self._core = client.CoreV1Api(api)
        self._batch = client.BatchV1Api(api)
        self._namespace = namespace

    @property
    def server(self) -> str:
        """Address of the API server."""
        return str(self._api.configuration.host)

    def problem(self) -> str:
        """Return which call fails now, and why; empty if none fails."""
        found = self._pauses.problem()
        return f"the Kubernetes API server ({self.server}): {found}" if found else ""

    def lease(self, name: str) -> ApiLease:
        """Return a lease of the namespace, without a call to the server."""
        return ApiLease(self._api, self._namespace, name)

    def node_leases(self) -> tuple[NodeLease, ...]:
        return self._pauses.run("Leases of nodes cannot be listed", self._node_leases.all)

    def write_node_lease(self, lease: NodeLease) -> NodeLease | None:
        what = f"the Lease of node {lease.node} cannot be written"
        return self._pauses.run(what, lambda: self._node_leases.write(lease))

    def close(self) -> None:
        self._api.rest_client.pool_manager.clear()

    def create_job(self, manifest: Manifest) -> CreatedJob:
        name = manifest["metadata"]["name"]
        made = none_if(
            ALREADY_EXISTS,
            lambda: self._call(
                f"job {name} cannot be created",
                self._batch.create_namespaced_job,
                self._namespace,
                manifest,
            ),
        )
        if made is None:
            what = f"job {name} cannot be read"
            made = self._call(what, self._batch.read_namespaced_job, name, self._namespace)
        return api_objects.created_job_of(made)

    def create_secret(self, manifest: Manifest) -> None:
        self._create("secret", self._core.create_namespaced_secret, manifest)

    def create_service(self, manifest: Manifest) -> None:
        self._create("service", self._core.create_namespaced_service, manifest)

    def create_config_map(self, manifest: Manifest) -> None:
        self._create("config map", self._core.create_namespaced_config_map, manifest)

    def patch_job(self, name: str, changes: Manifest) -> bool:
        patched = none_if(
            NOT_FOUND,
            lambda: self._call(
                f"job {name} cannot be changed",
                self._batch.patch_namespaced_job,
                name,
                self._namespace,
                changes,
                _content_type=MERGE_PATCH,
            ),
        )
        return patched is not None

    def delete_job(self, name: str) -> None:
        delete = self._batch.delete_namespaced_job
        what = f"job {name} cannot be deleted"
        none_if(
            NOT_FOUND,
            lambda: self._call(
                what, delete, name, self._namespace, propagation_policy="Background"
            ),
        )

    def delete_pod(self, name: str, grace_s: int) -> None:
        delete = self._core.delete_namespaced_pod
        what = f"pod {name} cannot be deleted"
        none_if(
            NOT_FOUND,
            lambda: self._call(what, delete, name, self._namespace, grace_period_seconds=grace_s),
        )

    def jobs(self, selector: str) -> tuple[JobInfo, ...]:
        found = self._all("jobs", self._batch.list_namespaced_job, selector)
        seen = (api_objects.job_of(item) for item in found)
        return tuple(job for job in seen if job is not None)

    def pods(self, selector: str) -> tuple[PodInfo, ...]:
        found = self._all("pods", self._core.list_namespaced_pod, selector)
        return tuple(api_objects.pod_of(item) for item in found)

    def newest_warning(self, kind: str, name: str) -> str:
        wanted = f"involvedObject.kind={kind},involvedObject.name={name}"
        listing, what = self._core.list_namespaced_event, "events cannot be listed"
        return api_objects.warning(
            self._call(what, listing, self._namespace, field_selector=wanted).items
        )

    def nodes(self, selector: str) -> tuple[Node, ...]:
        return self.list_nodes(selector)[0]

    def list_nodes(self, selector: str) -> tuple[tuple[Node, ...], str]:
        """Return all nodes with these labels, and the version of this list."""
        found = self._call("nodes cannot be listed", self._core.list_node, label_selector=selector)
        nodes = tuple(api_objects.node_of(item) for item in found.items)
        return nodes, str(found.metadata.resource_version)

    def node_changes(
        self, selector: str, version: str, watch_s: int = WATCH_S
    ) -> Iterator[tuple[str, Node, str]]:
        """Yield the changes of nodes since ``version``, as ``NodeSource`` says."""
        what = "nodes cannot be watched"
        own = client.CoreV1Api(client.ApiClient(self._api.configuration))
        options = {"label_selector": selector, "resource_version": version}
        limits = {"timeout_seconds": watch_s, "_request_timeout": (CALL_S, watch_s + CALL_S)}
        try:
            for event in watch.Watch().stream(
                own.list_node, allow_watch_bookmarks=True, **options, **limits
            ):
                kind, raw = str(event["type"]), event["raw_object"]
                newer = str(raw["metadata"]["resourceVersion"])
                found = NO_NODE if kind == "BOOKMARK" else api_objects.node_of(event["object"])
                yield kind, found, newer
        except client.ApiException as error:
            if error.status == GONE:
                raise Expired from None
            raise refusal(what, error) from None
        except (HTTPError, OSError) as error:
            raise unreached(what, error) from None
        finally:
            own.api_client.rest_client.pool_manager.clear()

    def changes(self, kind: str, selector: str) -> Iterator[None]:
        """Yield once a watch of a kind is open and at each change, as ``ChangeSource`` says."""
        own, what = client.ApiClient(self._api.configuration), f"{kind} cannot be watched"
        listing = {
            "jobs": client.BatchV1Api(own).list_namespaced_job,
            "pods": client.CoreV1Api(own).list_namespaced_pod,
        }[kind]
        ours = {"label_selector": selector}
        limits = {"timeout_seconds": WATCH_S, "_request_timeout": (CALL_S, WATCH_S + CALL_S)}
        try:
            newest = _call(what, listing, self._namespace, limit=1, **ours).metadata
            limits |= {"resource_version": newest.resource_version, "_preload_content": False}
            answer = call(what, listing, self._namespace, watch=True, **ours, **limits)
            if answer.status != http.HTTPStatus.OK:
                raise KubernetesError(what, int(answer.status), str(answer.reason))
            yield
            for _ in answer.stream():
                yield
        except (HTTPError, OSError) as error:
            raise unreached(what, error) from None
        finally:
            own.rest_client.pool_manager.clear()

    def claim(self, name: str) -> ClaimInfo | None:
        read = self._core.read_namespaced_persistent_volume_claim
        what = f"claim {name} cannot be read"
        found = none_if(NOT_FOUND, lambda: self._call(what, read, name, self._namespace))
        return None if found is None else api_objects.claim_of(found)

    def run_in(self, pod: str, command: tuple[str, ...]) -> str:
        try:
            return self._run_in(pod, command)
        except KubernetesError as trouble:
            if any(said in str(trouble) for said in NOT_RUNNING):
                raise NotRunning(f"pod {pod}", trouble.status, str(trouble)) from None
            raise

    def has_runtime_class(self, name: str) -> bool:
        """True if the cluster has a runtime class of this name."""
        read = client.NodeV1Api(self._api).read_runtime_class
        what = f"runtime class {name} cannot be read"
        return none_if(NOT_FOUND, lambda: self._call(what, read, name)) is not None

    def version(self) -> str:
        """Return the version of the API server."""
        what = "the API server cannot be used"
        return str(self._call(what, client.VersionApi(self._api).get_code).git_version)

    def may(self, right: Right) -> bool:
        """True if these credentials have the right."""
        namespace = self._lease_namespace if right.of_node_leases else self._namespace
        asked = {
            "namespace": None if right.of_cluster else namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
        }
        review = {"spec": {"resourceAttributes": {k: v for k, v in asked.items() if v}}}
        ask = client.AuthorizationV1Api(self._api).create_self_subject_access_review
        return bool(self._call("rights cannot be checked", ask, review).status.allowed)

    def dry_run_job(self, manifest: Manifest) -> tuple[str, ...]:
        """Create a Job as a dry run, and return the warnings of the API server."""
        create = self._batch.create_namespaced_job_with_http_info
        what = "a Job would be refused"
        _, _, found = self._call(what, create, self._namespace, manifest, dry_run="All")
        headers = {key.lower(): value for key, value in dict(found or {}).items()}
        return tuple(_WARNING.findall(headers.get("warning", "")))

    def _run_in(self, pod: str, command: tuple[str, ...]) -> str:
        # A client of its own: while it connects, the library sends every other call of the same
        # client down that connection.
        own = client.CoreV1Api(client.ApiClient(self._api.configuration))
        socket = _call(
            f"no command can be run in pod {pod}",
            stream.stream,
            own.connect_get_namespaced_pod_exec,
            pod,
            self._namespace,
            command=list(command),
            container=CONTAINER,
            stdin=False,
            stdout=True,
            stderr=True,
            tty=False,
            _preload_content=False,
        )
        try:
            _until_closed(pod, socket)
            if socket.is_open():
                raise KubernetesError(f"a command in pod {pod}", 0, f"no result within {RUN_S:g} s")
            code = _exit_code(pod, socket)
            output, errors = str(socket.read_stdout()), str(socket.read_stderr())
        finally:
            socket.sock.shutdown()  # close() leaves a socket open that the server has ended
        if code != 0:
            raise KubernetesError(
                f"a command in pod {pod}", 0, errors.strip() or f"exit code {code}"
            )
        return output

    def _call(self, what: str, ask: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return the result of a call, or of its failure before while it has a pause."""
        return self._pauses.run(what, lambda: _call(what, ask, *arguments, **options))

    def _create(self, kind: str, create: Callable[..., Any], manifest: Manifest) -> None:
        what = f"{kind} {manifest['metadata']['name']} cannot be created"
        none_if(ALREADY_EXISTS, lambda: self._call(what, create, self._namespace, manifest))

    def _all(self, kind: str, listing: Callable[..., Any], selector: str) -> list[Any]:
        items: list[Any] = []
        going_on: str | None = None
        while True:
            page = self._call(
                f"{kind} cannot be listed",
                listing,
                self._namespace,
                label_selector=selector,
                limit=PAGE,
                **({"_continue": going_on} if going_on else {}),
            )
            items += page.items
            going_on = page.metadata.var_continue if page.metadata else None
            if not going_on:
                return items


def _until_closed(pod: str, socket: Any) -> None:
    """Read what a command writes until it has ended, or for ``RUN_S``.

    The client has no error of its own for a connection that the node cuts.
    """
    try:
        socket.run_forever(timeout=RUN_S)
    except Exception as error:
        what = str(error) or type(error).__name__
        raise KubernetesError(f"a command in pod {pod} was cut off", 0, what) from None


def _exit_code(pod: str, socket: Any) -> int:
    """Return the exit code of a command; the client has none if the command never started."""
    try:
        return int(socket.returncode)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise KubernetesError(f"no command can be run in pod {pod}", 0, str(error)) from None


def _call(what: str, ask: Callable[..., T], *arguments: Any, **options: Any) -> T:
    return call(what, ask, *arguments, _request_timeout=CALL_S, **options)
