"""The program that holds the Kubernetes servers: given by KUBENODE, or built once from source.

Does: finds, unpacks or builds it, and keeps the result in the cache folder. Never: downloads a
binary; Go fetches sources through its own module proxy, checked by ``kubenode/go.sum``. State: the
cache folder.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.kubernetes import layout
from tests.kubernetes.running import ClusterError, run

SOURCES = Path(__file__).parent / "kubenode"
GO_LEAST = (1, 24)
NAME = "kubenode"
"""The file's name: a program that goes by another may take that for the server's name."""
BUILD_S = 5400.0
"""The build is 13 minutes of a core's time; niced beside a load of 10 to 40 it took 65."""


def fault() -> str | None:
    """Why there is no server program and none can be built, with the remedy; None: all is well."""
    given = os.environ.get("KUBENODE")
    if given:
        if Path(given).is_file():
            return None
        return f"KUBENODE={given} is not a file; correct it, or unset it to build from source"
    if _built().exists() or (_go_version() or (0,)) >= GO_LEAST:
        return None
    least = ".".join(map(str, GO_LEAST))
    return (
        f"no Kubernetes server program; set KUBENODE to one, or install Go {least} or later to "
        "build it (10 to 15 minutes, once), or set KUBECONFIG to use a cluster that exists"
    )


def provide() -> Path:
    """The program, ready to run. Raises ClusterError."""
    given = os.environ.get("KUBENODE")
    if given and not given.endswith(".xz"):
        return Path(given).absolute()
    return _unpacked(Path(given)) if given else _build()


def _unpacked(packed: Path) -> Path:
    stat = packed.stat()
    stamp = f"{packed.absolute()} {stat.st_size} {stat.st_mtime_ns}"
    folder = layout.cache() / f"kubenode-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    target = folder / NAME
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        try:
            with lzma.open(packed) as source, partial.open("wb") as file:
                shutil.copyfileobj(source, file)
        except (lzma.LZMAError, EOFError) as error:
            partial.unlink(missing_ok=True)
            raise ClusterError(f"KUBENODE={packed} cannot be unpacked: {error}") from None
        partial.chmod(0o755)
        partial.rename(target)
    return target


def _built() -> Path:
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((SOURCES / name).read_bytes())
    return layout.cache() / f"kubenode-source-{digest.hexdigest()[:16]}" / NAME


def _build() -> Path:
    target = _built()
    if not target.exists():
        print(f"building the Kubernetes servers into {target} (10 to 15 minutes, once)", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        flags = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
        run(
            *("go", "-C", SOURCES, "build", *flags, "-tags=providerless", "-o", partial, "."),
            timeout_s=BUILD_S,
            CGO_ENABLED="0",
        )
        partial.rename(target)
    return target


def _go_version() -> tuple[int, ...] | None:
    if shutil.which("go") is None:
        return None
    done = subprocess.run(
        ["go", "env", "GOVERSION"], capture_output=True, text=True, check=False, timeout=60
    )
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None
