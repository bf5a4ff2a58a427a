"""State outside of the model: what the data change while they are read is restored bit by bit.

Each script is compared with itself, run straight and without the hook.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.wire import EXIT_SAVED
from tests.support.hook_bed import Job, plain

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "scripts"
SCRIPT, PLANTED = SCRIPTS / "restored.py", SCRIPTS / "planted.py"
CALLBACKS = SCRIPTS / "process_state.py"
CHAINS: dict[str, dict[str, tuple[int, ...]]] = {
    "layers": {"noise": (8, 5)},
    "pipelines": {
        "translation": (8,),
        "generators": (9,),
        "variable": (12,),
        "zipped": (9,),
        "cached": (8,),
        "two_fits": (14,),
    },
}
"""Cases of one script, and after which of their steps a process stops."""
GATED = ("layers",)


def steps_of_stopped(job: Job, chain: dict[str, tuple[int, ...]]) -> list[str]:
    """Run the cases to their end, with the stops; return the lines of all steps."""
    lines = []
    for case, stops in chain.items():
        for stop in stops:
            ended = job.run(STOP=f"{case}:{stop}")
            assert ended.code == EXIT_SAVED, ended.err
            assert ended.reports[-1].progress.trajectory == "exact"
            lines += ended.lines("STEP")
    last = job.run()
    assert last.code == 0, last.err
    return lines + last.lines("STEP")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.gate] if name in GATED else []) for name in CHAINS],
)
def test_what_functions_of_the_data_change_is_restored(tmp_path: Path, name: str) -> None:
    chain = CHAINS[name]
    wanted = plain(SCRIPT, *chain).lines("STEP")
    assert len(wanted) >= 18
    assert steps_of_stopped(Job(tmp_path / "job", SCRIPT, tuple(chain)), chain) == wanted


@pytest.mark.gate
def test_profilers_and_threads_of_callbacks_begin_again(tmp_path: Path) -> None:
    chain: dict[str, tuple[int, ...]] = {"tensorboard": (8,), "profiled": (7,), "threaded": (7,)}
    wanted = plain(CALLBACKS, *chain)
    assert wanted.code == 0, wanted.err
    found = steps_of_stopped(Job(tmp_path / "job", CALLBACKS, tuple(chain)), chain)
    assert found == wanted.lines("STEP")


def test_a_seed_that_is_not_restored_gives_other_losses(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", SCRIPT, ("noise",))
    job.launcher = (str(PLANTED), "captured_seed_lost")
    found = steps_of_stopped(job, {"noise": (8,)})
    wanted = plain(SCRIPT, "noise").lines("STEP")
    assert found[:8] == wanted[:8]
    assert all(one != other for one, other in zip(found[8:], wanted[8:], strict=True))
