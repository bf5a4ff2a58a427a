"""The control plane: etcd, API server, controllers and scheduler, in the machine's own network.

Does: makes the credentials, starts and stops the four. Never: is durable (etcd does not fsync) or
safe against others on the machine.
State: ``ROOT/pki``, ``ROOT/etcd``, and a kubeconfig for each user.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path

from tests.kubernetes import layout
from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.layout import API_URL, BRIDGE_ADDRESS, NODES, ROOT
from tests.kubernetes.running import ClusterError, Daemon, eventually, run

READY_S = 180.0
NODE_SILENT_S = 20
"""Silence of a node until it is NotReady; less lets a loaded machine's nodes flap."""
EVICT_S = 5
"""From NotReady to the eviction of pods."""
CLAIM_SYNC_S = 1
"""How often volumes and claims are matched; 15 s by default."""
NO_PORT = "--secure-port=0"
"""Nobody asks controllers and scheduler anything, and their usual ports may be taken."""
ADMIN = ROOT / "admin.kubeconfig"
TOKENS = ROOT / "tokens.csv"
PKI = ROOT / "pki"
ETCD, API, CONTROLLERS, SCHEDULER = "etcd", "apiserver", "controllers", "scheduler"


def kubeconfig(user: str) -> Path:
    """The credentials of ``admin``, of a server, or of a node."""
    return ROOT / f"{user}.kubeconfig"


def make_credentials() -> None:
    """A random token and a kubeconfig for each user, and the service accounts' key pair."""
    users = {
        "admin": ("admin", "system:masters"),
        CONTROLLERS: ("system:kube-controller-manager", "system:masters"),
        SCHEDULER: ("system:kube-scheduler", "system:masters"),
    }
    users |= {node.name: (f"system:node:{node.name}", "system:nodes") for node in NODES}
    lines = []
    for key, (user, group) in users.items():
        token = secrets.token_urlsafe(32)
        lines.append(f'{token},{user},{user},"{group}"\n')
        _write_secret(kubeconfig(key), json.dumps(_kubeconfig(token)))
    _write_secret(TOKENS, "".join(lines))
    run("openssl", "genrsa", "-out", PKI / "accounts.key", "2048")
    run("openssl", "rsa", "-in", PKI / "accounts.key", "-pubout", "-out", PKI / "accounts.pub")


def start(program: Path) -> None:
    """All four; returns when the API server is ready."""
    client, peer = layout.ETCD_URL, layout.ETCD_PEER_URL
    Daemon(ETCD).start(
        *("etcd", "--data-dir", ROOT / "etcd", "--unsafe-no-fsync"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer),
    )
    start_api_server(program)
    Daemon(CONTROLLERS).start(
        *(program, "kube-controller-manager", f"--kubeconfig={kubeconfig(CONTROLLERS)}"),
        *("--leader-elect=false", NO_PORT, "--use-service-account-credentials"),
        f"--root-ca-file={PKI}/apiserver.crt",
        f"--service-account-private-key-file={PKI}/accounts.key",
        f"--pvclaimbinder-sync-period={CLAIM_SYNC_S}s",
        *(f"--node-monitor-grace-period={NODE_SILENT_S}s", "--node-monitor-period=1s"),
    )
    Daemon(SCHEDULER).start(
        *(program, "kube-scheduler", f"--kubeconfig={kubeconfig(SCHEDULER)}"),
        *("--leader-elect=false", NO_PORT),
    )


def start_api_server(program: Path) -> None:
    """Start it; returns when it is ready."""
    Daemon(API).start(
        *(program, "kube-apiserver", f"--etcd-servers={layout.ETCD_URL}", f"--cert-dir={PKI}"),
        *(f"--bind-address={BRIDGE_ADDRESS}", f"--advertise-address={BRIDGE_ADDRESS}"),
        *(f"--secure-port={layout.API_PORT}", f"--token-auth-file={TOKENS}"),
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={layout.SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={PKI}/accounts.pub",
        f"--service-account-signing-key-file={PKI}/accounts.key",
        "--kubelet-preferred-address-types=InternalIP",
        *(f"--default-{why}-toleration-seconds={EVICT_S}" for why in ("not-ready", "unreachable")),
    )
    eventually("the API server is ready", _is_ready, READY_S)


def stop_api_server() -> None:
    """End it without warning. What it knew is in etcd."""
    Daemon(API).kill()


def stop() -> None:
    """End all four, those first that would complain about the others."""
    for name in (SCHEDULER, CONTROLLERS, API, ETCD):
        Daemon(name).kill()


def _is_ready() -> bool:
    Daemon(API).check()
    if not (PKI / "apiserver.crt").exists():
        return False
    try:
        return Api.of(ADMIN).text("/readyz") == "ok"
    except ApiError as error:
        raise ClusterError(str(error)) from None


def _kubeconfig(token: str) -> dict[str, object]:
    cluster = {"server": API_URL, "certificate-authority": str(PKI / "apiserver.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
