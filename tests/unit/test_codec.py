"""The codec is strict, and what it writes it reads back."""

from __future__ import annotations

import pytest

from reshape_sidecar import codec
from reshape_sidecar.wire import Desired, Mode, Observed, Outcome, OutcomeKind, Phase, Progress

OBSERVED = Observed(
    "job-1",
    attempt=2,
    generation=3,
    sequence=4,
    phase=Phase.RUNNING,
    devices=("GPU-a", "GPU-b"),
    progress=Progress(step=7, loss=0.5),
    outcome=Outcome(3, OutcomeKind.STOPPING, saved_step=7),
)


def test_a_report_survives_the_wire() -> None:
    assert codec.loads(Observed, codec.dumps(OBSERVED)) == OBSERVED


def test_equal_values_give_equal_bytes_and_defaults_are_left_out() -> None:
    desired = Desired(1, "j", 1, 1, Mode.RUN)
    assert codec.dumps(desired) == codec.dumps(Desired(1, "j", 1, 1, Mode.RUN, devices=()))
    assert "devices" not in codec.dumps(desired)


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("{", "", "not valid JSON"),
        ('{"epoch":1}', "job", "is missing"),
        ('{"epoch":"1","job":"j","attempt":1,"generation":1,"mode":"run"}', "epoch", "whole"),
        ('{"epoch":true,"job":"j","attempt":1,"generation":1,"mode":"run"}', "epoch", "whole"),
        ('{"epoch":1,"job":"j","attempt":1,"generation":1,"mode":"fly"}', "mode", "none of"),
        ('{"epoch":1,"job":"j","attempt":1,"generation":1,"mode":"run","x":1}', "x", "unknown"),
        (
            '{"epoch":1,"job":"j","attempt":1,"generation":1,"mode":"run","devices":["a",2]}',
            "devices[1]",
            "not a string",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(text: str, path: str, message: str) -> None:
    with pytest.raises(codec.CodecError) as caught:
        codec.loads(Desired, text)
    assert caught.value.path == path
    assert message in caught.value.message


@pytest.mark.parametrize(("field", "kind"), [("step", int), ("loss", float)])
def test_a_whole_number_beyond_64_bits_is_refused(field: str, kind: type[float]) -> None:
    largest = codec.loads(Progress, f'{{"{field}":{2**63 - 1}}}')
    assert getattr(largest, field) == kind(2**63 - 1)
    for number in (2**63, -(10**400)):
        with pytest.raises(codec.CodecError, match="is not a") as caught:
            codec.loads(Progress, f'{{"{field}":{number}}}')
        assert caught.value.path == field


def test_not_a_number_is_never_written() -> None:
    with pytest.raises(codec.CodecError):
        codec.dumps(Progress(loss=float("nan")))
