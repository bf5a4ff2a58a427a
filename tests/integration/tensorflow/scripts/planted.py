"""Runs a script under the hook with a bug planted in the hook: ``planted.py BUG script args...``.

Only for the test that shows that the trajectory test sees such a bug.
"""

import dataclasses
import importlib
import importlib.util
import sys
import time
from pathlib import Path

RUN = Path(__file__).resolve().parents[4] / "sidecar" / "reshape_sidecar" / "hook" / "run.py"


def go_to_with(change):
    """Change the saved data position before the hook takes training there."""
    position = importlib.import_module("_reshape_hook.hook.position")
    original = position.Position.go_to

    def go_to(self, saved, *others):
        original(self, dataclasses.replace(saved, **change(saved)), *others)

    position.Position.go_to = go_to


def one_batch_skipped():
    go_to_with(lambda saved: {"draws": saved.draws + 1})


def one_batch_repeated():
    go_to_with(lambda saved: {"draws": saved.draws - 1})


def shuffle_reseeded():
    go_to_with(lambda saved: {"creations": saved.creations + 1})


def restore_without(lost):
    """Do not put back the variables that ``lost`` names."""
    variables = importlib.import_module("_reshape_hook.hook.variables")
    original = variables._assign

    def assign(variable, how, values):
        if not lost(str(getattr(variable, "path", variable.name))):
            original(variable, how, values)

    variables._assign = assign


def optimizer_slots_lost():
    restore_without(lambda name: "momentum" in name)


def schedule_restarted():
    restore_without(lambda name: name.endswith("iteration"))


def metrics_reset():
    restore_without(lambda name: "total" in name or "count" in name)


def found_late():
    """The checkpoint is found when a script has long begun."""
    checkpoints = importlib.import_module("_reshape_hook.checkpoints")
    original = checkpoints.newest

    def newest(folder):
        time.sleep(1)
        return original(folder)

    checkpoints.newest = newest


def main():
    bug = sys.argv.pop(1)
    spec = importlib.util.spec_from_file_location("run_under_test", RUN)
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    run._load_hook()
    globals()[bug]()
    sys.exit(run.main())


if __name__ == "__main__":
    main()
