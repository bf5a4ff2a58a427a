"""The base image of pods: Debian with Python, made once by debootstrap and buildah.

Does: gives it as an archive that containerd imports. Never: puts TensorFlow into it: 2 GB for each
node, and half a minute each; pods mount the packages read only. State: the cache folder.

In the image ``PYTHON`` is a virtual environment without packages; they belong in ``PACKAGES``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.kubernetes import layout
from tests.kubernetes.running import run

BASE = "localhost/reshape-base:1"
SUITE = "bookworm"
PYTHON_VERSION = "3.11"
PYTHON = "/venv/bin/python"
PACKAGES = f"/venv/lib/python{PYTHON_VERSION}/site-packages"
USER = 1000
MAKE_S = 1800.0
RECIPE = 1
"""Raise it when the image changes: the old archive is then not used any more."""


def base() -> Path:
    """The base image as an archive for containerd, made if it is not there."""
    archive = layout.cache() / f"base-{SUITE}-{RECIPE}.tar"
    if not archive.exists():
        print(f"making the base image {archive} (a minute, once)", flush=True)
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix="image-") as folder:
            made = _make_base(Path(folder))
            made.rename(archive)
    return archive


def _make_base(folder: Path) -> Path:
    root = folder / "root"
    include = f"--include=python{PYTHON_VERSION},ca-certificates"
    run("debootstrap", "--variant=minbase", include, SUITE, root, timeout_s=MAKE_S)
    for rest in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
        shutil.rmtree(root / rest, ignore_errors=True)
    (root / PACKAGES[1:]).mkdir(parents=True)
    (root / "venv/pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON_VERSION}\n"
    )
    (root / "venv/bin").mkdir()
    for name in ("python", "python3", f"python{PYTHON_VERSION}"):
        (root / "venv/bin" / name).symlink_to(f"/usr/bin/python{PYTHON_VERSION}")
    return _as_archive(root, folder)


def with_packages(packages: Path, name: str, folder: Path) -> Path:
    """An image called ``name``, the base with these packages in it, as an archive in ``folder``."""
    buildah = _buildah(folder)
    container = buildah("from", "--quiet", f"oci-archive:{base()}").strip()
    buildah("add", "--quiet", container, packages, PACKAGES)
    return _pushed(buildah, container, name, folder)


def _as_archive(root: Path, folder: Path) -> Path:
    """An image of ``root``. It is also the sandbox of pods: its program does nothing for ever."""
    buildah = _buildah(folder)
    container = buildah("from", "scratch").strip()
    buildah("add", "--quiet", container, root, "/")
    path = "PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin"
    user = f"{USER}:{USER}"
    entry = '["/bin/sleep", "infinity"]'
    buildah("config", "--env", path, "--user", user, "--entrypoint", entry, container)
    return _pushed(buildah, container, BASE, folder)


def _buildah(folder: Path) -> Callable[..., str]:
    """The program with a store of its own in ``folder``."""
    store = ("--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "vfs")
    return partial(run, "buildah", *store, timeout_s=MAKE_S, BUILDAH_ISOLATION="chroot")


def _pushed(buildah: Callable[..., str], container: str, name: str, folder: Path) -> Path:
    archive = folder / "image.tar"
    buildah("commit", "--quiet", container, name)
    buildah("push", "--quiet", name, f"oci-archive:{archive}:{name}")
    return archive
