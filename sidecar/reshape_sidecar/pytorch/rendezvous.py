"""The socket at which the ranks of a start meet: bound before the start, so its port is theirs.

Does: gives it to the first store that rank 0 opens on its port, however the script opens one.
Never: imports PyTorch.
"""

from __future__ import annotations

import os
import socket
from types import ModuleType
from typing import Any

from reshape_sidecar.contract import ENV_RENDEZVOUS_FD
from reshape_sidecar.hook.imports import ImportWatch

STORE_MODULE = "torch.distributed.rendezvous"
OPTION = "master_listen_fd"
POSITIONAL = ("host_name", "port", "world_size", "is_master")
"""First parameters of a store."""


def take(watch: ImportWatch) -> None:
    """Give the socket of the environment, if there is one, to PyTorch's store once it is imported.

    No program that this process starts gets the socket. Raises OSError.
    """
    given = os.environ.pop(ENV_RENDEZVOUS_FD, None)
    if given is None:
        return
    descriptor = int(given)
    os.set_inheritable(descriptor, False)
    watch.after(STORE_MODULE, lambda module: _give(module, descriptor))


def _give(module: ModuleType, descriptor: int) -> None:
    store: Any = module.TCPStore
    open_store = store.__init__
    if OPTION not in (open_store.__doc__ or ""):
        os.close(descriptor)  # an old PyTorch opens its own on this port, which is free again
        return
    port = _port(descriptor)

    def open_on_socket(self: Any, *args: Any, **options: Any) -> None:
        asked = dict(zip(POSITIONAL, args, strict=False)) | options
        if asked.get("is_master") and asked.get("port") == port and OPTION not in asked:
            store.__init__ = open_store
            options[OPTION] = descriptor
        open_store(self, *args, **options)

    store.__init__ = open_on_socket


def _port(descriptor: int) -> int:
    listener = socket.socket(fileno=descriptor)
    try:
        return int(listener.getsockname()[1])
    finally:
        listener.detach()
