"""The test cluster itself is real: nodes, pods, volumes, network, and everything that can break.

What these tests show of the cluster, the others take for granted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.kubernetes import cgroups, cluster, control_plane, network
from tests.kubernetes.api import ApiError
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.layout import NODES, Node
from tests.kubernetes.leftovers import left
from tests.kubernetes.namespace import SHARED, Namespace, eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]

FOREVER = ("python3", "-c", "import signal; signal.signal(15, lambda *_: exit()); signal.pause()")
SERVES = (
    "import http.server, os\n"
    "class Says(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200)\n"
    "        self.end_headers()\n"
    "        self.wfile.write(os.environ['HOSTNAME'].encode())\n"
    "http.server.HTTPServer(('', 8080), Says).serve_forever()\n"
)
ASKS = (
    "import sys, time, urllib.request\n"
    "for _ in range(100):\n"
    "    try:\n"
    "        answer = urllib.request.urlopen(sys.argv[1], timeout=5).read()\n"
    "        print('heard', answer.decode())\n"
    "        break\n"
    "    except OSError:\n"
    "        time.sleep(0.3)\n"
    "else:\n"
    "    sys.exit('nobody answers')\n"
)
API_AWAY_S = 10.0
TENSORFLOW_S = 600.0
"""The pods of a node share a processor with everything else on this machine, however much it is."""


def container_of(namespace: Namespace, name: str) -> tuple[str, str, int]:
    """What changes if a pod or its container is replaced."""
    pod = namespace.pod(name)
    (status,) = pod["status"]["containerStatuses"]
    return pod["metadata"]["uid"], status["containerID"], status["restartCount"]


@pytest.mark.gate
def test_every_node_is_ready(own_cluster: Grounds) -> None:
    assert cluster.ready() == {node.name: True for node in NODES}
    items = own_cluster.api.get("/api/v1/nodes")["items"]
    addresses = {
        entry["address"]
        for item in items
        for entry in item["status"]["addresses"]
        if entry["type"] == "InternalIP"
    }
    assert addresses == {node.address for node in NODES}


def test_a_restricted_pod_imports_tensorflow(namespace: Namespace) -> None:
    program = "import os, tensorflow; print('version', tensorflow.__version__, 'user', os.getuid())"
    namespace.run("imports", "python3", "-c", program)
    namespace.reaches("imports", "Succeeded", TENSORFLOW_S)
    said = namespace.logs("imports")
    assert "version 2." in said
    assert "user 0" not in said


def test_a_pod_that_may_be_root_is_refused(namespace: Namespace) -> None:
    with pytest.raises(ApiError, match="violates PodSecurity") as refused:
        namespace.run("root", *FOREVER, securityContext={"runAsUser": 0})
    assert refused.value.status == 403


def test_a_pod_hears_a_pod_on_the_other_node(namespace: Namespace) -> None:
    first, second = namespace.grounds.nodes[:2]
    namespace.run("serves", "python3", "-c", SERVES, node=first)
    server = namespace.reaches("serves", "Running")
    assert server["spec"]["nodeName"] == first
    url = f"http://{server['status']['podIP']}:8080/"
    namespace.run("asks", "python3", "-c", ASKS, url, node=second)
    asked = namespace.reaches("asks", "Succeeded")
    assert asked["spec"]["nodeName"] == second
    assert namespace.logs("asks").split() == ["heard", "serves"]


def test_what_one_node_writes_the_other_reads(namespace: Namespace) -> None:
    first, second = namespace.grounds.nodes[:2]
    write = "open('/shared/word', 'w').write('written')"
    namespace.run("writes", "python3", "-c", write, node=first)
    namespace.reaches("writes", "Succeeded")
    namespace.run("reads", "python3", "-c", "print(open('/shared/word').read())", node=second)
    namespace.reaches("reads", "Succeeded")
    assert namespace.logs("reads").strip() == "written"


def test_whatever_a_run_leaves_in_a_cluster_is_found_and_named(namespace: Namespace) -> None:
    name, of_cluster = namespace.name, "/apis/scheduling.k8s.io/v1/priorityclasses"
    namespace.api.create(namespace.path("limitranges"), {"metadata": {"name": "any"}, "spec": {}})
    namespace.api.create(of_cluster, {"metadata": {"name": f"of-{name}"}, "value": 1})
    try:
        found = set(left(namespace.api, name))
    finally:
        namespace.api.delete(f"{of_cluster}/of-{name}")
    wanted = {
        *(f"namespaces /{name}", f"limitranges {name}/any", f"priorityclasses /of-{name}"),
        f"persistentvolumeclaims {name}/{SHARED}",
    }
    assert wanted <= found
    assert [one for one in found if one.startswith("persistentvolumes ")], "bound to its claim"


@pytest.mark.parametrize(
    ("break_it", "mend_it"),
    [
        (cgroups.kill, cluster.start_node),
        (network.cut, network.join),
        (cgroups.freeze, cgroups.thaw),
    ],
    ids=["killed", "cut off", "frozen"],
)
def test_a_node_that_is_gone_is_not_ready_and_comes_back(
    own_cluster: Grounds,
    break_it: Callable[[Node], None],
    mend_it: Callable[[Node], None],
) -> None:
    broken, other = NODES[1], NODES[0]
    processes = len(cgroups.pids(broken))
    assert processes >= 2
    break_it(broken)
    try:
        assert (cgroups.pids(broken) == []) is (break_it is cgroups.kill)
        eventually("NotReady", lambda: cluster.ready()[broken.name] is False)
        assert cluster.ready()[other.name]
    finally:
        mend_it(broken)
    eventually("Ready again", lambda: cluster.ready()[broken.name])


def test_pods_outlive_the_api_server(own_cluster: Grounds, namespace: Namespace) -> None:
    namespace.run("stays", *FOREVER)
    namespace.reaches("stays", "Running")
    before = container_of(namespace, "stays")
    control_plane.stop_api_server()
    try:
        stopped_s = time.monotonic()
        while time.monotonic() < stopped_s + API_AWAY_S:
            with pytest.raises(ApiError, match="cannot be reached"):
                own_cluster.api.text("/readyz")
            time.sleep(1.0)
    finally:
        cluster.start_api_server()
    eventually("nodes Ready", lambda: all(cluster.ready().values()))
    assert container_of(namespace, "stays") == before
