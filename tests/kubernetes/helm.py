"""The program helm: given by HELM, found on the machine, or built once from source.

Does: finds it, or has Go build one version and keeps that in the cache folder. Never: downloads a
binary; Go fetches sources through its own module proxy and checks them. State: the cache folder.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.kubernetes import layout
from tests.kubernetes.running import ClusterError, run

VERSION = "v3.19.0"
MODULE = f"helm.sh/helm/v3/cmd/helm@{VERSION}"
BUILD_S = 3600.0
"""It took four minutes of CPU, and 17 minutes on two cores that much else was using."""


def provide() -> Path:
    """The program, ready to run. Raises ClusterError with the remedy."""
    given = os.environ.get("HELM")
    if given:
        if not Path(given).is_file():
            raise ClusterError(f"HELM={given} is not a file; correct it, or unset it")
        return Path(given).absolute()
    kept, found = layout.cache() / f"helm-{VERSION}", shutil.which("helm")
    if kept.exists() or found:
        return kept if kept.exists() else Path(found or "")
    if shutil.which("go") is None:
        raise ClusterError(
            "no helm, so deploy/chart cannot be checked; install helm 3, or set HELM to one, or "
            f"install Go to build {VERSION} (some minutes, once)"
        )
    print(f"building helm {VERSION} (some minutes, once)", flush=True)
    folder = layout.cache() / f"helm-build.{os.getpid()}"
    try:
        run("go", "install", "-trimpath", MODULE, timeout_s=BUILD_S, GOBIN=str(folder))
        (folder / "helm").rename(kept)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return kept
