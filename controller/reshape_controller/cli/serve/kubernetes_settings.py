"""The cluster on which a daemon launches, and the address at which its pods reach the daemon.

Does: turn settings into a launcher, without a call to the cluster. The cluster's client is imported
late, for that takes a second.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.serve import cluster_file
from reshape_controller.cli.serve.ip_address import address_and_port
from reshape_gpu.config import Config
from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.gpu_probe import ProbedDevices
from reshape_launcher.kubernetes.gpus import PodDevices, SimulatedDevices
from reshape_launcher.kubernetes.settings import PodSettings

if TYPE_CHECKING:
    from reshape_launcher.kubernetes.api import ClusterClient
    from reshape_launcher.kubernetes.launcher import KubernetesLauncher

PLAIN_REMEDY = "leave out sidecar_tls: off; a proxy has to pass TLS on, or have TLS of its own"
IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
ONLY_KUBERNETES = ("kubeconfig", "cluster", "sidecar_bind", "sidecar_url", "lease")
DEFAULT_KUBECONFIG = "~/.kube/config"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """A cluster, not contacted yet. ``kubeconfig`` None: this pod's service account."""

    kubeconfig: Path | None
    pods: PodSettings
    devices: PodDevices
    sidecar_address: str
    sidecar_port: int
    sidecar_url: str
    """As it was given: a launch turns http into https with ``sidecar_tls``."""
    sidecar_tls: bool
    """Whether SideCars pin this daemon's own key: not on loopback, nor with a proxy's TLS."""
    by_playbook: bool
    runs: Path
    """Folder of the artifacts of the newest playbook runs."""

    @property
    def is_plain(self) -> bool:
        """Whether the network between pods and this daemon shows the tokens of attempts."""
        if self.sidecar_tls or self.sidecar_url.startswith("https:"):
            return False
        is_local = ipaddress.ip_address(self.sidecar_address).is_loopback
        return _is_beyond_loopback(self.sidecar_url) or not is_local

    @property
    def transport(self) -> str:
        """How SideCars reach this daemon, in words."""
        if self.sidecar_tls:
            return "with TLS by the daemon's own key"
        if self.is_plain:
            return "DANGER: plain HTTP, which shows the attempts' tokens to who reads the network"
        is_proxied = self.sidecar_url.startswith("https:")
        return "with TLS up to a proxy" if is_proxied else "plain HTTP on loopback"

    def cluster(self) -> ClusterClient:
        """Return a client of the API server. Raises CliError."""
        try:
            from reshape_launcher.kubernetes.api import CannotConnect, connect
        except ImportError as error:
            what = f"the Kubernetes client is not installed ({error.name} is missing)"
            remedy = "pip install kubernetes"
            raise failed(Exit.FAILED, what, "--launcher kubernetes", remedy) from None
        try:
            return connect(self.kubeconfig, self.pods.namespace, self.pods.node_lease_namespace)
        except CannotConnect as error:
            raise self._no_cluster(error) from None

    def _no_cluster(self, error: Exception) -> CliError:
        """Return the error of a kubeconfig, or of a pod's service account, that cannot be used."""
        if self.kubeconfig is None:
            remedy = (
                "have Kubernetes mount its token (automountServiceAccountToken: true), or give "
                "--kubeconfig FILE"
            )
            return failed(Exit.FAILED, str(error), "the service account of this pod", remedy)
        remedy = (
            f"check it with `kubectl --kubeconfig {self.kubeconfig} version`, or give another one: "
            "--kubeconfig FILE"
        )
        return failed(Exit.FAILED, str(error), str(self.kubeconfig), remedy)

    def launcher(self) -> KubernetesLauncher:
        """Return the launcher on the cluster. Raises CliError."""
        from reshape_launcher.kubernetes.apply import (
            Applier,
            ApplyTarget,
            DirectApplier,
            PlaybookApplier,
        )
        from reshape_launcher.kubernetes.change_signal import ChangeSignal
        from reshape_launcher.kubernetes.launcher import KubernetesLauncher
        from reshape_launcher.kubernetes.node_watch import NodeWatch

        cluster = self.cluster()
        applier: Applier = DirectApplier(cluster)
        if self.by_playbook:
            if importlib.util.find_spec("ansible_runner") is None:
                raise failed(
                    Exit.FAILED,
                    "ansible-runner is not installed",
                    "--launch-by ansible",
                    "pip install ansible-core ansible-runner, or go without: --launch-by client",
                )
            kubeconfig = None if self.kubeconfig is None else str(self.kubeconfig)
            applier = PlaybookApplier(self.runs, ApplyTarget(kubeconfig, self.pods.namespace))
        nodes = NodeWatch(cluster, self.pods.node_selector)
        changes = ChangeSignal(cluster, naming.selector(self.pods.controller))
        return KubernetesLauncher(
            *(cluster, self.pods, self.devices, applier), nodes=nodes, changes=changes
        )


