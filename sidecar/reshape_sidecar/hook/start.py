"""Installs the hook in one process, before the script runs.

Does: reads the environment, handles SIGTERM, splits the CPU into simulated devices, and patches the
framework when the script imports it.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace
from typing import Any

from reshape_sidecar import device_truth
from reshape_sidecar.contract import ENV_PREPARED_IN_VAIN, HookPhase
from reshape_sidecar.hook import (
    data_order,
    effects,
    iterators,
    randomness,
    settings,
    unsaved_loops,
)
from reshape_sidecar.hook.checkpoint import CheckpointStore
from reshape_sidecar.hook.imports import ImportWatch
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.report import ReportSender
from reshape_sidecar.hook.saving import Saver
from reshape_sidecar.hook.script_state import ScriptState
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.shuffles import JobShuffles
from reshape_sidecar.hook.standby import Standby
from reshape_sidecar.hook.stop import Stop, flush_files
from reshape_sidecar.hook.training import Training
from reshape_sidecar.hook.unsaved_loops import UnsavedLoops
from reshape_sidecar.proof.first_steps import FirstSteps
from reshape_sidecar.wire import LEVEL_ABILITIES, PrepareStage


def split_cpu(tensorflow: Any, count: int) -> None:
    """Create ``count`` logical CPU devices; ``MirroredStrategy()`` uses all of them."""
    config = tensorflow.config
    config.set_visible_devices([], "GPU")
    cpu = config.list_physical_devices("CPU")[0]
    config.set_logical_device_configuration(
        cpu, [config.LogicalDeviceConfiguration() for _ in range(count)]
    )


SESSION_MODULE = "reshape_sidecar.session"
TRAINER_MODULE = "keras.src.backend.tensorflow.trainer"
OTHER_KERAS = (
    "Reshape saves a `fit` only with Keras 3 on TensorFlow, but {} was imported: after a reshape "
    "training starts from the beginning. Set {}, or save on SIGTERM"
)


def _stand_by(
    standby: Standby, watch: ImportWatch, training: Training, loops: UnsavedLoops
) -> None:
    """Hold this process, a successor, before its effects and its loops until its release."""
    loops.before_step = lambda: standby.hold("a loop outside of `fit` makes a step")
    watch.before(SESSION_MODULE, lambda: standby.hold("it uses a session"))
    watch.after(SESSION_MODULE, lambda module: None)
    effects.watch(standby, watch)
    standby.start(training.release)


def _settings() -> HookSettings:
    """Return the settings of this process; raises SystemExit if one is invalid."""
    try:
        told = settings.from_environment(os.environ)
    except settings.SettingsError as error:
        print(f"reshape: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    assert told is not None
    return replace(told, checkpoints=None) if told.worker else told  # the first worker's count


def start() -> Training:
    """Install the hook; return the object whose ``script_ended`` is to be called at the end."""
    told = _settings()
    standby = Standby(told.standby_fd) if told.standby_fd is not None else None
    stop = Stop(told.keep_running)
    store = CheckpointStore(told)
    reporter = ProgressReporter(ReportSender(told.socket), told.generation, told.spawned_at_s)
    reporter.silent, reporter.level = standby is not None, told.report_level
    truth = told.device_truth if told.simulated else None
    pacer = device_truth.pacer_of(truth, told.job_type, told.name, len(told.devices), complain)
    shuffles = JobShuffles(store.shuffle_seed)
    saver = Saver(stop, store, reporter, pacer, FirstSteps(told, reporter, stop, told.gpus))
    script_state = ScriptState(told.checkpoints)
    training = Training(told, saver, reporter, pacer, shuffles, script_state, standby)
    stop.install()
    loops = UnsavedLoops(training, reporter)
    if told.report_level >= LEVEL_ABILITIES:
        reporter.saves = lambda: unsaved_loops.saves(training)
        loops.start()
    # The first handler that is registered is called last.
    atexit.register(iterators.end, flush_files, lambda: stop.leave(training.exit_code))
    watch = ImportWatch()
    if standby is not None:
        _stand_by(standby, watch, training, loops)
    reporter.phase(HookPhase.IMPORTING)
    if reason := os.environ.pop(ENV_PREPARED_IN_VAIN, None):
        complain(f"starts cold, as its preparation was in vain: {reason}")
    startup_randomness = randomness.StartupRandomness()

    def note_iterator(dataset: Any) -> None:
        if training.fit is not None:
            training.fit.note_iterator(dataset)

    def tensorflow_imported(module: Any) -> None:
        iterators.destroy_elsewhere()
        if told.simulated and told.devices:
            split_cpu(module, len(told.devices))
        if store.enabled:
            shuffles.seed_unseeded(module)
            startup_randomness.seed(store.shuffle_seed())
        data_order.watch(module, note_iterator)

    def trainer_imported(module: Any) -> None:
        from reshape_sidecar.hook import keras_patch

        keras_patch.patch(module, training, shuffles)

    def keras_imported(module: Any) -> None:
        if TRAINER_MODULE not in sys.modules:
            other = f"Keras {module.__version__} on {module.backend.backend()}"
            complain(OTHER_KERAS.format(other, "KERAS_BACKEND=tensorflow"))
        if told.seed is not None:
            randomness.seed_all(told.seed)
        reporter.phase_ended("import_s")
        reporter.phase(HookPhase.BUILDING)
        if standby is not None:
            standby.report(PrepareStage.SCRIPT)

    def legacy_keras_imported(module: Any) -> None:
        complain(OTHER_KERAS.format("tf_keras (Keras 2)", "TF_USE_LEGACY_KERAS=0"))

    watch.after("numpy", startup_randomness.numpy_imported)
    watch.after("tensorflow", tensorflow_imported)
    watch.before("tensorflow", startup_randomness.tensorflow_begins)
    watch.after(unsaved_loops.OPTIMIZER_MODULE, loops.patch)
    watch.after(TRAINER_MODULE, trainer_imported)
    watch.after("keras", keras_imported)
    watch.after("tf_keras", legacy_keras_imported)
    script_state.script_begins()
    return training
