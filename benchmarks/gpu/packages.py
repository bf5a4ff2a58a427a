"""The packages that the daemon needs, from wheels in a folder that goes along to the machine.

    python3 benchmarks/gpu/packages.py [FOLDER]      # `make gpu-bundle`: fills gpu-bundle/

Does: downloads what requirements-controller.lock pins, without numpy and scipy (the daemon starts
without them; PyTorch brings numpy), for Linux x86-64 and each Python of PYTHONS; unpacks on the
machine those that fit, without pip. Never: installs anything, or uses the network on the machine.
State: the folder.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "gpu-bundle"
LOCK = ROOT / "requirements-controller.lock"
PYTHONS = ("3.11", "3.12", "3.13")
LEFT_OUT = ("numpy", "scipy")
PLATFORMS = ("manylinux1", "manylinux2014", *(f"manylinux_2_{n}" for n in (5, 12, 17, 24, 27, 28)))
BYTES_MAX = 60 * 10**6
MODULES = (
    *("prometheus_client", "pydantic", "pydantic_core", "pymongo", "pynvml", "rich", "structlog"),
    *("tornado", "typer", "yaml"),
)
"""What the daemon imports of other people's packages."""


def requirements(lock: str) -> str:
    """Return the lock without the packages that are left out."""
    kept: list[str] = []
    keeps = True
    for line in lock.splitlines():
        if line and not line[0].isspace() and not line.startswith("#"):
            keeps = line.partition("==")[0] not in LEFT_OUT
        if keeps:
            kept.append(line)
    return "\n".join(kept) + "\n"


def download(folder: Path) -> int:
    """Fill ``folder`` with wheels; bytes of all. Raises CalledProcessError, SystemExit."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".gpu-bundle-") as place:
        wheels, pins = Path(place) / "wheels", Path(place) / "requirements.txt"
        pins.write_text(requirements(LOCK.read_text()))
        for python in PYTHONS:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--disable-pip-version-check", "--require-hashes"]
            command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
            for platform in PLATFORMS:
                command += ["--platform", f"{platform}_x86_64"]
            subprocess.run([*command, "--dest", wheels, "-r", pins], check=True)
        size = sum(path.stat().st_size for path in wheels.iterdir())
        if size > BYTES_MAX:
            raise SystemExit(f"the wheels have {size} bytes, more than {BYTES_MAX}")
        shutil.rmtree(folder, ignore_errors=True)
        wheels.rename(folder)
    return size


def fits(name: str, minor: int = sys.version_info.minor) -> bool:
    """Whether the wheel of this file name works on Python 3.``minor`` of a Linux x86-64."""
    python, abi, platform = name.removesuffix(".whl").split("-")[-3:]
    if abi == "none" and platform == "any":
        return "py3" in python.split(".")
    if not platform.endswith("x86_64") or os.uname().machine != "x86_64":
        return False
    since = int(python.removeprefix("cp3"))
    return since == minor if abi != "abi3" else since <= minor


def covers(folder: Path) -> bool:
    """Whether ``folder`` has each of its packages for this Python."""
    wheels = [path.name for path in folder.glob("*.whl")]
    fitting = {name.partition("-")[0] for name in wheels if fits(name)}
    return bool(wheels) and fitting == {name.partition("-")[0] for name in wheels}


def unpack(folder: Path, into: Path) -> None:
    """Unpack the wheels of ``folder`` that fit this Python."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for wheel in sorted(folder.glob("*.whl")):
        if fits(wheel.name):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(into, _of_library(archive))


def _of_library(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the members that belong on the import path; scripts do not."""
    for name in archive.namelist():
        if ".data/" not in name.partition("/")[0] + "/":
            yield name


def environment(folder: Path, first: list[Path]) -> Path:
    """Make a virtual environment that sees ``first``, then all that this Python sees; its python.

    The SideCar's agent runs isolated, so a variable would not lead it to the packages.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    libraries = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    libraries.mkdir(parents=True, exist_ok=True)
    others = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *site.getsitepackages()]
    others += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    # Their own .pth files count too.
    lines = [f"import site; site.addsitedir({path!r})" for path in others if os.path.isdir(path)]
    (libraries / "run.pth").write_text("\n".join([*map(str, first), *lines]) + "\n")
    return folder / "bin" / "python"


def missing() -> list[str]:
    """Return the modules that this Python cannot import."""
    return [name for name in MODULES if importlib.util.find_spec(name) is None]


def main() -> int:
    """Fill the folder and say how large it is."""
    folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else FOLDER
    size = download(folder)
    count = len(list(folder.glob("*.whl")))
    print(
        f"{folder}: {count} wheels, {size / 1e6:.1f} MB, for Python {', '.join(PYTHONS)} on Linux "
        "x86-64. Copy it beside the checkout on the GPU machine, and run there: make gpu"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
