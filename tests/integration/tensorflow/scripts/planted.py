"""Runs a script under the hook with a bug planted in the hook: ``planted.py BUG script args...``.

Only for the test that shows that the trajectory test sees such a bug.
"""

import contextlib
import dataclasses
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RUN = Path(__file__).resolve().parents[4] / "sidecar" / "reshape_sidecar" / "hook" / "run.py"


def go_to_with(change: Callable[[Any], dict[str, int]]) -> None:
    """Change the saved data position before the hook takes training there."""
    position = importlib.import_module("_reshape_hook.hook.position")
    original = position.Position.go_to

    def go_to(self: object, saved: Any, *others: object) -> None:
        original(self, dataclasses.replace(saved, **change(saved)), *others)

    position.Position.go_to = go_to


def one_batch_skipped() -> None:
    go_to_with(lambda saved: {"draws": saved.draws + 1})


def one_batch_repeated() -> None:
    go_to_with(lambda saved: {"draws": saved.draws - 1})


def shuffle_reseeded() -> None:
    go_to_with(lambda saved: {"creations": saved.creations + 1})


def restore_without(lost: Callable[[str], bool]) -> None:
    """Do not put back the variables that ``lost`` names."""
    variables: Any = importlib.import_module("_reshape_hook.hook.variables")
    original = variables._assign

    def assign(variable: Any, how: object, values: object) -> None:
        if not lost(str(getattr(variable, "path", variable.name))):
            original(variable, how, values)

    variables._assign = assign


def optimizer_slots_lost() -> None:
    restore_without(lambda name: "momentum" in name)


def schedule_restarted() -> None:
    restore_without(lambda name: name.endswith("iteration"))


def metrics_reset() -> None:
    restore_without(lambda name: "total" in name or "count" in name)


def captured_seed_lost() -> None:
    """Do not put back the variables that functions of the data change."""
    data: Any = importlib.import_module("_reshape_hook.hook.data_variables")
    data.assign = lambda handles, new: None


def found_late() -> None:
    """The checkpoint is found when a script has long begun."""
    checkpoints: Any = importlib.import_module("_reshape_hook.checkpoints")
    original = checkpoints.newest

    def newest(folder: Path, process: tuple[int, int] | None = None) -> object:
        time.sleep(1)
        return original(folder, process)

    checkpoints.newest = newest


def warm_step() -> Any:
    return importlib.import_module("_reshape_hook.hook.warm_step")


@contextlib.contextmanager
def nothing(graph: object) -> Iterator[None]:
    yield


def variables_of_the_step_on_zeros_left() -> None:
    warm_step()._put_back = nothing


def step_on_a_real_batch() -> None:
    warm_step()._zeros = lambda model, distributed: iter(distributed)


def random_step_run() -> None:
    warm_step()._reasons = lambda operations: ()


def stale_trace_used() -> None:
    warm_step().attributes = lambda model: {}


def claimed_before_the_release() -> None:
    store: Any = importlib.import_module("_reshape_hook.hook.checkpoint").CheckpointStore
    store._look = store._find
    effects_not_held()  # they would stop the claim as well


def effects_not_held() -> None:
    effects: Any = importlib.import_module("_reshape_hook.hook.effects")
    effects.watch = lambda standby, imports: None


def main() -> None:
    bug = sys.argv.pop(1)
    spec = importlib.util.spec_from_file_location("run_under_test", RUN)
    assert spec is not None
    assert spec.loader is not None
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    run.load_hook(run.START)
    globals()[bug]()
    sys.exit(run.main())


if __name__ == "__main__":
    main()
