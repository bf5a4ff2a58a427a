"""The fields of a job record: type, bounds, default, rule and example of each.

Does: one pydantic model, from which the checks, the JSON Schema and docs/jobs.md come. Rules over
two fields are in ``rules``; values of this model stay in this package.

Every field is optional here, so that a problem of one field does not hide one of another; ``rules``
asks for the required ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from reshape_controller.core.model import (
    MIN_RUNTIME_S,
    Batch,
    Framework,
    OnDifference,
    OnMaxRun,
    Placement,
    ProofUse,
    ReshapeIf,
    Spans,
)
from reshape_controller.records import limits
from reshape_controller.records.command import split_command
from reshape_controller.records.memory import memory_bytes
from reshape_sidecar.wire import OnSaveTimeout, Processes, Shortcut

Text = Annotated[str, Field(min_length=1, max_length=limits.TEXT_LENGTH_MAX)]
Label = Annotated[
    str, Field(max_length=limits.NAME_LENGTH_MAX, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*)$")
]
Argument = Annotated[str, Field(max_length=limits.TEXT_LENGTH_MAX)]
Size = Annotated[int, Field(ge=1, le=limits.GPUS_MAX)]
Memory = Annotated[int, Field(ge=limits.MEMORY_MIN_BYTES, le=limits.MEMORY_MAX_BYTES)]
EnvValue = Annotated[str, Field(max_length=limits.ENV_VALUE_LENGTH_MAX)]


RETRIES = 3
"""Default number of retries."""


class Resources(BaseModel):
    """Resources of a job's container beside its GPUs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    cpus: float | None = Field(
        None,
        gt=0,
        le=limits.CPUS_MAX,
        allow_inf_nan=False,
        description="CPU cores, fractions allowed; a top-level `cpus` means the same",
        examples=[4],
    )
    memory: Annotated[Memory, BeforeValidator(memory_bytes)] | None = Field(
        None,
        description="bytes, or a text with a unit (`Ki`, `Mi`, `Gi`, `Ti`, `K`, `M`, `G`, `T`);"
        " a top-level `memory` means the same",
        examples=["8Gi"],
    )


def _off(value: object) -> object:
    """Return the text that YAML reads as false if it stands without quotation marks."""
    return Shortcut.OFF.value if value is False else value


Allowed = Annotated[Shortcut, Field(strict=False), BeforeValidator(_off)]


