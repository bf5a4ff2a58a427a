"""The Python client of Reshape: ``from reshape_gpu import Client``. Registers its tags.

Does: what a command does, by the same settings, logins and home (docs/python.md). A name is
imported when it is used, because the command line and the daemon import parts of this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from reshape_gpu.tags import TAGS
from reshape_sidecar import codec

if TYPE_CHECKING:
    from reshape_gpu.async_client import AsyncClient
    from reshape_gpu.client import Client
    from reshape_gpu.errors import (
        BadAnswer,
        ClientError,
        NotFound,
        PackageMissing,
        RecordRejected,
        Refused,
        SettingError,
        TooManyRequests,
        Unreachable,
        WaitTimeout,
    )
    from reshape_gpu.tables import to_dataframe

codec.register(__name__, TAGS)

__all__ = [
    "AsyncClient",
    "BadAnswer",
    "Client",
    "ClientError",
    "NotFound",
    "PackageMissing",
    "RecordRejected",
    "Refused",
    "SettingError",
    "TooManyRequests",
    "Unreachable",
    "WaitTimeout",
    "to_dataframe",
]
_MODULES = {"AsyncClient": "async_client", "Client": "client", "to_dataframe": "tables"}
"""The module of a name; other names are errors."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
    return getattr(module, name)
