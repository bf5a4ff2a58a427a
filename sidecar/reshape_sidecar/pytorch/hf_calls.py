"""The ``train`` calls of a script in their order: run, resumed, or skipped because they are over.

Does: starts the session at the first call, divides a call's batch for the GPUs of this start,
returns the output of a finished call without training, and publishes the end of training when the
script has ended. ``hf_call`` holds what happens inside a running call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.contract import MANIFEST_FILE
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.loop_session import Write
from reshape_sidecar.pytorch import hf_state, hf_verdict
from reshape_sidecar.pytorch.data import length, set_random_states
from reshape_sidecar.pytorch.hf_batch import Batch, given_batch
from reshape_sidecar.pytorch.hf_call import Call, CallSession, ended_file
from reshape_sidecar.pytorch.hf_state import Saved
from reshape_sidecar.verdict.watch import Watch


class CallsSession(CallSession, Protocol):
    """What the calls need of their session (``reshape_sidecar.session``)."""

    @property
    def settings(self) -> HookSettings: ...

    @property
    def checkpoint(self) -> Path | None: ...

    def loop_begins(self) -> None: ...

    def loop_ended(self) -> None: ...

    def finished(self, write: Write) -> None: ...


class Calls:
    """All ``train`` calls of this process; there is one object per process."""

    def __init__(self, start: Callable[[], CallsSession]) -> None:
        """``start`` returns the session; the first call calls it."""
        self._start = start
        self._session: CallsSession | None = None
        self._saved: Saved | None = None
        self._length: int | None = None
        """Steps of the job, if the record gives them."""
        self._calls = 0
        self._first_ranks = 0
        """GPUs of the job's first start."""
        self._divided: dict[int, tuple[Any, Batch, Batch]] = {}
        """Arguments whose batch a call has divided anew: the script's batch, and the other one."""
        self._divides = False
        """Whether the script divides its batch by the number of GPUs itself."""
        self._unsaved: dict[int, dict[str, Any]] = {}
        """States at the end of calls that no checkpoint holds yet."""
        self._running: Call | None = None
        self._newest: Call | None = None
        """The running call, or the one before."""

    def of(self, trainer: Any) -> Call | None:
        """Return the running call if it is one of ``trainer``."""
        call = self._running
        return call if call is not None and call.trainer is trainer else None

    def of_loss(self, trainer: Any) -> Call | None:
        """Return the newest call if it is one of ``trainer``, which may evaluate after it."""
        call = self._newest
        return call if call is not None and call.trainer is trainer else None

    def of_callbacks(self, handler: Any) -> Call | None:
        """Return the running call if ``handler`` calls its callbacks."""
        call = self._running
        return call if call is not None and call.trainer.callback_handler is handler else None

    def run(self, trainer: Any, train: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Run, resume or skip the next call, ``train(trainer, **arguments)``."""
        session = self._begin()
        saved, number = self._saved, self._calls
        self._calls += 1
        if saved is not None and number < saved.position.call + saved.position.is_over:
            output = self._skip(trainer, number, saved)
            session.loop_ended()  # all is on disk
            return output
        resumed = saved if saved is not None and number == saved.position.call else None
        if resumed is not None:
            resumed.position.check(type(trainer.model).__name__, length(trainer.train_dataset))
        first = self._batch(trainer, resumed)
        call = Call(trainer, session, number, first, resumed, self._write_ended, self._length)
        call.is_whole = first.is_whole_on(session.settings.sizes)
        session.loop_begins()
        self._running = self._newest = call
        try:
            with call.arguments(arguments):
                output = train(trainer, **arguments)
        finally:
            self._running = None
        if (unsaved := call.ended(output)) is None:
            session.loop_ended()
        else:
            self._unsaved[number] = unsaved
        return output

    def script_ended(self) -> None:
        """Publish the end of the newest call as the end of training."""
        session, call, number = self._session, self._newest, self._calls - 1
        if session is None or self._running is not None:
            return

        def link_all(folder: Path) -> None:
            if call is not None and number in self._unsaved:
                call.write_end(folder, self._unsaved[number])
                return
            newest = session.checkpoint
            if newest is None:
                raise CheckpointError("no call of Trainer.train has ended or was saved")
            names = [file.name for file in newest.iterdir() if file.name != MANIFEST_FILE]
            hf_state.link(newest, folder, names)

        session.finished(link_all)

    def _begin(self) -> CallsSession:
        if self._session is None:
            self._session = self._start()
            self._length = self._session.total_steps
            settings = self._session.settings
            self._first_ranks = settings.micro_batches or settings.first_gpus or 0
            folder = self._session.checkpoint
            self._saved = Saved.read(folder) if folder is not None else None
            if self._saved is not None:
                self._first_ranks = self._saved.position.batch.ranks
        return self._session

    def _batch(self, trainer: Any, resumed: Saved | None) -> Batch:
        """Return the batch of a call at the job's first start; let the trainer have the same."""
        args = trainer.args
        given = self._given(args)
        self._first_ranks = self._first_ranks or given.ranks
        if hf_verdict.splits_batches(trainer):
            first = given
        elif resumed is not None:
            first = resumed.position.batch
            self._note_division(first, given)
        elif self._divides:
            first = given.on(self._first_ranks)
        else:
            first = dataclasses.replace(given, ranks=self._first_ranks)
        if given.samples != first.samples:
            now = first.on(given.ranks)
            args.per_device_train_batch_size = now.per_device
            args.gradient_accumulation_steps = now.accumulation
            trainer._train_batch_size = args.train_batch_size
            self._divided[id(args)] = (args, given, given_batch(args))
        return first

    def _given(self, args: Any) -> Batch:
        """Return the batch that the script gave, also where a call before has divided it."""
        now = given_batch(args)
        _, given, divided = self._divided.get(id(args), (args, now, now))
        return given if now == divided else now

    def _note_division(self, first: Batch, given: Batch) -> None:
        self._divides = first.ranks != given.ranks and first.samples == given.samples

    def _skip(self, trainer: Any, number: int, saved: Saved) -> Any:
        """Return the output of a call that is over; the trainer is as after it."""
        path = saved.folder / ended_file(number)
        ended = torch.load(path, map_location="cpu", weights_only=False)
        self._note_division(Batch(**ended["batch"]), self._given(trainer.args))
        weights = hf_state.of_model(ended["model"], trainer.model)
        hf_state.load_model(trainer.model, weights, saved.folder)
        trainer.create_optimizer()
        trainer.optimizer.load_state_dict(ended["optimizer"])
        trainer.state = type(trainer.state)(**ended["state"])
        trainer.state.is_local_process_zero = trainer.is_local_process_zero()
        trainer.state.is_world_process_zero = trainer.is_world_process_zero()
        script = Watch(lambda reach: hf_verdict.enter(trainer, reach), trainer.args.device)
        script.restore(ended.get("script", []))
        states, rank = ended["random"], trainer.args.process_index
        if states:
            set_random_states(states[rank if rank < len(states) else 0])
        return ended["output"]

    def _write_ended(self, folder: Path, number: int) -> None:
        """Give a checkpoint the states at the end of the calls before ``number``."""
        assert self._session is not None
        newest = self._session.checkpoint
        for call in range(number):
            if call in self._unsaved:
                torch.save(self._unsaved[call], folder / ended_file(call))
            else:
                assert newest is not None
                hf_state.link(newest, folder, [ended_file(call)])
