"""The fields of a job record: type, bounds, default, rule and example of each.

Does: one pydantic model, from which the checks, the JSON Schema and docs/jobs.md come. Rules over
two fields are in ``rules``; values of this model stay in this package.

Every field is optional here, so that a problem of one field does not hide one of another; ``rules``
asks for the required ones.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from reshape_controller.core.model import Framework
from reshape_controller.records import limits
from reshape_controller.records.command import split_command
from reshape_controller.records.memory import memory_bytes
from reshape_sidecar.wire import OnSaveTimeout

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
    """What a job's container may use beside its GPUs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    cpus: float | None = Field(
        None,
        gt=0,
        le=limits.CPUS_MAX,
        allow_inf_nan=False,
        description="CPU cores, fractions allowed; `cpus` beside `name` means the same",
        examples=[4],
    )
    memory: Annotated[Memory, BeforeValidator(memory_bytes)] | None = Field(
        None,
        description="bytes, or a text with a unit (`Ki`, `Mi`, `Gi`, `Ti`, `K`, `M`, `G`, `T`);"
        " `memory` beside `name` means the same",
        examples=["8Gi"],
    )


class RecordFields(BaseModel):
    """A job record field by field, before the rules over several fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: str | None = Field(
        None,
        max_length=limits.NAME_LENGTH_MAX,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="required; lower-case letters, digits and `-`, beginning and ending with a"
        f" letter or digit, at most {limits.NAME_LENGTH_MAX}; no two unfinished jobs of one name",
        examples=["resnet-cifar"],
    )
    command: Annotated[list[Argument], BeforeValidator(split_command)] | None = Field(
        None,
        min_length=1,
        max_length=limits.ARGUMENTS_MAX,
        description="required unless `image` is given; a list, or a text that is split at spaces"
        " with quotes respected; never given to a shell; `{epochs}` in it becomes the number",
        examples=["python train.py --epochs {epochs}"],
    )
    image: Text | None = Field(
        None,
        pattern=r"^\S+$",
        description="container image, for launchers that run images",
        examples=["registry.example/team/resnet:1"],
    )
    optional_gpus: list[Size] | None = Field(
        None,
        min_length=1,
        max_length=limits.SIZES_MAX,
        description="required; the numbers of GPUs with which the job can run, ascending, each"
        f" once, 1 to {limits.GPUS_MAX}; none larger than the largest known host",
        examples=[[1, 2, 4]],
    )
    epochs: int | None = Field(
        None,
        ge=1,
        le=limits.EPOCHS_MAX,
        description="length in epochs; at most one of `epochs`, `steps`, `target_accuracy`; none:"
        " unknown until the first progress report, and until then the job is not grown",
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
        description="trains until this accuracy is reached, above 0 and at most 1",
        examples=[0.92],
    )
    job_type: Label | None = Field(
        None,
        description=(
            "profile to predict with, and what jobs of the type teach; default: none: predicted "
            "from the first measured steps of the job itself"
        ),
        examples=["resnet50-cifar10-b128"],
    )
    framework: Annotated[Framework, Field(strict=False)] | None = Field(
        Framework.KERAS,
        description="`keras`, `tensorflow`, `pytorch` or `other`",
        examples=["keras"],
    )
    global_batch: int | None = Field(
        None,
        ge=1,
        le=limits.GLOBAL_BATCH_MAX,
        description="samples per step over all GPUs, for data-parallel jobs; every optional number"
        " of GPUs must divide it; it stays the same at every size",
        examples=[128],
    )
    workers: int | None = Field(
        1,
        ge=1,
        le=limits.WORKERS_MAX,
        description="workers that share the GPUs equally; it must divide every optional number",
        examples=[1],
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
        description="folder for checkpoints; relative to the record's file; default: one of the"
        " job's own. No two unfinished jobs have the same; what an ended one left there is gone on"
        " from, and trained no more where that one had finished",
        examples=["./checkpoints"],
    )
    resources: Resources | None = Field(
        None,
        description="what the container may use beside its GPUs; default: no limit",
        examples=[{"cpus": 4, "memory": "8Gi"}],
    )
    env: dict[str, EnvValue] | None = Field(
        None,
        max_length=limits.ENV_MAX,
        description="environment of the training process; names that are Reshape's own, or that"
        " load code, are refused",
        examples=[{"LEARNING_RATE": "0.1"}],
    )
    retries: int | None = Field(
        RETRIES,
        ge=0,
        le=limits.RETRIES_MAX,
        description="failures after which the job is started again from its newest checkpoint "
        "(that its pod is deleted or evicted while it trains is none)",
        examples=[3],
    )
    user: str | None = Field(
        "",
        max_length=limits.NAME_LENGTH_MAX,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="whose job it is; if empty, the user that the request names",
        examples=["ada"],
    )
    priority: int | None = Field(
        0,
        ge=-limits.PRIORITY_MAX,
        le=limits.PRIORITY_MAX,
        description="jobs of a higher one are first in the queue",
        examples=[0],
    )
    max_wait_s: float | None = Field(
        None,
        ge=0,
        le=limits.MAX_WAIT_MAX_S,
        allow_inf_nan=False,
        description="seconds in the queue after which it is started at any cost to the makespan;"
        " default: the policy's",
        examples=[600],
    )
    on_save_timeout: Annotated[OnSaveTimeout, Field(strict=False)] | None = Field(
        OnSaveTimeout.REFUSE,
        description="when a checkpoint is late: `refuse` (training goes on) or `kill` (its steps"
        " since the last checkpoint are lost)",
        examples=["refuse"],
    )
    seed: int | None = Field(
        None,
        ge=0,
        le=limits.SEED_MAX,
        description="reaches the script as RESHAPE_SEED",
        examples=[7],
    )
