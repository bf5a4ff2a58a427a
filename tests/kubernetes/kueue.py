"""Kueue beside our nodes: its program built once from source, its own CRDs, and its webhooks.

    python -m tests.kubernetes.kueue prepare

Does: builds one version (KUEUE names a program of one's own), and runs it as a process of this
machine, as the other controllers of the test cluster. Kueue refuses a server without a version, and
that of a server built from modules is none, so a proxy tells it the version. Never: downloads a
binary; Go fetches the sources by its module proxy. State: the cache folder; ``ROOT/kueue`` and the
cluster's objects.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes import cluster, control_plane, layout
from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.running import ClusterError, Daemon, eventually, run
from tests.support.api_proxy import Answer, ApiProxy, Request

VERSION = "v0.17.0"
MODULE = "sigs.k8s.io/kueue"
BUILD_S = 5400.0
"""It was 4 minutes on two free cores; niced beside a load of 20 it takes many times that."""
READY_S = 180.0
SERVER_VERSION = "v1.34.4"
"""Of ``kubenode/go.mod``."""
PORT = 9443
HEALTH = 8081
SPACE = "kueue-system"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
GROUP = "/apis/kueue.x-k8s.io/v1beta2"
OURS = {"batch", "kueue.x-k8s.io"}
"""API groups whose webhooks are needed; the others are of kinds that the cluster does not have."""
_START = 'mount -t overlay overlay -o "lowerdir=$0:/etc" /etc && exec "$@"'
"""Kueue reads one certificate at a fixed place in /etc; only its own process sees this one."""


def provide() -> Path:
    """The program, ready to run. Raises ClusterError with the remedy."""
    given = os.environ.get("KUEUE")
    if given:
        if not Path(given).is_file():
            raise ClusterError(f"KUEUE={given} is not a file; correct it, or unset it to build one")
        return Path(given).absolute()
    target = layout.cache() / f"kueue-{VERSION}"
    if target.exists():
        return target
    if shutil.which("go") is None:
        raise ClusterError(f"no kueue; install Go to build {VERSION}, or set KUEUE to a program")
    print(f"building kueue {VERSION} (some minutes, once)", flush=True)
    folder = layout.cache() / f"kueue-build.{os.getpid()}"
    build = ("nice", "-n", "19", "go", "install", "-trimpath", f"{MODULE}/cmd/kueue@{VERSION}")
    try:
        run(*build, timeout_s=BUILD_S, GOBIN=str(folder))
        (folder / "kueue").rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return target


def sources() -> Path:
    """The folder of the module's sources, which Go keeps. Raises ClusterError."""
    said = run("go", "mod", "download", "-json", f"{MODULE}@{VERSION}", timeout_s=BUILD_S)
    return Path(json.loads(said)["Dir"])


@contextmanager
def running(api: Api) -> Iterator[None]:
    """Kueue is in the cluster, and admits Jobs with a queue, until the block ends."""
    program, components = provide(), sources() / "config" / "components"
    folder = layout.ROOT / "kueue"
    authority = _certificates(folder)
    for file in sorted((components / "crd" / "bases").glob("*.yaml")):
        api.create(CRDS, yaml.load(file.read_text(), yaml.CSafeLoader))
    api.create("/api/v1/namespaces", {"metadata": {"name": SPACE}})
    eventually("Kueue's kinds are served", lambda: _served(api), READY_S)
    daemon = Daemon("kueue")
    server = yaml.safe_load(control_plane.ADMIN.read_text())["clusters"][0]["cluster"]
    hooks = list(_webhooks(components / "webhook" / "manifests.yaml", authority))
    own = (folder / "webhook" / "tls.crt", folder / "webhook" / "tls.key")
    proxied = ApiProxy(api.url, server["certificate-authority"], own)
    with proxied as proxy, proxy.answering(_version):
        started = (f"--config={_configuration(folder)}", "--kubeconfig")
        private = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _START)
        access = proxy.kubeconfig(folder, api.token or "")
        daemon.start(*private, folder / "etc", program, *started, access)
        try:
            eventually("Kueue's webhooks answer", lambda: _answers(daemon, authority), READY_S)
            for kind, hook in hooks:
                api.create(f"{WEBHOOKS}/{kind}", hook)
            yield
        finally:
            for kind, hook in hooks:
                api.delete(f"{WEBHOOKS}/{kind}/{hook['metadata']['name']}")
            daemon.kill()


def _version(request: Request) -> Answer | None:
    """The version of the server, which knows none; every other answer is its own."""
    if not request.path.startswith("/version"):
        return None
    major, minor, _ = SERVER_VERSION.removeprefix("v").split(".")
    return Answer(200, {"gitVersion": SERVER_VERSION, "major": major, "minor": minor})


def _certificates(folder: Path) -> str:
    """Make the certificate of the webhooks, which is its own authority; that, as PEM."""
    hooks, metrics = folder / "webhook", folder / "etc" / "kueue" / "metrics" / "certs"
    for place in (hooks, metrics):
        place.mkdir(parents=True, exist_ok=True)
    run(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7"),
        *("-keyout", hooks / "tls.key", "-out", hooks / "tls.crt", "-subj", "/CN=kueue"),
        *("-addext", f"subjectAltName=IP:{layout.BRIDGE_ADDRESS},IP:127.0.0.1"),
    )
    for name in ("tls.key", "tls.crt"):
        shutil.copy(hooks / name, metrics / name)
    return (hooks / "tls.crt").read_text()


def _configuration(folder: Path) -> Path:
    address = layout.BRIDGE_ADDRESS
    whole = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": SPACE,
        "health": {"healthProbeBindAddress": f"{address}:{HEALTH}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": address, "port": PORT, "certDir": str(folder / "webhook")},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": ["batch/job"]},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(whole))
    return path


def _webhooks(file: Path, authority: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind and document of each configuration, for webhooks of this machine."""
    bundle = base64.b64encode(authority.encode()).decode()
    for whole in yaml.safe_load_all(file.read_text()):
        kept = []
        for hook in whole["webhooks"]:
            if {group for rule in hook["rules"] for group in rule["apiGroups"]} <= OURS:
                path = hook["clientConfig"]["service"]["path"]
                url = f"https://{layout.BRIDGE_ADDRESS}:{PORT}{path}"
                kept.append({**hook, "clientConfig": {"url": url, "caBundle": bundle}})
        name = f"kueue-{whole['metadata']['name']}"
        kind = f"{whole['kind'].lower()}s"
        yield kind, {**whole, "metadata": {"name": name}, "webhooks": kept}


def _served(api: Api) -> bool:
    try:
        kinds = {each["name"] for each in api.get(GROUP)["resources"]}
    except ApiError as error:
        raise ClusterError(str(error)) from None
    return {"workloads", "clusterqueues", "localqueues", "resourceflavors"} <= kinds


def _answers(daemon: Daemon, authority: str) -> bool:
    """Whether it listens with this certificate, by a client that trusts nothing else."""
    daemon.check()
    certificate = layout.ROOT / "kueue" / "webhook" / "tls.crt"
    assert certificate.read_text() == authority
    url = f"https://{layout.BRIDGE_ADDRESS}:{PORT}/"
    run("curl", "-s", "--noproxy", "*", "--cacert", certificate, "-o", os.devnull, url)
    return True


def main() -> int:
    """The command line; exit code 1 and one message if it cannot be built."""
    parser = argparse.ArgumentParser(prog="kueue", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("verb", choices=("prepare",))
    parser.parse_args()
    return cluster.carry_out("prepare", lambda: (provide(), sources()))


if __name__ == "__main__":
    sys.exit(main())