class Handover(BaseModel):
    """How the processes of a job may start."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    standby: Allowed | None = Field(
        default=Shortcut.AUTO,
        description="`auto`: a process that has imported the framework starts the training"
        " processes; `off`: every process imports it again",
        examples=["auto"],
    )
    overlap: Allowed | None = Field(
        default=Shortcut.AUTO,
        description="`auto`: before a reshape on simulated GPUs, the next process runs up to its"
        " first step while the one before trains; `off`: it starts after that one has ended",
        examples=["auto"],
    )


class RecordFields(BaseModel):
    """A job record field by field, before the rules over several fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str | None = Field(
        None,
        max_length=limits.NAME_LENGTH_MAX,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="required; lower-case letters, digits and `-`, beginning and ending with a"
        f" letter or digit, at most {limits.NAME_LENGTH_MAX}; unique among your unfinished jobs",
        examples=["resnet-cifar"],
    )
    command: Annotated[list[Argument], BeforeValidator(split_command)] | None = Field(
        None,
        min_length=1,
        max_length=limits.ARGUMENTS_MAX,
        description="required unless `image` is given; a list, or a text that is split at spaces"
        " with quotes respected; runs without a shell; `{epochs}` stands for the number of epochs",
        examples=["python train.py --epochs {epochs}"],
    )
    image: Text | None = Field(
        None,
        pattern=r"^[^\s\x00-\x1f\x7f]+$",
        description="container image, for launchers that run images",
        examples=["registry.example/team/resnet:1"],
    )
    optional_gpus: list[Size] | None = Field(
        None,
        min_length=1,
        max_length=limits.SIZES_MAX,
        description="required; the GPU counts with which the job can run, ascending, each once, 1"
        f" to {limits.GPUS_MAX}; none larger than the largest known host",
        examples=[[1, 2, 4]],
    )
    epochs: int | None = Field(
        None,
        ge=1,
        le=limits.EPOCHS_MAX,
        description="length in epochs; give at most one of `epochs`, `steps`, `target_accuracy`;"
        " without one, the job grows only onto GPUs that no queued job wants",
        examples=[10],
    )
    steps: int | None = Field(
        None, ge=1, le=limits.STEPS_MAX, description="length in optimizer steps", examples=[5000]
    )
    target_accuracy: float | None = Field(
        None,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="train until this accuracy is reached, above 0 and at most 1; judged at the end"
        " of each evaluation",
        examples=[0.92],
    )
    metric: str | None = Field(
        None,
        min_length=1,
        max_length=limits.NAME_LENGTH_MAX,
        pattern=r"^[^\s\x00-\x1f\x7f]+$",
        description="metric that `target_accuracy` is judged on, by its name in Keras's logs;"
        " default: the validation accuracy, or without validation data the training accuracy",
        examples=["val_accuracy"],
    )
    epochs_in_a_row: int | None = Field(
        1,
        ge=1,
        le=limits.EPOCHS_MAX,
        description="evaluations, one after the other, that have to reach `target_accuracy`",
        examples=[3],
    )
    job_type: Label | None = Field(
        None,
        description=(
            "job type whose profile predicts the speed, shared by jobs of this type; default: "
            "predictions use only this job's measured steps, and in an array those of the members "
            "with the same code, command and GPU counts"
        ),
        examples=["resnet50-cifar10-b128"],
    )
    framework: Annotated[Framework, Field(strict=False)] | None = Field(
        None,
        description="`keras`, `tensorflow`, `pytorch` or `other`; default: `pytorch` if the"
        " program's text imports PyTorch and no TensorFlow, otherwise `keras`",
        examples=["keras"],
    )
    global_batch: int | None = Field(
        None,
        ge=1,
        le=limits.GLOBAL_BATCH_MAX,
        description="samples per step over all GPUs, for data-parallel jobs; every optional number"
        " of GPUs must divide it; it stays the same at every GPU count",
        examples=[128],
    )
    workers: int | None = Field(
        1,
        ge=1,
        le=limits.WORKERS_MAX,
        description="workers that share the GPUs equally; must divide each of `optional_gpus`",
        examples=[1],
    )
    span: Annotated[Spans, Field(strict=False)] | None = Field(
        Spans.NEVER,
        description="whether the workers may be on several hosts, each with its GPUs on one:"
        " `never`; `if-needed`: while no host has room for all of them; `any`",
        examples=["never"],
    )
    placement: Annotated[Placement, Field(strict=False)] | None = Field(
        Placement.PACK,
        description="with `span`: the workers are placed on as few hosts as possible (`pack`), or"
        " on as many (`spread`)",
        examples=["pack"],
    )
    processes: Annotated[Processes, Field(strict=False)] | None = Field(
        None,
        description="with `framework: pytorch`: `one` process for each worker, which starts others"
        " itself if it needs them; `per-gpu`: the SideCar starts a process of the command for each"
        " GPU, as `torchrun` does; default: `per-gpu` if the script's text shows that it trains so"
        " (training.md), otherwise `one`",
        examples=["one"],
    )
    batch: Annotated[Batch, Field(strict=False)] | None = Field(
        Batch.DIVIDED,
        description="with `processes: per-gpu`, `divided`: each GPU has its part of the samples of"
        " a step; `micro`: they stay together in micro-batches, one for each GPU of the largest of"
        " `optional_gpus`, and fewer GPUs train several each; every size must divide the largest"
        " (pytorch.md, Micro-batches)",
        examples=["divided"],
    )
    code: Text | None = Field(
        None,
        description="folder with the script; relative to the record's file; default: that file's"
        " folder",
        examples=["./code"],
    )
    dataset: Text | None = Field(
        None,
        description="folder with the training data; relative to the record's file",
        examples=["/data/cifar10"],
    )
    checkpoints: Text | None = Field(
        None,
        description="folder for checkpoints; relative to the record's file; default: a new folder."
        " Unique among unfinished jobs. A job continues from an ended job's checkpoint there, and"
        " completes at once if that job had finished",
        examples=["./checkpoints"],
    )
    resources: Resources | None = Field(
        None,
        description="limits of the container beside its GPUs; default: no limit. On one machine "
        "they hold if its kernel has them for the daemon: `reshape doctor` says so",
        examples=[{"cpus": 4, "memory": "8Gi"}],
    )
    shared_memory_gb: float | None = Field(
        None,
        gt=0,
        le=limits.SHARED_MEMORY_GB_MAX,
        allow_inf_nan=False,
        description="size of `/dev/shm` in pods, in GiB, for what loaders share between processes;"
        " it is a part of the memory limit; default: half of that. On one machine jobs have the"
        " machine's",
        examples=[4],
    )
    env: dict[str, EnvValue] | None = Field(
        None,
        max_length=limits.ENV_MAX,
        description="environment of the training process; names that Reshape reserves, or that load"
        " code, are refused",
        examples=[{"LEARNING_RATE": "0.1"}],
    )
    retries: int | None = Field(
        RETRIES,
        ge=0,
        le=limits.RETRIES_MAX,
        description="how many failures of the program or its container restart the job from its"
        " newest checkpoint; starts after a reshape, pause, drain, lost host or evicted pod do not"
        " count; without a retry left a job with a checkpoint is paused, any other fails",
        examples=[3],
    )
    user: str | None = Field(
        "",
        max_length=limits.NAME_LENGTH_MAX,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="owner of the job; default: the user who submits it",
        examples=["ada"],
    )
    priority: int | None = Field(
        0,
        ge=-limits.PRIORITY_MAX,
        le=limits.PRIORITY_MAX,
        description="jobs with a higher priority are earlier in the queue",
        examples=[0],
    )
    max_wait_s: float | None = Field(
        None,
        ge=0,
        le=limits.MAX_WAIT_MAX_S,
        allow_inf_nan=False,
        description="seconds in the queue after which the job starts first, even if others then end"
        " later; default: the policy's",
        examples=[600],
    )
    min_runtime_s: float | None = Field(
        MIN_RUNTIME_S,
        ge=0,
        le=limits.MAX_WAIT_MAX_S,
        allow_inf_nan=False,
        description="seconds from each start of the job out of the queue, its container's start"
        " included, before a job of higher priority may preempt it",
        examples=[300],
    )
    max_run_s: float | None = Field(
        None,
        ge=1,
        le=limits.MAX_WAIT_MAX_S,
        allow_inf_nan=False,
        description="seconds with GPUs, its starts included and queue and pauses not, after which"
        " the job saves and leaves; a resume gives it as many again; default: no limit",
        examples=[86400],
    )
    on_max_run: Annotated[OnMaxRun, Field(strict=False)] | None = Field(
        OnMaxRun.PAUSE,
        description="what becomes of it then: `pause`, or `fail`",
        examples=["pause"],
    )
    progress_timeout_s: float | None = Field(
        None,
        ge=limits.PROGRESS_MIN_S,
        le=limits.MAX_WAIT_MAX_S,
        allow_inf_nan=False,
        description="seconds without a further training step (if it reports none: without a sign of"
        " work) after which the program has failed: it starts again from its checkpoint, which"
        " costs a retry; longer than its longest evaluation; default: after an hour an alert",
        examples=[1800],
    )
    start_timeout_s: float | None = Field(
        None,
        ge=0,
        le=limits.START_MAX_S,
        allow_inf_nan=False,
        description="seconds for which a start may give no sign of work before its first training"
        " step: no output, and less than 1 s of processor time a minute; then it has failed, which"
        " costs a retry and no GPU count; 0: for ever; default: the daemon's (1,800)",
        examples=[3600],
    )
    start_limit_s: float | None = Field(
        None,
        ge=0,
        le=limits.START_MAX_S,
        allow_inf_nan=False,
        description="seconds until the first training step, even if the start works, as a process"
        " does that spins while it waits for others; then it has failed, in the same way; 0 or"
        " nothing: no limit; after two hours an alert",
        examples=[7200],
    )
    on_save_timeout: Annotated[OnSaveTimeout, Field(strict=False)] | None = Field(
        OnSaveTimeout.REFUSE,
        description="when a checkpoint is late: `refuse` (training goes on) or `kill` (its steps"
        " since the last checkpoint are lost)",
        examples=["refuse"],
    )
    reshape_if: Annotated[ReshapeIf, Field(strict=False)] | None = Field(
        ReshapeIf.ANY,
        description="the worst verdict on its `trajectory` with which the job may be reshaped for"
        " the cluster's sake: `exact`, `steps-only` or `any`; without a verdict it counts as"
        " `unknown`; after a first step that differs, `any` holds only if the record says it",
        examples=["any"],
    )
    proof: Annotated[ProofUse, Field(strict=False), BeforeValidator(_off)] | None = Field(
        ProofUse.AUTO,
        description="`auto`: after its last save a process makes one more step, with whose figures"
        " the next process compares its first step (training.md, Proofs); `off`: it makes none, for"
        " steps that pay, act or write what must come once",
        examples=["auto"],
    )
    on_difference: Annotated[OnDifference, Field(strict=False)] | None = Field(
        OnDifference.REPORT,
        description="what becomes of it if that first step differs: `report`: it trains on, and its"
        " trajectory is `unknown` from then on; `stop`: it ends before its second step, and is"
        " paused with its checkpoint",
        examples=["report"],
    )
    may_restart: bool | None = Field(
        False,
        description="`true`: a program that cannot save may be stopped to shrink, grow or move it;"
        " it then begins again, and the lost steps are counted and priced, if it reports any."
        " `false`: only a person's request stops it",
        examples=[False],
    )
    handover: Handover | None = Field(
        None,
        description="whether starts may be faster than those of a new process; the daemon's"
        " `standby` and `overlap` may turn it off for all jobs",
        examples=[{"standby": "auto", "overlap": "off"}],
    )
    notify: list[Label] | None = Field(
        None,
        max_length=limits.NOTIFY_MAX,
        description="targets that are sent what happens to the job, by the names that the operator"
        " has given them (operations.md, Notifications)",
        examples=[["team-chat"]],
    )
    seed: int | None = Field(
        None,
        ge=0,
        le=limits.SEED_MAX,
        description="random seed, given to the script as RESHAPE_SEED",
        examples=[7],
    )


NESTED: Mapping[str, type[BaseModel]] = {"resources": Resources, "handover": Handover}
"""The fields that are mappings with fields of their own."""
