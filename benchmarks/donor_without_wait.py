"""The daemon whose donors do not wait for a newcomer's imports (``early_initialisation.py``)."""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.cli.serve import up
from reshape_controller.core.limits import LOCAL

up.LOCAL = replace(LOCAL, import_rules=0)  # type: ignore[attr-defined]

from reshape_controller.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
