"""The SideCar as one archive: our package and pure-Python Tornado, the same bytes each time.

Does: packs what is installed beside the controller. Never: adds a compiled file, a test, or
anything that the SideCar does not import. State: none.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

from reshape_launcher.kubernetes import place_sidecar

PACKAGES = ("reshape_sidecar", "tornado")
OPTIONAL = ("pynvml",)
_LEFT_OUT = ("test", "platform/windows.py")
_STAMP = (1980, 1, 1, 0, 0, 0)
NAME_CHARS = 12
BYTES_MAX = 700_000
"""As text it must fit into a ConfigMap (1 MiB)."""


@dataclass(frozen=True, slots=True)
class Archive:
    """``data`` is a Python zip application that unpacks itself (``place_sidecar``)."""

    data: bytes

    @property
    def name(self) -> str:
        """Name of the ConfigMap that holds exactly these bytes."""
        return f"reshape-sidecar-{hashlib.sha256(self.data).hexdigest()[:NAME_CHARS]}"


def build() -> Archive:
    """The archive of the installed SideCar."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as into:
        _add(into, "__main__.py", Path(place_sidecar.__file__).read_bytes())
        for package in (*PACKAGES, *OPTIONAL):
            for name, path in _files(package):
                _add(into, name, path.read_bytes())
    data = packed.getvalue()
    if len(data) > BYTES_MAX:
        raise ValueError(f"the SideCar's archive has {len(data)} bytes; more than {BYTES_MAX}")
    return Archive(data)


def _files(package: str) -> list[tuple[str, Path]]:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        if package in OPTIONAL:
            return []
        raise ValueError(f"{package} is not installed: pip install tornado")
    origin = Path(found.origin)
    if origin.name != "__init__.py":
        return [(origin.name, origin)]
    files = []
    for path in sorted(origin.parent.rglob("*.py")):
        name = path.relative_to(origin.parent).as_posix()
        if not name.startswith(_LEFT_OUT):
            files.append((f"{package}/{name}", path))
    return files


def _add(into: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _STAMP)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    into.writestr(entry, data)
