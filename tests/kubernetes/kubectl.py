"""The program kubectl: given by KUBECTL, or found on the machine.

Does: finds it. Never: downloads or builds one. State: none.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.kubernetes.running import ClusterError


def provide() -> Path:
    """The program, ready to run. Raises ClusterError with the remedy."""
    given = os.environ.get("KUBECTL") or shutil.which("kubectl")
    if given is None or not Path(given).is_file():
        what = f"KUBECTL={given} is not a file" if given else "no kubectl"
        raise ClusterError(f"{what}; install kubectl, or set KUBECTL to one")
    return Path(given).absolute()
