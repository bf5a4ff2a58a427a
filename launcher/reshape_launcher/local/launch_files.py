"""The files of a launch beside a running attempt: are its spec and its token whole?

Does: reads them once, and again only after they changed. State: what it read, by path.
"""

from __future__ import annotations

from pathlib import Path

from reshape_sidecar import foreign, state_files
from reshape_sidecar.agent.spec import SPEC_FILE, TOKEN_FILE, AttemptSpec, Folder
from reshape_sidecar.state_files import Torn, Version


class LaunchFiles:
    """One per launcher."""

    def __init__(self) -> None:
        self._whole: dict[Path, Version] = {}

    def torn(self, folder: Folder) -> str:
        """Return why a file of the launch has to be written again; empty if all are whole, or if
        they cannot be read now."""
        try:
            return self._torn(folder)
        except OSError:
            return ""

    def forget(self, folder: Folder) -> None:
        """Drop what was read of an attempt that is over."""
        for name in (SPEC_FILE, TOKEN_FILE):
            self._whole.pop(folder.path / name, None)

    def _torn(self, folder: Folder) -> str:
        for path in (folder.path / SPEC_FILE, folder.path / TOKEN_FILE):
            version = state_files.version(path)
            if version is not None and self._whole.get(path) == version:
                continue
            why = _why(path)
            if why:
                self._whole.pop(path, None)
                return why
            if version is not None:
                self._whole[path] = version
        return ""


def _why(path: Path) -> str:
    if path.name == SPEC_FILE:
        spec = state_files.read(AttemptSpec, path)
        return str(spec) if isinstance(spec, Torn) else f"{path} is missing" if spec is None else ""
    try:
        text = foreign.read(path, foreign.SECRET_BYTES_MAX)
    except FileNotFoundError:
        return f"{path} is missing"
    except (foreign.NotRegular, foreign.TooLong) as error:
        return f"{path} {error.strerror}"
    # The launcher ends a token with a line end; without it the token may be cut.
    return "" if text.endswith(b"\n") else f"{path} is torn: it has no line end"
