"""Run ``reshape`` with a shorter wait for a release that cannot be verified, on the stand-in."""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.cli.main import main
from reshape_controller.cli.serve import up
from reshape_controller.core.limits import LOCAL

VERIFY_S = 4.0

if __name__ == "__main__":
    up.LOCAL = replace(LOCAL, verify_s=VERIFY_S)  # type: ignore[attr-defined]
    main()
