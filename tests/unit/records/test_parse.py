"""A record becomes a job, or everything that is wrong with it is said at once."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reshape_controller.core.model import (
    FieldError,
    Framework,
    JobSpec,
    Length,
    LengthUnit,
    OnDifference,
    ProofUse,
    ReshapeIf,
)
from reshape_controller.records import RecordInvalid, from_json, from_yaml, parse_record
from reshape_controller.records.aliases import suggestion
from reshape_controller.records.errors import ERRORS_MAX, text_of
from reshape_controller.records.fields import RecordFields
from reshape_gpu import record as client_record
from reshape_sidecar import codec
from reshape_sidecar.contract import RESERVED_PREFIXES
from reshape_sidecar.wire import OnSaveTimeout, Processes, Shortcut

SMALLEST: dict[str, Any] = {"name": "mnist", "command": "python train.py", "optional_gpus": [1, 2]}


def errors_of(value: object, folder: Path | None = None) -> tuple[FieldError, ...]:
    with pytest.raises(RecordInvalid) as caught:
        parse_record(value, folder=folder)
    return caught.value.errors


def test_a_folder_of_an_unknown_user_is_a_problem_of_its_field(tmp_path: Path) -> None:
    record = {**SMALLEST, "command": "true", "checkpoints": "~no-such-user/x"}
    (error,) = errors_of(record, tmp_path)
    assert error.path == "checkpoints"
    assert "'~no-such-user/x': there is no such user" in error.message
    assert error.hint == "write the whole path, from / on"


def test_the_smallest_record_is_a_job_with_every_default() -> None:
    assert parse_record(SMALLEST) == JobSpec("mnist", ("python", "train.py"), (1, 2))


def test_a_target_accuracy_has_a_metric_and_a_number_of_evaluations() -> None:
    spec = parse_record(
        {**SMALLEST, "target_accuracy": 0.9, "metric": "val_top5_acc", "epochs_in_a_row": 3}
    )
    assert isinstance(spec, JobSpec)
    assert spec.length == Length(LengthUnit.TARGET_ACCURACY, 0.9)
    assert (spec.metric, spec.epochs_in_a_row) == ("val_top5_acc", 3)
    without = parse_record({**SMALLEST, "target_accuracy": 0.9})
    assert isinstance(without, JobSpec)
    assert (without.metric, without.epochs_in_a_row) == (None, 1)


def test_a_full_record_is_a_job_with_every_field() -> None:
    spec = parse_record(
        {
            **SMALLEST,
            "command": ["python", "my script.py", "{epochs}"],
            "epochs": 3,
            "image": "registry/image:1",
            "job_type": "LeNet-5_mnist.v1",
            "framework": "pytorch",
            "global_batch": 64,
            "workers": 1,
            "span": "never",
            "placement": "pack",
            "processes": "per-gpu",
            "code": "/code",
            "dataset": "/data",
            "checkpoints": "claim:models/mnist",
            "resources": {"cpus": 2, "memory": "8Gi"},
            "env": {"B": "2", "A": ""},
            "retries": 0,
            "user": "Ada Lovelace",
            "priority": -5,
            "max_wait_s": 90,
            "on_save_timeout": "kill",
            "reshape_if": "steps-only",
            "on_difference": "stop",
            "may_restart": True,
            "handover": {"standby": "off"},
            "seed": 0,
        }
    )
    assert spec == JobSpec(
        name="mnist",
        command=("python", "my script.py", "{epochs}"),
        optional_gpus=(1, 2),
        length=Length(LengthUnit.EPOCHS, 3.0),
        image="registry/image:1",
        job_type="LeNet-5_mnist.v1",
        framework=Framework.PYTORCH,
        global_batch=64,
        code="/code",
        dataset="/data",
        checkpoints="claim:models/mnist",
        cpus=2.0,
        memory_bytes=8 * 1024**3,
        env=(("A", ""), ("B", "2")),
        retries=0,
        user="Ada Lovelace",
        priority=-5,
        max_wait_s=90.0,
        on_save_timeout=OnSaveTimeout.KILL,
        seed=0,
        reshape_if=ReshapeIf.STEPS_ONLY,
        on_difference=OnDifference.STOP,
        names_reshape_if=True,
        may_restart=True,
        standby=Shortcut.OFF,
        processes=Processes.PER_GPU,
    )


@pytest.mark.parametrize("value", ["any", "steps-only", "exact"])
def test_a_job_knows_whether_its_record_names_reshape_if(value: str) -> None:
    assert parse_record({**SMALLEST, "reshape_if": value}).names_reshape_if
    assert not parse_record({**SMALLEST, "reshape_if": None}).names_reshape_if
    assert not parse_record(SMALLEST).names_reshape_if


@pytest.mark.parametrize("written", ["off", '"off"', "false", "Off"])
def test_proof_off_may_stand_without_quotation_marks(written: str) -> None:
    text = f"name: mnist\ncommand: python t.py\noptional_gpus: [1]\nproof: {written}\n"
    assert from_yaml(text).proof is ProofUse.OFF


def test_a_record_that_says_nothing_of_proofs_is_stored_as_it_was_before_them() -> None:
    stored = codec.to_value(parse_record(SMALLEST))
    assert not {"proof", "on_difference", "names_reshape_if"} & stored.keys()


@pytest.mark.parametrize(
    ("change", "path", "message", "hint"),
    [
        ({"name": None}, "name", "is missing", "resnet-1"),
        ({"name": "Res_Net 50"}, "name", "'Res_Net 50' has characters", "res-net-50"),
        ({"name": "-a"}, "name", "'-a' has characters", "for example a"),
        ({"name": "a" * 64}, "name", "longer than 63", ""),
        ({"name": True}, "name", "True is not text", 'in quotation marks, "True"'),
        ({"command": None}, "command", "is missing", "python train.py"),
        ({"command": ""}, "command", "is empty", ""),
        ({"command": []}, "command", "[] is empty", "a list of texts"),
        ({"command": ["python", 1]}, "command[1]", "1 is not text", "quotation marks"),
        ({"command": ["", "x"]}, "command[0]", "is empty", "program"),
        ({"command": ["a\0b"]}, "command[0]", "zero byte", ""),
        ({"command": "echo 'open"}, "command", "no closing quotation", "close the quotation"),
        ({"command": {"a": 1}}, "command", "is not a list", "write a text or a list"),
        ({"command": ["a", "b" * 5000]}, "command[1]", "is longer than 4096", "from a file"),
        ({"env": {"A": "b" * 40000}}, "env.A", "is longer than 32768", "from a file"),
        ({"optional_gpus": None}, "optional_gpus", "is missing", "[1, 2, 4]"),
        ({"optional_gpus": []}, "optional_gpus", "[] is empty", "[1, 2, 4]"),
        ({"optional_gpus": 4}, "optional_gpus", "4 is not a list", "write [4]"),
        ({"optional_gpus": "1,2"}, "optional_gpus", "'1,2' is not a list", "[1, 2, 4]"),
        ({"optional_gpus": [0, 1]}, "optional_gpus[0]", "0 must be at least 1", ""),
        ({"optional_gpus": [-1]}, "optional_gpus[0]", "-1 must be at least 1", ""),
        ({"optional_gpus": [1, 1025]}, "optional_gpus[1]", "1025 must be at most 1024", ""),
        ({"optional_gpus": [1.5]}, "optional_gpus[0]", "1.5 is not a whole number", ""),
        ({"optional_gpus": [True]}, "optional_gpus[0]", "True is not a whole number", ""),
        ({"optional_gpus": [2, 1]}, "optional_gpus", "[2, 1] is not ascending", "write [1, 2]"),
        ({"optional_gpus": [1, 1]}, "optional_gpus", "[1, 1] repeats a number", "write [1]"),
        ({"optional_gpus": list(range(1, 66))}, "optional_gpus", "more than 64", ""),
        ({"epochs": -1}, "epochs", "-1 must be at least 1", "10"),
        ({"epochs": 0}, "epochs", "0 must be at least 1", "10"),
        ({"epochs": "10"}, "epochs", "'10' is not a whole number", "10"),
        ({"steps": 1e9}, "steps", "is not a whole number", "5000"),
        ({"steps": -5}, "steps", "-5 must be at least 1", ""),
        ({"steps": 10**30}, "steps", "must be at most", ""),
        ({"target_accuracy": 1.5}, "target_accuracy", "1.5 must be at most 1", "0.92"),
        ({"target_accuracy": 0}, "target_accuracy", "0 must be more than 0", ""),
        ({"target_accuracy": float("nan")}, "target_accuracy", "not a finite number", ""),
        ({"epochs": 1, "steps": 2}, "steps", "epochs and steps are both lengths", "keep one"),
        (
            {"epochs": 1, "target_accuracy": 0.5},
            "target_accuracy",
            "epochs and target_accuracy are both lengths",
            "keep one",
        ),
        ({"command": "a {epochs}"}, "command[1]", "the record has no epochs", "give epochs"),
        ({"framework": "jax"}, "framework", "'jax' must be one of 'keras', 'tensorflow'", "keras"),
        ({"global_batch": 33}, "global_batch", "33 cannot be split evenly over 2 GPUs", ""),
        ({"global_batch": 0}, "global_batch", "0 must be at least 1", ""),
        ({"workers": 2}, "workers", "2 workers cannot share 1 GPUs equally", "divide"),
        ({"env": {"LR": 0.1}}, "env.LR", "0.1 is not text", '"0.1"'),
        ({"env": {"A-B": "1"}}, "env.A-B", "not a variable name", "letters"),
        ({"env": {"A": "\0"}}, "env.A", "zero byte", ""),
        ({"env": ["A=1"]}, "env", "is not a mapping", "NAME"),
        ({"env": {1: "1"}}, "env.1", "1 is not text", "quotation marks"),
        ({"resources": {"memory": "8GB"}}, "resources.memory", "'8GB' is not a memory size", "8Gi"),
        ({"resources": {"memory": 8}}, "resources.memory", "8 must be at least 1048576", "8Gi"),
        (
            {"resources": {"memory": "-1Gi"}},
            "resources.memory",
            "'-1Gi' is not a memory size",
            "8Gi",
        ),
        ({"resources": {"cpu": 1}}, "resources.cpu", "not a field of resources", "cpus?"),
        ({"resources": {"cpus": 0}}, "resources.cpus", "0 must be more than 0", ""),
        ({"resources": 4}, "resources", "4 is not a mapping", "cpus: 4"),
        ({"cpus": 1, "resources": {"cpus": 1}}, "cpus", "the same as resources.cpus", "only one"),
        ({"handover": {"overlap": True}}, "handover.overlap", "True must be", "auto or off"),
        ({"handover": {"stand": "off"}}, "handover.stand", "not a field of handover", "standby?"),
        ({"handover": "off"}, "handover", "'off' is not a mapping", "standby: auto"),
        ({"retries": 101}, "retries", "101 must be at most 100", ""),
        ({"retries": -1}, "retries", "-1 must be at least 0", ""),
        ({"priority": "high"}, "priority", "'high' is not a whole number", ""),
        ({"max_wait_s": -1}, "max_wait_s", "-1 must be at least 0", ""),
        ({"max_wait_s": float("inf")}, "max_wait_s", "not a finite number", ""),
        ({"on_save_timeout": "wait"}, "on_save_timeout", "must be one of 'refuse', 'kill'", ""),
        ({"reshape_if": "never"}, "reshape_if", "one of 'exact', 'steps-only', 'any'", ""),
        ({"proof": "never"}, "proof", "'never' must be one of 'auto', 'off'", "write auto or off"),
        ({"proof": True}, "proof", "True must be one of", "write auto or off"),
        ({"on_difference": "halt"}, "on_difference", "one of 'report', 'stop'", "report or stop"),
        (
            {"proof": "off", "on_difference": "stop"},
            "on_difference",
            "stop needs a first step that is compared",
            "leave out proof: off",
        ),
        ({"span": "always"}, "span", "must be one of 'never', 'if-needed', 'any'", ""),
        ({"span": "any"}, "span", "on several hosts, and workers is 1", "number of workers"),
        ({"placement": "spread"}, "placement", "and span is never", "write span: any"),
        ({"processes": "two"}, "processes", "must be one of 'one', 'per-gpu'", ""),
        (
            {"processes": "per-gpu", "framework": "keras"},
            "processes",
            "this record's is keras",
            "framework: pytorch",
        ),
        (
            {"processes": "per-gpu", "framework": "pytorch", "workers": 2, "optional_gpus": [2]},
            "processes",
            "workers is 2",
            "leave workers out",
        ),
        (
            {"processes": "per-gpu", "framework": "pytorch", "command": "torchrun --nnodes 2 a.py"},
            "command",
            "torchrun --nnodes 2 is for several machines",
            "leave --nnodes out",
        ),
        ({"metric": "val_accuracy"}, "metric", "needs a target_accuracy", "add target_accuracy"),
        ({"epochs_in_a_row": 2}, "epochs_in_a_row", "needs a target_accuracy", "leave it out"),
        (
            {"target_accuracy": 0.9, "metric": "val_loss"},
            "metric",
            "val_loss falls while a model learns",
            "val_accuracy",
        ),
        (
            {"target_accuracy": 0.9, "metric": "val accuracy"},
            "metric",
            "has characters that are not allowed",
            "",
        ),
        (
            {"target_accuracy": 0.9, "epochs_in_a_row": 0},
            "epochs_in_a_row",
            "0 must be at least 1",
            "",
        ),
        ({"target_accuracy": 90}, "target_accuracy", "90 must be at most 1", ""),
        ({"may_restart": "yes"}, "may_restart", "'yes' is not true or false", "write true"),
        ({"seed": 2**32}, "seed", "must be at most 4294967295", ""),
        ({"user": "a\nb"}, "user", "has characters that are not allowed", ""),
        ({"image": "a b"}, "image", "has characters that are not allowed", "without spaces"),
        ({"job_type": "../x"}, "job_type", "has characters that are not allowed", "letters"),
        ({"code": ""}, "code", "is empty", "./code"),
        ({"code": "/a\0b"}, "code", "contains a zero byte", ""),
        ({"code": "j"}, "code", "'j' is a relative path", "absolute"),
        ({"dataset": "data"}, "dataset", "'data' is a relative path", "absolute"),
        ({"optional_gpu": [1]}, "optional_gpu", "not a field of a job record", "optional_gpus?"),
        ({"epoch": 1}, "epoch", "not a field", "did you mean epochs?"),
        ({"zzzz": 1}, "zzzz", "not a field", "docs/jobs.md"),
        ({"Job id": 7}, "Job id", "is filled in by Reshape", "leave it out"),
        ({"epochs": 1, "# of epochs": 2}, "# of epochs", "means the same as epochs", "only one"),
        ({1: 2}, "1", "is not a field's name", "text"),
        ({datetime.date(2024, 1, 1): 2}, "datetime.date(2024, 1, 1)", "not a field's name", ""),
    ],
)
def test_what_is_wrong_is_named_with_place_value_and_remedy(
    change: dict[object, object], path: str, message: str, hint: str
) -> None:
    (error,) = errors_of(SMALLEST | change)
    assert error.path == path
    assert message in error.message
    assert hint in error.hint
    assert error.hint or path in ("name",), "every problem has its remedy"


@pytest.mark.parametrize("field", ["code", "dataset", "checkpoints"])
@pytest.mark.parametrize(
    "url", ["s3://bucket/x", "S3://bucket/x", "gs:/bucket/x", " hf://a", "x+y://"]
)
def test_no_door_takes_a_url_for_a_folder(tmp_path: Path, field: str, url: str) -> None:
    record = {**SMALLEST, "command": "true", field: url}
    doors: list[Callable[[], object]] = [
        lambda: from_json(json.dumps(record)),  # HTTP, and a plain insert
        lambda: from_yaml(json.dumps(record), folder=tmp_path),  # a file, by the command
        lambda: from_json(json.dumps(client_record.read(record))),  # the Python client
    ]
    for door in doors:
        with pytest.raises(RecordInvalid) as caught:
            door()
        (error,) = caught.value.errors
        assert error.path == field
        assert f"{url!r} is a URL" in error.message
        assert "give a folder, or claim:NAME/FOLDER on Kubernetes: " in error.hint


def test_shared_memory_is_a_part_of_the_jobs_memory() -> None:
    assert parse_record({**SMALLEST, "shared_memory_gb": 2.5}).shared_memory_bytes == 5 << 29
    (error,) = errors_of({**SMALLEST, "shared_memory_gb": 8.5, "memory": "8Gi"})
    assert error.path == "shared_memory_gb"
    assert "8.5 GiB are more than the job's memory of 8589934592 bytes" in error.message
    assert error.hint == "give less, or raise memory"


def test_a_url_of_a_file_and_of_a_claim_have_remedies_of_their_own() -> None:
    record = {**SMALLEST, "dataset": "file:///data/mnist", "checkpoints": "claim://work/a"}
    dataset, checkpoints = errors_of(record)
    assert dataset.hint == "write the path alone: /data/mnist"
    assert checkpoints.hint.endswith("after the colon: claim:NAME/FOLDER")
    assert parse_record({**SMALLEST, "checkpoints": "claim:work/a"}).checkpoints == "claim:work/a"


@pytest.mark.parametrize("prefix", RESERVED_PREFIXES)
def test_reserved_environment_names_are_refused(prefix: str) -> None:
    (error,) = errors_of({**SMALLEST, "env": {f"{prefix}X": "1", "MINE": "1"}})
    assert error.path == f"env.{prefix}X"
    assert f"begin with {prefix} " in error.message


def test_everything_that_is_wrong_is_reported_at_once_in_the_order_of_the_fields() -> None:
    found = errors_of(
        {
            "seed": "x",
            "optional_gpus": [4, 2],
            "global_batch": 3,
            "env": {"LD_PRELOAD": "x", "A": 1},
            "steps": 1,
            "epochs": -1,
            "comand": "python train.py",
            "cpus": -1,
        }
    )
    assert [error.path for error in found] == [
        "comand",
        "name",
        "command",
        "optional_gpus",
        "epochs",
        "steps",
        "global_batch",
        "resources.cpus",
        "env.A",
        "env.LD_PRELOAD",
        "seed",
    ]


@pytest.mark.parametrize("value", [None, 1, "text", [SMALLEST], b"{}", object()])
def test_what_is_no_record_at_all_is_refused(value: object) -> None:
    (error,) = errors_of(value)
    assert "is not a job record" in error.message


def test_a_field_without_a_value_counts_as_not_given() -> None:
    nothing = dict.fromkeys(RecordFields.model_fields)
    assert parse_record({**nothing, **SMALLEST}) == parse_record(SMALLEST)


def test_a_record_with_an_image_needs_no_command() -> None:
    spec = parse_record({"name": "a", "image": "image", "optional_gpus": [1]})
    assert (spec.command, spec.image) == ((), "image")


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("8Gi", 8 * 1024**3),
        ("512Mi", 512 * 1024**2),
        ("1.5Gi", 3 * 1024**3 // 2),
        ("2G", 2_000_000_000),
        (" 4096Ki ", 4096 * 1024),
        ("2097152", 2097152),
        (2097152, 2097152),
    ],
)
def test_memory_is_bytes_or_a_text_with_a_unit(text: object, bytes_: int) -> None:
    assert parse_record({**SMALLEST, "memory": text}).memory_bytes == bytes_
    assert parse_record({**SMALLEST, "resources": {"memory": text}}).memory_bytes == bytes_


def test_a_sized_job_whose_batch_and_workers_divide_is_accepted() -> None:
    spec = parse_record({**SMALLEST, "optional_gpus": [2, 4, 8], "global_batch": 64, "workers": 2})
    assert (spec.optional_gpus, spec.global_batch, spec.workers) == ((2, 4, 8), 64, 2)


def test_a_nonsensical_record_has_a_bounded_number_of_errors() -> None:
    found = errors_of({f"field-{n}": n for n in range(10_000)})
    assert len(found) == ERRORS_MAX + 1
    assert "more problems" in found[-1].message


def test_a_rejected_record_keeps_its_name_and_user_as_far_as_it_has_them() -> None:
    with pytest.raises(RecordInvalid) as caught:
        parse_record({"name": "My Job\n", "user": 7})
    assert (caught.value.name, caught.value.user) == ("My Job", "")


def test_the_error_reads_well_on_one_line() -> None:
    with pytest.raises(RecordInvalid, match=r"epochs: -1 must be at least 1 \(for example 10\)"):
        parse_record({**SMALLEST, "epochs": -1})
    assert text_of(FieldError("", "no")) == "no"


def test_a_plain_insert_is_strict_json() -> None:
    assert from_json('{"name":"a","command":["x"],"optional_gpus":[1]}').name == "a"
    for body, what in [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"name": NaN}', "NaN is not a number"),
        ('{"name": "a", "name": "b"}', "'name' appears twice"),
        ('{"env": {"A": "1", "A": "2"}}', "'A' appears twice"),
        ("[]", "is not a job record"),
        ("null", "is not a job record"),
        ('"' + "x" * 1_048_576 + '"', "bytes long, more than 1048576"),
        ('{"$set": {"name": "x"}}', "is not a field"),
        ('{"a.b": 1}', "is not a field"),
        ('{"name": {"$ne": null}}', "is not text"),
        ('{"name": "\\ud800", "command": ["\\ud800"]}', "surrogates not allowed"),
        ('{"\\uD83D": 1}', "surrogates not allowed"),
    ]:
        with pytest.raises(RecordInvalid, match=what):
            from_json(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from((*RecordFields.model_fields, "cpus", "memory", "x")), JSON))
def test_no_value_whatever_makes_it_fail_in_another_way(value: dict[str, object]) -> None:
    try:
        spec = parse_record(value)
    except RecordInvalid as error:
        found = error.errors
    else:
        found = ()
        assert spec.name
        assert spec.optional_gpus
    assert all(error.message for error in found)
    assert len(found) <= ERRORS_MAX + 1


@pytest.mark.parametrize("off", ["off", "'off'", "false"])
def test_a_shortcut_is_turned_off_with_and_without_quotation_marks(off: str) -> None:
    text = "{name: a, command: b, image: c, optional_gpus: [1], handover: {overlap: OFF}}"
    spec = from_yaml(text.replace("OFF", off))
    assert (spec.standby, spec.overlap) == (Shortcut.AUTO, Shortcut.OFF)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_runtime_s", "max_run_s"),
        ("max_runtime", "max_run_s"),
        ("time_limit", "max_run_s"),
        ("activeDeadlineSeconds", "max_run_s"),
        ("timeout_s", "max_run_s"),
        ("hang_timeout_s", "progress_timeout_s"),
        ("startup_timeout_s", "start_timeout_s"),
        ("queue_timeout_s", "max_wait_s"),
        ("min_wait_s", "min_runtime_s"),
        ("max_checkpoint_interval", None),
        ("min_run_time_s", "min_runtime_s"),
        ("max_retries", "retries"),
    ],
)
def test_a_name_of_other_systems_gets_the_field_that_is_meant_and_never_its_opposite(
    name: str, meant: str | None
) -> None:
    hint = suggestion(name, tuple(RecordFields.model_fields))
    expected = "leave it out" if meant is None else f"did you mean {meant}?"
    assert hint.startswith(expected)
