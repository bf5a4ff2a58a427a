"""The SideCar as one archive: our package and pure-Python Tornado, the same bytes each time.

Does: pack the packages that are installed beside the controller, without tests and compiled files.
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
_EXCLUDED = (
    *("test", "platform/windows.py", "auth.py", "autoreload.py", "curl_httpclient.py"),
    *("testing.py", "websocket.py", "wsgi.py"),
)
"""Beginnings of files of Tornado that the SideCar never imports."""
_DATE_TIME = (1980, 1, 1, 0, 0, 0)
NAME_CHARS = 12
BYTES_MAX = 750_000
"""Limit that lets the archive, encoded as text, fit into a ConfigMap (1 MiB)."""


@dataclass(frozen=True, slots=True)
class Archive:
    """``data`` is a Python zip application that unpacks itself (``place_sidecar``)."""

    data: bytes

    @property
    def name(self) -> str:
        """Return the name of the ConfigMap that holds exactly these bytes."""
        return f"reshape-sidecar-{hashlib.sha256(self.data).hexdigest()[:NAME_CHARS]}"


def build() -> Archive:
    """Build the archive of the installed SideCar. Raises ValueError."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, "__main__.py", Path(place_sidecar.__file__).read_bytes())
        for package in (*PACKAGES, *OPTIONAL):
            for name, path in _files(package):
                _add(archive, name, path.read_bytes())
    data = buffer.getvalue()
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
        if not name.startswith(_EXCLUDED):
            files.append((f"{package}/{name}", path))
    return files


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _DATE_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)
