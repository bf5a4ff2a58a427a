"""What this machine must have before a cluster is started on it.

Does: looks, installs missing Debian packages where it may, and names everything else that is
missing in one message with its remedy. Never: starts anything, or half a cluster. State: none.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.kubernetes import cgroups, layout, server
from tests.kubernetes.running import ClusterError, run

PACKAGES = {
    "gcc": "build-essential",
    "buildah": "buildah",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "debootstrap": "debootstrap",
    "etcd": "etcd-server",
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "runc": "runc",
    "sysctl": "procps",
}
"""Program to the Debian package that has it."""
PLUGINS_PACKAGE = "containernetworking-plugins"
INSTALL_S = 600.0
FOREIGN_KUBELET = (Path("/etc/kubernetes"), Path("/var/lib/kubelet/config.yaml"))
"""A machine with these is a node already; a second kubelet would take its device socket."""
REMEDY = "or set KUBECONFIG to use a cluster that exists"


def check() -> None:
    """Raises ClusterError with all that is missing and cannot be installed or built here."""
    faults = [fault for fault in (*_unfit(), server.fault()) if fault is not None]
    packages = _missing_packages()
    if packages and (faults or shutil.which("apt-get") is None):
        faults.append(_missing(packages))
    if faults:
        raise _refusal(faults)


def prepare() -> None:
    """Everything is there afterwards. Raises ClusterError with all that is not."""
    check()
    packages = _missing_packages()
    if packages:
        _install(packages)
        packages = _missing_packages()
    if packages:
        raise _refusal([_missing(packages)])


def _refusal(faults: list[str]) -> ClusterError:
    told = "\n".join(f"  - {fault}" for fault in faults)
    return ClusterError(f"no Kubernetes cluster can be started on this machine:\n{told}")


def _missing(packages: list[str]) -> str:
    line = f"apt-get install --no-install-recommends {' '.join(packages)}"
    return f"missing programs; run as root: {line}"


def _unfit() -> list[str]:
    """What no package can mend."""
    faults = []
    if os.geteuid() != 0:
        faults.append(f"nodes need root; run as root, {REMEDY}")
    groups = cgroups.fault()
    if groups:
        faults.append(f"{groups}, {REMEDY}")
    node = [str(path) for path in FOREIGN_KUBELET if path.exists()]
    if node:
        faults.append(f"this machine is a node already ({node[0]}); set KUBECONFIG to its cluster")
    if os.geteuid() == 0 and shutil.which("unshare"):
        try:
            run("unshare", "--net", "--mount", "true")
        except ClusterError as error:
            faults.append(f"no namespaces can be made here ({error}); allow it, {REMEDY}")
    return faults


def _missing_packages() -> list[str]:
    missing = {package for program, package in PACKAGES.items() if shutil.which(program) is None}
    if not (layout.CNI_PLUGINS / "bridge").exists():
        missing.add(PLUGINS_PACKAGE)
    return sorted(missing)


def _install(packages: list[str]) -> None:
    print(f"installing {' '.join(packages)}", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run("apt-get", "update", "-qq", timeout_s=INSTALL_S, **quiet)
        command = ("apt-get", "install", "-y", "-qq", "--no-install-recommends")
        run(*command, *packages, timeout_s=INSTALL_S, **quiet)
    except ClusterError as error:
        print(f"not installed: {error}", flush=True)
