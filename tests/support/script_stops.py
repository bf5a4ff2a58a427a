"""Stops of a real PyTorch script at random times: a chain of starts, each stopped at a moment.

Does: starts an unmodified script on one or two simulated GPUs, asks it to stop as init does, and
looks what is left: the exit code, the time that it took, steps that are lost, repeated or left out.
The next start goes on from its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reshape_sidecar import checkpoints
from reshape_sidecar.ranks.page import Page
from reshape_sidecar.wire import EXIT_SAVED
from tests.support.daemon_bed import ROOT
from tests.support.rank_stops import ENDED, Moment
from tests.support.ranks_bed import SCRIPTS, START_S, Forks, ScriptBed

HANG_S = 120.0
"""A stop that takes longer is a hang."""
STEP_S = 0.02
ANYWHERE_S = 1.0
"""A stop during the start comes within this time; one anywhere so long after the first step."""
WITHIN_S = 0.05
"""The other stops come within this time after their moment has begun."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a script trains with, and how it shows a step."""

    name: str
    modules: tuple[str, ...]
    """Imported before the starts are forked."""
    command: tuple[str, ...]
    step: re.Pattern[str]
    """A line of a step; its last group counts from 1, or with an epoch before it from 0."""
    moments: tuple[Moment, ...] = tuple(Moment)
    evaluates_every: int = 1
    saves_every: int = 1
    batches: int = 0
    """Of an epoch, where a line has one."""


FORMS = {
    form.name: form
    for form in (
        Form(
            "hf",
            ("transformers.trainer", "transformers.models.bert.modeling_bert"),
            (
                *(str(SCRIPTS / "hf_train.py"), "--output_dir", "out", "--use_cpu"),
                *("--report_to", "none", "--disable_tqdm", "true", "--logging_steps", "1"),
                *("--max_steps", "1000000", "--per_device_train_batch_size", "4"),
                *("--eval_strategy", "steps", "--eval_steps", "8", "--save_steps", "12"),
                *("--save_total_limit", "1"),
            ),
            re.compile(r"^step (\d+) loss ", re.M),
            evaluates_every=8,
            saves_every=12,
        ),
        Form(
            "lightning",
            ("lightning.pytorch", "torch.utils.data", "torch.distributed.optim"),
            (
                *(str(SCRIPTS / "lightning_fit.py"), "--epochs", "100000", "--accumulate", "1"),
                *("--check", "8", "--workers", "0"),
            ),
            re.compile(r"^batch (\d+) (\d+) ", re.M),
            evaluates_every=8,
            saves_every=8,  # after its evaluation
            batches=24,
        ),
        Form(
            "plain",
            ("torch.distributed.optim", "torch.utils.data"),
            (str(ROOT / "examples" / "pytorch" / "train.py"), "--epochs", "100000"),
            re.compile(r"^step (\d+) loss ", re.M),
            moments=(Moment.START, Moment.FIRST_STEP, Moment.ANY),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class ScriptStop:
    """One stop of a script."""

    number: int
    form: str
    moment: str
    gpus: int
    code: int | None
    """None: it hung, and was killed."""
    took_s: float
    """From the request to the end of the last process."""
    made: int
    """Steps that the start made."""
    lost: int
    """Steps that were made and are not in the newest checkpoint; negative: saved and not made."""
    repeated: int
    """Steps that were made again, or left out."""
    load: float

    @property
    def is_good(self) -> bool:
        """Whether it ended, as it should, and each step was made once and is saved."""
        return self.code in ENDED and self.lost == self.repeated == 0


class ScriptStops:
    """The stops of one form in one folder. ``printed``: by the newest start."""

    def __init__(self, forks: Forks, folder: Path, form: Form) -> None:
        self._forks, self._form = forks, form
        script, *arguments = form.command
        self._bed = ScriptBed(forks, folder, script, *arguments, step_s=STEP_S)
        self.printed = ""

    def stops(self, seed: int, numbers: range) -> Iterator[ScriptStop]:
        """Yield the stops of these numbers, which choose their moments."""
        for number in numbers:
            dice = random.Random(f"{seed} {number}")
            moment = self._form.moments[number % len(self._form.moments)]
            yield self._stop(number, moment, dice.choice((1, 2)), dice)

    def _stop(self, number: int, moment: Moment, gpus: int, dice: random.Random) -> ScriptStop:
        saved = self._saved()
        self._bed.log.write_text("")
        pid = self._bed.begins(gpus)
        self._wait(pid, gpus, moment, dice)
        asked_s = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        code = self._code(pid)
        took_s = time.monotonic() - asked_s
        self.printed = self._bed.printed
        made = self._steps()
        wanted = range(saved + 1, saved + 1 + len(made))
        return ScriptStop(
            number=number,
            form=self._form.name,
            moment=moment.name.lower(),
            gpus=gpus,
            code=code,
            took_s=round(took_s, 3),
            made=len(made),
            lost=saved + len(made) - self._saved(),
            repeated=sum(a != b for a, b in zip(made, wanted, strict=True)),
            load=round(os.getloadavg()[0], 1),
        )

    def _code(self, pid: int) -> int | None:
        code = self._forks.code(HANG_S)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            self._forks.code()
        return code

    def _saved(self) -> int:
        newest = checkpoints.newest(self._bed.folder / "checkpoints")
        return 0 if newest is None else newest.manifest.step

    def _wait(self, pid: int, gpus: int, moment: Moment, dice: random.Random) -> None:
        form = self._form
        if moment is Moment.START:
            time.sleep(dice.uniform(0.0, ANYWHERE_S))
        elif moment is Moment.FIRST_STEP:
            self._until(pid, lambda: _has_begun(pid, gpus))
            time.sleep(dice.uniform(0.0, STEP_S))
        elif moment is Moment.ANY:
            self._until(pid, lambda: bool(self._steps()))
            time.sleep(dice.uniform(0.0, ANYWHERE_S))
        else:
            is_save = moment is Moment.SAVE
            every = form.saves_every if is_save else form.evaluates_every
            self._until(pid, lambda: any(step % every == 0 for step in self._steps()))
            time.sleep(dice.uniform(0.0, WITHIN_S))

    def _until(self, pid: int, is_true: Callable[[], bool]) -> None:
        give_up_s = time.monotonic() + START_S
        while not is_true():
            assert _lives(pid), self._bed.printed
            assert time.monotonic() < give_up_s, self._bed.printed
            time.sleep(0.002)

    def _steps(self) -> list[int]:
        found = self._form.step.findall(self._bed.printed)
        if self._form.batches:
            return [int(epoch) * self._form.batches + int(batch) + 1 for epoch, batch in found]
        return [int(step) for step in found]


def saved(stops: list[ScriptStop]) -> list[ScriptStop]:
    """Return the stops that came after training had begun."""
    return [stop for stop in stops if stop.code == EXIT_SAVED]


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def _has_begun(pid: int, ranks: int) -> bool:
    """Return whether each rank of the start with this parent makes a step."""
    with contextlib.suppress(OSError, ValueError):  # a page that has no length yet
        for path in Path(f"/proc/{pid}/fd").iterdir():
            if path.readlink().name.startswith("memfd:reshape-ranks"):
                page = Page(path, ranks)
                return all(page.begun(rank) for rank in range(ranks))
    return False
