"""The process of one step: ``one_step.py NAME TITLE FILE WORK LOGS UNTIL UUID``.

Does: runs the module of that name, and writes its result whatever happens.
"""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from pathlib import Path

from gpu.report import Outcome, Result
from gpu.step import Step, StepFailed, StepRefused


def main() -> int:
    """Run the step; 1 if it did not pass."""
    name, title, file, work, logs, until_s, uuid = sys.argv[1:]
    folder = Path(work) / name
    folder.mkdir()
    step = Step(Result(name, title), Path(file), folder, Path(logs), float(until_s), uuid)
    step.write(Outcome.FAILED, "it was interrupted")
    try:
        import_module(f"gpu.{name}").run(step)
    except StepRefused as error:
        step.write(Outcome.REFUSED, str(error))
        return 0
    except StepFailed as error:
        step.write(Outcome.FAILED, str(error))
        return 1
    except Exception as error:
        traceback.print_exc()
        first = str(error).splitlines()[:1]
        step.write(Outcome.FAILED, f"{type(error).__name__}: {' '.join(first)}")
        return 1
    bad = [check.text for check in step.checks if not check.ok]
    step.write(
        Outcome.FAILED if bad else Outcome.PASSED, f"not so: {'; '.join(bad)}" if bad else ""
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
