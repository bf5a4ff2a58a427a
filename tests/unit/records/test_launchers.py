"""The script is found behind torchrun and accelerate launch, and contradictions are named."""

from __future__ import annotations

import pytest

from reshape_controller.records.launchers import Launch, LaunchError, launcher_of, parse_launch

SIZES = (1, 2, 4)


@pytest.mark.parametrize(
    ("command", "each"),
    [
        ("torchrun train.py --lr 0.1", "python train.py --lr 0.1"),
        ("torchrun --standalone --nproc_per_node=gpu train.py -m 3", "python train.py -m 3"),
        ("/opt/bin/torchrun --nnodes 1 --nproc-per-node auto a.py", "/opt/bin/python a.py"),
        (
            "torchrun --nnodes=1:1 --rdzv-endpoint host:29400 -m pkg.train x",
            "python -m pkg.train x",
        ),
        ("torchrun --max_restarts=3 --log-dir /tmp/x -t 3 -- train.py", "python train.py"),
        ("torchrun --no-python bin/train --x", "bin/train --x"),
        ("python3 -u -m torch.distributed.run --node_rank 0 a.py", "python3 -u a.py"),
        ("accelerate launch --multi_gpu a.py --num_processes 8", "python a.py --num_processes 8"),
        ("accelerate-launch -m pkg.train", "python -m pkg.train"),
        ("python -m accelerate.commands.launch --num_machines 1 a.py", "python a.py"),
        ("python -m accelerate.commands.accelerate_cli launch a.py", "python a.py"),
    ],
)
def test_each_process_runs_the_script_behind_the_launcher(command: str, each: str) -> None:
    launch = parse_launch(command.split(), SIZES)
    assert launch is not None
    assert launch.command == tuple(each.split())


def test_options_that_accelerate_hands_on_become_variables() -> None:
    command = (
        "accelerate launch --mixed_precision bf16 --gradient_accumulation_steps=2"
        " --num_cpu_threads_per_process 4 a.py"
    )
    variables = (
        ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "2"),
        ("ACCELERATE_MIXED_PRECISION", "bf16"),
        ("OMP_NUM_THREADS", "4"),
    )
    each = ("python", "a.py")
    assert parse_launch(command.split(), SIZES) == Launch("accelerate launch", each, variables)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("torchrun --nnodes 2 a.py", "torchrun --nnodes 2 is for several machines"),
        ("torchrun --node-rank 1 a.py", "--node-rank 1 is for several machines"),
        ("torchrun --nproc-per-node 4 a.py", "4 is a number of processes of its own, and the job"),
        ("torchrun --nproc-per-node cpu a.py", "cpu is a number of processes of its own"),
        ("torchrun --run-path a.py", "torchrun --run-path is not understood; leave it out"),
        ("torchrun --nnodes", "torchrun --nnodes has no value"),
        ("torchrun --standalone", "torchrun names no script"),
        ("torchrun", "torchrun names no script"),
        ("accelerate launch --num_processes=2 a.py", "--num-processes 2 is a number of processes"),
        ("accelerate launch --num_machines 2 a.py", "--num-machines 2 is for several machines"),
        ("accelerate launch --use_fsdp a.py", "accelerate launch --use-fsdp is not understood"),
        ("accelerate launch --config_file c.yaml a.py", "--config-file is not understood"),
        ("python -m torch.distributed.launch a.py", "gives each process an argument; use torchrun"),
        (f"torchrun --nproc-per-node {'9' * 5000} a.py", "is a number of processes of its own"),
        (f"torchrun --{'x' * 100_000} a.py", "is not understood"),
    ],
)
def test_an_option_that_contradicts_one_process_per_gpu_is_explained(
    command: str, words: str
) -> None:
    with pytest.raises(LaunchError) as caught:
        parse_launch(command.split(), SIZES)
    assert words in str(caught.value)
    assert "; " in str(caught.value), "the remedy follows"
    assert len(str(caught.value)) < 300


def test_a_number_of_processes_that_is_the_only_size_is_no_contradiction() -> None:
    words = ["torchrun", "--nproc-per-node", "4", "a.py"]
    assert parse_launch(words, (4,)) == Launch("torchrun", ("python", "a.py"))


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --backend torchrun",
        "python -m train torchrun",
        "accelerate config",
        "",
        "a",
    ],
)
def test_a_command_without_a_launcher_has_none(command: str) -> None:
    assert launcher_of(command.split()) is None
    assert parse_launch(command.split(), SIZES) is None
