"""What kube-proxy is elsewhere: the address of a Service leads to a pod of it that is ready.

    python -m tests.kubernetes.services        (as a daemon of a cluster that is up)

Does: keeps each node's rules equal to the Services and their endpoints. Never: balances (the first
endpoint gets all), or serves names: there is no DNS. State: two chains in each node's network.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import Any

from tests.kubernetes import control_plane, network
from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.layout import NODES, Node
from tests.kubernetes.running import ClusterError, run

SERVICES, SLICES = "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"
OF_SERVICE = "kubernetes.io/service-name"
CHAINS = {"SERVICES": ("PREROUTING", "OUTPUT"), "SERVICES-BACK": ("POSTROUTING",)}
POLL_S = 0.5


@dataclass(frozen=True, order=True, slots=True)
class Way:
    """From a port of a Service to the same of a pod."""

    service: str
    port: int
    pod: str
    target: int


def ways(services: list[dict[str, Any]], slices: list[dict[str, Any]]) -> list[Way]:
    """One for each port of a Service that has an address and a pod that is ready."""
    found = set()
    for service in services:
        address, who = service["spec"].get("clusterIP"), service["metadata"]
        mine = {"namespace": who["namespace"], OF_SERVICE: who["name"]}
        for piece in slices:
            of = {
                "namespace": piece["metadata"]["namespace"],
                **piece["metadata"].get("labels", {}),
            }
            ready = [
                end["addresses"][0]
                for end in piece.get("endpoints") or ()
                if end.get("conditions", {}).get("ready")
            ]
            if address in (None, "", "None") or not mine.items() <= of.items() or not ready:
                continue
            targets = {port.get("name") or "": port["port"] for port in piece.get("ports") or ()}
            for port in service["spec"]["ports"]:
                if port.get("name", "") in targets:
                    target = targets[port.get("name", "")]
                    found.add(Way(address, port["port"], min(ready), target))
    return sorted(found)


def rules(wanted: list[Way]) -> str:
    """For iptables-restore: both chains, whole. A pod on the same node answers past the node's
    rules, so what was led is also made to come back here."""
    lines = ["*nat", *(f":{chain} - [0:0]" for chain in CHAINS)]
    for way in wanted:
        there = f"-A SERVICES -d {way.service} -p tcp --dport {way.port}"
        lines.append(f"{there} -j DNAT --to-destination {way.pod}:{way.target}")
        back = f"-A SERVICES-BACK -d {way.pod} -p tcp --dport {way.target}"
        lines.append(f"{back} -m conntrack --ctstate DNAT -j MASQUERADE")
    return "\n".join([*lines, "COMMIT", ""])


def _write(node: Node, text: str) -> None:
    restore = [*network.enter(node), "iptables-restore", "--wait", "--noflush"]
    subprocess.run([str(word) for word in restore], input=text, text=True, check=True)
    for chain, places in CHAINS.items():
        for place in places:
            jump = (place, "-j", chain)
            table = (*network.enter(node), "iptables", "--wait", "-t", "nat")
            try:
                run(*table, "-C", *jump)
            except ClusterError:
                run(*table, "-A", *jump)


def main() -> None:
    """Serve until killed; what cannot be done is tried again, as while no API server is there."""
    written = None
    while True:
        try:
            api = Api.of(control_plane.ADMIN)
            text = rules(ways(api.get(SERVICES)["items"], api.get(SLICES)["items"]))
            if text != written:
                for node in NODES:
                    _write(node, text)
                written = text
        except (ApiError, ClusterError, subprocess.CalledProcessError) as error:
            print(error, flush=True)
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