def kubernetes_settings(config: Config) -> KubernetesSettings | None:
    """Return the configured cluster; None with another launcher. Raises CliError."""
    if config.text("launcher") != "kubernetes":
        for name in ONLY_KUBERNETES:
            if config.text(name) is not None:
                what = f"{name} needs --launcher kubernetes; the launcher is local"
                remedy = f"add --launcher kubernetes, or leave out {name}"
                raise failed(Exit.USAGE, what, config.source(name), remedy)
        return None
    if config.text("container_costs") is not None:
        what = "container_costs applies to --launcher local only"
        raise failed(Exit.USAGE, what, config.source("container_costs"), "leave it out")
    if config.number("hosts") != 1:
        what = "hosts applies to --launcher local only; the hosts of a cluster are its nodes"
        raise failed(Exit.USAGE, what, config.source("hosts"), "leave it out")
    file = config.text("cluster")
    if file is None:
        remedy = "give a file with `namespace: NAME`: --cluster FILE (docs/kubernetes.md)"
        raise failed(Exit.USAGE, "--launcher kubernetes needs a cluster file", "--cluster", remedy)
    path = Path(file).expanduser().absolute()
    address, port = _listen(config)
    pods = cluster_file.read(path)
    by_playbook = config.text("launch_by") == "ansible"
    if pods.registry is not None and not by_playbook:
        what = "the cluster file sets `registry`, and only the playbook builds images"
        raise failed(Exit.USAGE, what, config.source("launch_by"), "use --launch-by ansible")
    url = _url(config, address, port)
    return KubernetesSettings(
        _kubeconfig(config),
        pods,
        _devices(config, pods),
        address,
        port,
        url,
        config.text("sidecar_tls") != "off" and _is_beyond_loopback(url),
        by_playbook,
        config.home / "playbooks",
    )


def _devices(config: Config, pods: PodSettings) -> PodDevices:
    """Return simulated GPUs on request, or the GPUs of the nodes."""
    count = config.number("simulated_gpus")
    if count is not None:
        return SimulatedDevices(count)
    of_machine = {"gpus": config.number("gpus"), "gpu_type": config.text("gpu_type")}
    for name, value in of_machine.items():
        if value is not None:
            what = f"{name} applies to --launcher local only; nodes report their own GPUs"
            raise failed(Exit.USAGE, what, config.source(name), "leave it out")
    if pods.image is None:
        what = "the cluster file has no `image`; the pod that reads a node's GPUs needs it"
        remedy = "add `image`, or use simulated GPUs on each node: --simulated-gpus 4"
        raise failed(Exit.USAGE, what, config.source("cluster"), remedy)
    if importlib.util.find_spec("pynvml") is None:
        what = "nvidia-ml-py is not installed; the daemon copies it into pods"
        raise failed(Exit.FAILED, what, "--launcher kubernetes", "pip install nvidia-ml-py")
    return ProbedDevices(pods)


def _kubeconfig(config: Config) -> Path | None:
    name = config.text("kubeconfig")
    if name is None and os.environ.get(IN_CLUSTER):
        return None
    name = name or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        what = f"the kubeconfig {path} does not exist"
        raise failed(Exit.USAGE, what, config.source("kubeconfig"), "give one: --kubeconfig FILE")
    return path


def _listen(config: Config) -> tuple[str, int]:
    """Return address and port for the SideCars."""
    text, where = config.text("sidecar_bind"), config.source("sidecar_bind")
    remedy = (
        "give the IP address of this machine that pods reach, and a port: "
        "--sidecar-bind 192.0.2.7:7471"
    )
    if text is None:
        raise failed(
            Exit.USAGE,
            "--launcher kubernetes needs an address on which the daemon listens for pods",
            "--sidecar-bind",
            remedy,
        )
    return address_and_port(text, where, remedy)


def _is_beyond_loopback(url: str) -> bool:
    """Whether a URL without TLS leads off this machine."""
    parts = urllib.parse.urlsplit(url)
    try:
        loopback = ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        loopback = parts.hostname == "localhost"
    return parts.scheme == "http" and not loopback


def _url(config: Config, address: str, port: int) -> str:
    text = config.text("sidecar_url")
    if text is None:
        if ipaddress.ip_address(address).is_unspecified:
            what = f"{address} stands for all addresses of this machine; pods need a specific one"
            remedy = "give it: --sidecar-url http://ADDRESS:PORT"
            raise failed(Exit.USAGE, what, config.source("sidecar_bind"), remedy)
        return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        remedy = "write http://ADDRESS:PORT"
        raise failed(
            Exit.USAGE, f"{text!r} is not an http(s) URL", config.source("sidecar_url"), remedy
        )
    return text.rstrip("/")
