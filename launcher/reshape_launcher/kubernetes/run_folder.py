"""What one run of the playbook works on: a folder with files, written here and read here.

Does: writes objects, target and, for a build, a Containerfile with the job's folder beside it.
Never: hands anything over in another way, or leaves the folder behind: it holds a token. State: the
folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from reshape_launcher.kubernetes.applying import Objects, apply
from reshape_launcher.kubernetes.cluster import ApiTrouble
from reshape_launcher.kubernetes.images import CODE_IN_IMAGE, Build

OBJECTS_FILE = "objects.json"
TARGET_FILE = "target.json"
CONTAINERFILE = "Containerfile"
CONTEXT = "context"
IMAGE_FILE = "image"
FILE_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Target:
    """Where the objects go. ``kubeconfig`` None: the service account of this pod."""

    kubeconfig: str | None
    namespace: str


@contextmanager
def run_folder(
    root: Path, ident: str, objects: Objects, target: Target, build: Build | None
) -> Iterator[Path]:
    """The folder of the run ``ident``, gone afterwards. Raises OSError."""
    folder = root / f"run-{ident}"
    folder.mkdir(mode=0o700, parents=True)
    try:
        _write(folder / OBJECTS_FILE, json.dumps(asdict(objects)))
        _write(folder / TARGET_FILE, json.dumps(asdict(target)))
        if build is not None:
            # The link keeps the folder's name out of every variable and command line.
            (folder / CONTEXT).symlink_to(build.code, target_is_directory=True)
            _write(folder / IMAGE_FILE, build.image)
            text = f"FROM {build.base}\nCOPY --chmod=755 . {CODE_IN_IMAGE}\n"
            _write(folder / CONTAINERFILE, text)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def apply_from(folder: Path) -> None:
    """Bring what is in the folder into the cluster. Raises ApiTrouble, OSError."""
    from reshape_launcher.kubernetes.client import CannotConnect, connect

    objects = Objects(**json.loads((folder / OBJECTS_FILE).read_text(encoding="utf-8")))
    target = Target(**json.loads((folder / TARGET_FILE).read_text(encoding="utf-8")))
    kubeconfig = None if target.kubeconfig is None else Path(target.kubeconfig)
    try:
        cluster = connect(kubeconfig, target.namespace)
    except CannotConnect as error:
        raise ApiTrouble("the cluster cannot be used", 0, str(error)) from None
    try:
        apply(cluster, objects)
    finally:
        cluster.close()


def _write(path: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(path, flags, FILE_MODE), "w", encoding="utf-8") as file:
        file.write(text)
