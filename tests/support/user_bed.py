"""Jobs of other users than the launcher's, for tests as root: a place that all of them may enter.

Does: starts each init in mounts where every user may run Python (``open_ground``). A test of any
other user than root is skipped, and says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reshape_launcher.local import users
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import codec
from tests.support import open_ground
from tests.support.sidecar_bed import Bed, bed

ADA, BOB = 64_001, 64_002
"""Users without an account."""
OPEN_GROUND = (sys.executable, open_ground.__file__)
_LAUNCH = """
import asyncio, sys
from pathlib import Path
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import codec
root, home, spec, token = sys.argv[1:]
launcher = LocalLauncher(Path(root), home=Path(home) if home else None)
asyncio.run(launcher.launch(codec.loads(LaunchSpec, spec), token))
"""


@contextmanager
def place() -> Iterator[Path]:
    """Yield an empty folder that every user may enter; skip the test for another than root."""
    problem = users.problem()
    if problem:
        pytest.skip(f"no job can have a user of its own here: {problem}")
    folder = Path(tempfile.mkdtemp(prefix="reshape-users-"))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


def give(path: Path, uid: int) -> Path:
    """Make a folder a user's alone."""
    path.mkdir(mode=0o700, exist_ok=True)
    os.chown(path, uid, users.NOBODY)
    return path


class Elsewhere(LocalLauncher):
    """A launcher whose inits run where every user may run Python."""

    def __init__(self, root: Path, home: Path | None = None) -> None:
        super().__init__(root, home=home)
        self._home_text = str(home) if home is not None else ""

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Start the container from a process of its own."""
        words = (str(self._root), self._home_text, codec.dumps(spec), token)
        command = (*OPEN_GROUND, sys.executable, "-c", _LAUNCH, *words)
        subprocess.run(command, check=True, timeout=60)


class UserBed(Bed):
    """A job of Ada's, whose code and checkpoints are hers."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.launcher = Elsewhere(self.root)
        for folder in (path / "code", path / "checkpoints"):
            give(folder, ADA)

    def spec(self, program: str, *words: str, **fields: object) -> LaunchSpec:
        made = super().spec(program, *words, **{"uid": ADA, **fields})
        os.chown(self.path / "code" / "train.py", ADA, users.NOBODY)
        return made


@contextmanager
def user_bed() -> Iterator[UserBed]:
    """Yield a bed with a job of another user, and check afterwards that no process is left."""
    with place() as folder, bed(folder, UserBed) as made:
        assert isinstance(made, UserBed)
        yield made
