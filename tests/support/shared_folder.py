"""A folder that a test and its job share: a ``Path``, or one behind a claim elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class SharedFolder(Protocol):
    """As much of ``pathlib.Path`` as tests need."""

    @property
    def name(self) -> str: ...

    def __truediv__(self, name: str, /) -> SharedFolder: ...

    def exists(self) -> bool: ...

    def iterdir(self) -> Iterator[SharedFolder]: ...

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None: ...

    def read_text(self) -> str: ...

    def write_text(self, text: str, /) -> int: ...
