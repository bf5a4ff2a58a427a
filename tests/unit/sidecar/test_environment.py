"""Command and environment of a training process."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_sidecar.agent import environment
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode
from reshape_sidecar.hook import settings
from reshape_sidecar.hook.target import Target
from reshape_sidecar.wire import Processes

HOOK = Path("/opt/hook/run.py")


def spec(*command: str, **fields: object) -> AttemptSpec:
    values: dict[str, object] = {
        "job": "j",
        "attempt": 1,
        "name": "a",
        "command": command,
        "code": "/code",
        "checkpoints": "/ckpt",
        "coordinator_url": "http://127.0.0.1:1",
        "epoch": 1,
        "device_mode": DeviceMode.SIMULATED,
    }
    return AttemptSpec(**(values | fields))  # type: ignore[arg-type]


def variables(
    made: AttemptSpec,
    base: dict[str, str] | None = None,
    peers: tuple[str, ...] = (),
    library: Path | None = None,
) -> dict[str, str]:
    return environment.variables(
        made,
        ("GPU-a", "GPU-b"),
        base or {},
        socket=Path("/run/agent.sock"),
        keep_running=Path("/run/keep-running"),
        now_s=5.25,
        free_port=4242,
        library=library,
        peers=peers,
    )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --lr 0.1", "python /opt/hook/run.py train.py --lr 0.1"),
        ("python3 -u train.py -m x", "python3 -u /opt/hook/run.py train.py -m x"),
        ("python3.11 -X dev -W error t.py", "python3.11 -X dev -W error /opt/hook/run.py t.py"),
        ("python -Xdev t.py", "python -Xdev /opt/hook/run.py t.py"),
        ("python -m pack.train a", "python /opt/hook/run.py -m pack.train a"),
        ("python -O -m pack.train", "python -O /opt/hook/run.py -m pack.train"),
        ("/usr/bin/python3 t.py", "/usr/bin/python3 /opt/hook/run.py t.py"),
        ("python -c pass", "python -c pass"),
        ("python", "python"),
        ("bash train.sh", "bash train.sh"),
        ("./train", "./train"),
    ],
)
def test_the_hook_goes_before_the_script_and_after_pythons_own_options(
    command: str, expected: str
) -> None:
    assert environment.command(spec(*command.split()), HOOK) == tuple(expected.split())


def test_other_frameworks_get_no_hook() -> None:
    made = spec("python", "train.py", framework="pytorch")
    assert environment.command(made, HOOK) == ("python", "train.py")
    assert not environment.hooked(made)
    assert environment.hooked(spec("python", "train.py"))


@pytest.mark.parametrize("framework", ["keras", "pytorch"])
@pytest.mark.parametrize("command", ["python train.py --lr 0.1", "python -u -m pack.train a b"])
def test_a_zygote_has_the_options_of_the_start_and_room_for_its_command_line(
    framework: str, command: str
) -> None:
    made = spec(*command.split(), "x" * 200, framework=framework)
    cold, zygote = environment.command(made), environment.zygote_command(made)
    assert zygote is not None
    program = next(index for index, word in enumerate(zygote) if word.endswith("/zygote.py"))
    assert zygote[:program] == cold[:program]
    assert ("torch" in zygote) is (framework == "pytorch")
    assert len(" ".join(zygote)) == len(" ".join(cold))


@pytest.mark.parametrize(
    ("command", "framework"),
    [("torchrun train.py", "pytorch"), ("python -c pass", "pytorch"), ("python t.py", "other")],
)
def test_a_command_that_is_no_script_of_a_framework_has_no_zygote(
    command: str, framework: str
) -> None:
    assert environment.zygote_command(spec(*command.split(), framework=framework)) is None


def test_a_bare_python_is_the_launchers_interpreter_and_a_path_stays() -> None:
    made = spec("python3", "t.py", framework="other", python="/venv/bin/python")
    assert environment.command(made) == ("/venv/bin/python", "t.py")
    made = spec("/usr/bin/python3", "t.py", framework="other", python="/venv/bin/python")
    assert environment.command(made) == ("/usr/bin/python3", "t.py")


@pytest.mark.parametrize(
    ("command", "interpreter"),
    [
        (("python", "-u", "train.py"), "python"),
        (("/env/bin/python3", "t.py"), "/env/bin/python3"),
        (("./train",), sys.executable),
    ],
)
def test_one_process_per_gpu_is_started_by_a_parent(
    command: tuple[str, ...], interpreter: str
) -> None:
    made = spec(*command, framework="pytorch", processes=Processes.PER_GPU)
    *before, script = command
    hook = [str(environment.hook_path())] if before else []
    assert environment.program(made) == (*before, *hook, script)
    ranks = (interpreter, "-I", str(environment.ranks_path()))
    assert environment.command(made) == (*ranks, *before, *hook, script)
    assert environment.ranks_path().is_file()


@pytest.mark.parametrize("command", [("python", "-u", "train.py"), ("./train",)])
def test_a_zygote_of_ranks_imports_as_a_rank_does(command: tuple[str, ...]) -> None:
    made = spec(*command, framework="pytorch", processes=Processes.PER_GPU)
    found = environment.zygote_command(made)
    if command[0] != "python":
        assert found is None
        return
    assert found is not None
    assert found[:4] == (
        "python",
        "-u",
        str(environment.hook_path().with_name("zygote.py")),
        "ranks",
    )
    assert len("\0".join(found)) == len("\0".join(environment.command(made)))
    alone = spec(*command, framework="pytorch")
    assert environment.zygote_key(made, {}) == environment.zygote_key(alone, {})
    of_ranks = environment.zygote_variables(made, {"A": "b"})
    assert of_ranks == {"A": "b", "OMP_NUM_THREADS": "1"}
    asked = {"OMP_NUM_THREADS": "4"}
    assert environment.zygote_variables(made, asked) == asked
    assert environment.zygote_variables(alone, {}) == {}


def test_lengths_are_filled_in_and_an_unknown_length_stays_as_it_is() -> None:
    made = spec("./t", "--epochs={epochs}", "{steps}", "{", length_epochs=3)
    assert environment.command(made) == ("./t", "--epochs=3", "{steps}", "{")


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python -u a/t.py", "a/t.py"),
        ("python -m t", None),
        ("./t", None),
        ("python -c x", None),
    ],
)
def test_the_script_is_found_for_the_self_check(command: str, script: str | None) -> None:
    assert environment.script(spec(*command.split())) == script


def test_real_devices_are_named_by_uuid_and_what_was_set_before_is_dropped() -> None:
    base = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "7", "TF_CONFIG": "{}", "RESHAPE_STEPS": "9"}
    env = variables(spec("./t", device_mode=DeviceMode.POOL), base)
    assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert env["RESHAPE_DEVICES"] == "GPU-a,GPU-b"
    assert env["PATH"] == "/bin"
    assert "TF_CONFIG" not in env
    assert "RESHAPE_STEPS" not in env


def test_simulated_devices_hide_every_real_gpu() -> None:
    env = variables(spec("./t"), {"NVIDIA_VISIBLE_DEVICES": "all"})
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert "NVIDIA_VISIBLE_DEVICES" not in env
    assert env["RESHAPE_DEVICE_MODE"] == "simulated"


def test_the_record_comes_over_the_container_and_ours_comes_last() -> None:
    made = spec("./t", env=(("A", "record"), ("PYTHONUNBUFFERED", "0")), length_epochs=4, seed=7)
    env = variables(made, {"A": "container", "B": "container"})
    assert (env["A"], env["B"], env["PYTHONUNBUFFERED"]) == ("record", "container", "1")
    assert (env["RESHAPE_EPOCHS"], env["RESHAPE_SEED"]) == ("4", "7")
    assert env["RESHAPE_SPAWNED_AT_S"] == "5.25"
    assert "RESHAPE_STEPS" not in env


def test_a_pytorch_script_finds_a_process_group_of_one_and_torchrun_its_size() -> None:
    env = variables(spec("python", "t.py", framework="pytorch"))
    assert (env["WORLD_SIZE"], env["RANK"], env["MASTER_PORT"]) == ("1", "0", "4242")
    assert env["PET_NPROC_PER_NODE"] == "2"
    assert "WORLD_SIZE" not in variables(spec("python", "t.py"))


def test_one_of_several_workers_finds_the_others_by_addresses_and_one_alone_has_no_tf_config() -> (
    None
):
    peers = ("10.0.0.1:40001", "10.0.0.2:40002")
    env = variables(spec("./t", worker=1, workers=2), peers=peers)
    assert json.loads(env["TF_CONFIG"]) == {
        "cluster": {"worker": ["10.0.0.1:40001", "10.0.0.2:40002"]},
        "task": {"type": "worker", "index": 1},
    }
    assert (env["RESHAPE_WORKER"], env["RESHAPE_WORKERS"]) == ("1", "2")
    assert env["RESHAPE_PEERS"] == ",".join(peers)
    assert "TF_CONFIG" not in variables(spec("./t"))


def test_a_pytorch_script_of_several_workers_meets_at_the_first() -> None:
    made = spec("python", "t.py", framework="pytorch", worker=1, workers=2)
    env = variables(made, peers=("[fd00::1]:40001", "[fd00::2]:40002"))
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("fd00::1", "40001")
    assert (env["RANK"], env["WORLD_SIZE"]) == ("1", "2")
    assert (env["PET_NNODES"], env["PET_NODE_RANK"]) == ("2", "1")


def test_a_program_without_the_hook_finds_the_session_before_what_it_brings_itself() -> None:
    place = Path("/run/python")
    made = spec("torchrun", "t.py", framework="pytorch")
    found = variables(made, {"PYTHONPATH": "/code/lib"}, library=place)
    assert found["PYTHONPATH"] == "/run/python:/run/python/reshape_sidecar/alone:/code/lib"
    several = spec("python", "t.py", framework="pytorch", processes=Processes.PER_GPU)
    assert variables(several, library=place)["PYTHONPATH"] == "/run/python"
    plain = spec("python", "t.py", framework="other")
    assert variables(plain, library=place)["PYTHONPATH"] == "/run/python"
    assert variables(plain, {"PYTHONPATH": ""}, library=place)["PYTHONPATH"] == "/run/python"
    assert "PYTHONPATH" not in variables(spec("python", "t.py"), library=place)


def test_the_hook_lies_where_the_command_says() -> None:
    assert environment.hook_path().parts[-3:] == ("reshape_sidecar", "hook", "run.py")
    assert environment.hook_path().is_file()


def test_a_process_is_told_the_name_of_its_record_beside_the_jobs_id() -> None:
    assert variables(spec("./t", job="train-1a2b", name="train"))["RESHAPE_JOB_NAME"] == "train"


def test_a_target_accuracy_reaches_training_and_only_then_has_variables() -> None:
    made = spec("python t.py", target_accuracy=0.925, metric="val_acc", epochs_in_a_row=2)
    assert settings.from_environment(variables(made)) == replace(
        settings.from_environment(variables(spec("python t.py"))) or settings.HookSettings(),
        target=Target(0.925, "val_acc", 2),
    )
    assert not {"RESHAPE_METRIC", "RESHAPE_TARGET_ACCURACY", "RESHAPE_EPOCHS_IN_A_ROW"} & set(
        variables(spec("python t.py"))
    )
